"""GPU samples of profiled worker processes, with the real pynvml and the stand-in driver."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clusters import wait_until
from distributed import Client, Nanny, Scheduler
from distributed.deploy.spec import SpecCluster
from stand_ins import Driver, device, uuid_of

import dasfprof
from dasfprof.schema.events import InstantEvent

pytestmark = pytest.mark.whole_program

pytest.importorskip("pynvml", reason="the package nvidia-ml-py is not installed")

#: Device b is first on the bus, so CUDA's order is b, a and NVML's order is a, b.
TWO = device("a", "41", "utilization 40\nmemory_used 4000000000") + device(
    "b", "3b", "utilization 70\nmemory_used 7000000000"
)


@contextmanager
def workers(driver: Driver, *variables: str | None) -> Iterator[Client]:
    """Start worker processes with these CUDA_VISIBLE_DEVICES; None means not set."""

    def spec(variable: str | None) -> dict[str, Any]:
        env = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
        return {"cls": Nanny, "options": {"nthreads": 1, "env": env}}

    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "port": 0}}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        patch.delenv("CUDA_DEVICE_ORDER", raising=False)
        for name, value in driver.environment.items():
            patch.setenv(name, value)  # before the processes start, for their loader
        specs = {index: spec(variable) for index, variable in enumerate(variables)}
        with SpecCluster(specs, scheduler) as cluster, Client(cluster) as client:
            client.wait_for_workers(len(variables))
            yield client


@contextmanager
def profiled(client: Client, directory: Path, **options: Any) -> Iterator[Any]:
    with dasfprof.profile(client, directory=directory, sample_interval=0.02, **options) as run:
        yield run


def wait_for(run: Any, name: str, count: int) -> None:
    """Wait until the run's files have this many events with a name from each worker."""

    def is_there() -> bool:
        run.flush()
        by_worker = Counter(event.thread_id for event in events(run, name))
        return len(by_worker) == 2 and min(by_worker.values()) >= count

    wait_until(is_there, every=0.05)


def events(run: Any, name: str, worker: int | None = None) -> list[InstantEvent]:
    """Return the events with a name, of all workers or of the one with this Dask name."""
    return [
        event
        for event in run.database().get_traces()
        if event.name == name and (worker is None or event.thread_id.endswith(f"-{worker}"))
    ]


def values(found: list[InstantEvent], *names: str) -> set[tuple[Any, ...]]:
    """Return the values of these args, with None for values that were never read (NaN)."""
    return {
        tuple(None if (value := event.args[name]) != value else value for name in names)
        for event in found
    }


def addresses(client: Client) -> dict[int, str]:
    workers = client.sync(client.scheduler.identity)["workers"]
    return {about["name"]: address for address, about in workers.items()}


def test_each_worker_has_the_samples_of_its_own_device(driver: Driver, tmp_path: Path) -> None:
    driver.answer(TWO)
    with workers(driver, f"{uuid_of('b')},{uuid_of('a')}", "1") as client:
        with profiled(client, tmp_path) as run:
            wait_for(run, "GPU Usage", 5)
            futures = [
                client.submit(time.sleep, 3.0 + name, key=f"work-{name}", workers=[address])
                for name, address in addresses(client).items()
            ]
            client.gather(futures)
        analyser = run.analyser()
    nothing = {(None, None, None)}  # samples between two readings
    for name, letter, index, used, memory in ((0, "b", 1, 70.0, 7.0), (1, "a", 0, 40.0, 4.0)):
        own = values(
            events(run, "Resource Usage", name), "gpu_index", "gpu_utilization", "gpu_memory_used"
        )
        assert own - nothing == {(index, used, memory * 1e9)}
        read = values(events(run, "GPU Usage", name), "uuid", "utilization", "memory_used")
        assert read == {(uuid_of(letter), used, memory * 1e9)}
        about = values(events(run, "GPU Devices", name), "availability", "uuid", "index")
        assert about == {("available", uuid_of(letter), index)}
    # The tables have the means of the workers' devices.
    functions = analyser.per_function_bottleneck()
    label = functions["Worker"].str[-2:]
    columns = ["GPU", "Mean GPU Utilization (%)", "Mean GPU Memory Used (GB)"]
    assert functions[label == "-0"][columns].to_numpy().tolist() == [[1, 70.0, 7.0]]
    assert functions[label == "-1"][columns].to_numpy().tolist() == [[0, 40.0, 4.0]]
    tasks = analyser.per_task_bottleneck()
    assert tasks[columns].to_numpy().tolist() == [[0, 40.0, 4.0], [1, 70.0, 7.0]]
    assert (tasks["GPU Samples"] >= 5).all()
    devices = analyser.per_gpu_utilisation()
    assert devices["Mean GPU Utilization (%)"].tolist() == pytest.approx([40.0, 70.0])
    assert devices["Idle While Tasks Ran (%)"].between(0.0, [60.0, 30.0], inclusive="neither").all()


def test_a_shared_device_is_read_by_one_and_on_when_its_reader_dies(
    driver: Driver, tmp_path: Path
) -> None:
    def readers() -> set[Any]:
        run.flush()
        return {event.thread_id for event in events(run, "GPU Usage")}

    driver.answer(device("a", "41"))
    with workers(driver, "0", "0") as client, profiled(client, tmp_path) as run:
        wait_for(run, "Resource Usage", 20)
        (first,) = before = readers()
        # Both know which device they share.
        assert len(events(run, "GPU Devices")) == 2
        assert values(events(run, "GPU Devices"), "uuid") == {(uuid_of("a"),)}
        reader = addresses(client)[int(first.rpartition("-")[2])]
        client.retire_workers([reader], close_workers=True)
        wait_until(lambda: readers() != before)
    assert values(events(run, "GPU Usage"), "uuid") == {(uuid_of("a"),)}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("fail nvmlInit 9", "no driver"),
        (device("a", "41", "fail nvmlDeviceGetUtilizationRates 15"), "lost"),
    ],
)
def test_a_run_without_readings_completes_and_says_why(
    driver: Driver, tmp_path: Path, script: str, reason: str
) -> None:
    driver.answer("driver 550")  # Dask's workers do not start if NVML refuses
    with workers(driver, "0", "0") as client:
        driver.answer(script)
        with profiled(client, tmp_path) as run:
            squares = client.gather(client.map(lambda i: i * i, range(20)))
            wait_for(run, "Resource Usage", 3)
    assert squares == [i * i for i in range(20)]
    reasons = [event.args["availability"] for event in events(run, "GPU Devices")]
    assert reason in reasons
    assert events(run, "GPU Usage") == []
    assert values(events(run, "Resource Usage"), "gpu_utilization") == {(None,)}


def test_a_driver_that_hangs_keeps_nobody_waiting(driver: Driver, tmp_path: Path) -> None:
    driver.answer(device("a", "41"))
    with workers(driver, "0", "0") as client:
        with profiled(client, tmp_path) as run:
            wait_for(run, "Resource Usage", 3)
            driver.answer(device("a", "41", "sleep nvmlDeviceGetPowerUsage 3600"))
            seen = [-1]

            def hangs() -> bool:
                run.flush()
                seen.append(len(events(run, "GPU Usage")))
                return seen[-1] == seen[-2]

            wait_until(hangs, every=0.3)
        assert client.gather(client.map(lambda i: i, range(4))) == list(range(4))
    for database in run.database().databases:
        file = database.trace_file()  # type: ignore[attr-defined]
        list(file.batches())
        assert file.end is not None  # closed, including that of the hanging sampler
