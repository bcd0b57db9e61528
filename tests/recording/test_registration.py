"""Registering the profiler on a cluster and removing it, on real worker processes."""

import asyncio
import ctypes
import itertools
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import independent_record as record
import pytest
from clusters import client_of
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, LocalCluster, Scheduler, Worker
from recorded_facts import assert_whole

import dasfprof
from dasfprof.config.options import RECORDING
from dasfprof.database.reader import TraceFile
from dasfprof.errors import NoClientError, RegistrationError, SourceNotFoundError

client = client_of(2, 1)


def computed(source: Any) -> list[Any]:
    """Return the keys of task runs in worker files, in any order."""
    return sorted(event.args["key"] for event in source if event.name == "Compute")


def on_cluster(client: Client) -> tuple[set[str], set[str]]:
    """Return dasfprof's plugins on the scheduler, and its plugins and threads on workers."""

    def scheduler_side(dask_scheduler: Any) -> set[str]:
        names = [*dask_scheduler.plugins, *dask_scheduler.worker_plugins]
        return {name for name in names if "dasfprof" in name}

    def worker_side(dask_worker: Any) -> set[str]:
        import threading

        left = {name for name in dask_worker.plugins if "dasfprof" in name}
        left |= {thread.name for thread in threading.enumerate() if "dasfprof" in thread.name}
        return left | ({"_finalize_metrics"} & vars(dask_worker).keys())

    workers = client.run(worker_side).values()
    return client.run_on_scheduler(scheduler_side), set().union(*workers)


def wait_until_nothing_is_on(client: Client) -> None:
    """Wait for the threads to end, and assert that no plugin remains."""
    record.wait_until(lambda: not any(on_cluster(client)))


_numbers = itertools.count()


def increments(client: Client, count: int = 5) -> list[str]:
    """Run some tasks, and return their keys, which no other test uses."""
    keys = [f"inc-x{next(_numbers)}" for _ in range(count)]
    futures = client.map(lambda i: i + 1, range(count), key=keys)
    assert client.gather(futures) == list(range(1, count + 1))
    return sorted(keys)


def test_files_of_a_run_that_leaves_nothing_behind(client: Client, tmp_path: Path) -> None:
    def transitions(dask_worker: Any) -> list[str]:
        """Return the `transition` hooks. Dask calls even those that do nothing."""
        plugins = [p for name, p in dask_worker.plugins.items() if "dasfprof" in name]
        return [plugin.transition.__qualname__ for plugin in plugins]

    with dask.config.set({"distributed.scheduler.work-stealing": False}):
        run = dasfprof.register_default_profiler(
            client,
            name="n",
            add_time_suffix=False,
            directory=tmp_path,
            sample_interval="200ms",
            enable_nvtx=True,
        )
    assert len(on_cluster(client)[0]) == 2
    assert list(client.run(transitions).values()) == [["WorkerTaskPlugin.transition"]] * 2
    keys = increments(client)
    run.stop()
    before = {path: path.read_bytes() for path in run.files()}
    run.stop()
    run.flush()
    assert {path: path.read_bytes() for path in run.files()} == before
    assert computed(run.database()) == keys
    wait_until_nothing_is_on(client)
    assert_whole(run)
    host = socket.gethostname()
    plugins = ("TracePlugin", "ResourceMonitor", "GPUAnnotationPlugin")
    expected = {f"n-{plugin}-{host}-{worker}" for plugin in plugins for worker in "01"}
    expected |= {f"n-SchedulerPlugin-{host}-scheduler", f"n-StepRecorder-{host}-client"}
    assert {path.stem for path in run.files()} == expected
    assert {path.stem for path in tmp_path.iterdir()} == expected
    settings = TraceFile(tmp_path / f"n-SchedulerPlugin-{host}-scheduler.msgpack").read_header()
    settings = settings["settings"]
    assert settings["distributed.scheduler.work-stealing"] == "False"
    assert settings["dasfprof.sample-interval"] == "0.2"
    assert settings["dasfprof.stack-frequency"] == "20.0"
    assert str(tmp_path) not in settings.values()


def test_registering_twice_stops_the_first_run(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both runs have files, although they have the same name."""
    options: dict[str, Any] = {"name": "same", "add_time_suffix": False, "directory": tmp_path}
    first = dasfprof.register_default_profiler(client, **options)
    first_keys = increments(client)
    second = dasfprof.register_default_profiler(client, **options)
    assert "stopped" in caplog.text
    before = {path: path.read_bytes() for path in first.files()}
    first.stop()  # must not affect the second run
    keys = increments(client)
    second.stop()
    assert {path: path.read_bytes() for path in first.files()} == before
    assert computed(first.database()) == first_keys
    assert computed(second.database()) == keys
    with pytest.warns(UserWarning, match="newest"):
        assert computed(dasfprof.open_run(tmp_path / "same")) == keys
    wait_until_nothing_is_on(client)
    for path in second.files():
        path.unlink()
    with pytest.raises(SourceNotFoundError, match="collect"):
        second.database()


def test_block_that_raises_is_recorded_and_raises(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), dasfprof.profile(client, directory=tmp_path):
        keys = increments(client)
        1 / 0  # noqa: B018
    assert computed(dasfprof.open_run(tmp_path)) == keys
    wait_until_nothing_is_on(client)


class Pipeline:
    """Pipeline like DASF's: its executor has the client."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def register_plugin(self, plugin: Any) -> None:
        raise AssertionError("must go through the client")


class Holder:
    def __init__(self, client: Any) -> None:
        self.client = client


def test_pipelines_clusters_and_the_current_client(client: Client, tmp_path: Path) -> None:
    holders = Pipeline(Holder(client)), Holder(client), client.cluster, None
    for number, pipeline in enumerate(holders):
        with client.as_current():
            run = dasfprof.register_default_profiler(
                pipeline, f"p{number}", False, False, directory=tmp_path
            )
        keys = increments(client)
        run.stop()
        assert run.name == f"p{number}"
        assert computed(run.database()) == keys


class LocalExecutor:
    """Executor like DASF's executor without Dask."""


def test_errors_without_a_client_and_of_unknown_options() -> None:
    for pipeline in (Pipeline(LocalExecutor()), Holder(None), object(), 3):
        with pytest.raises(NoClientError, match=r"no Dask client.*distributed\.Client") as caught:
            dasfprof.register_default_profiler(pipeline)
        assert f"got an object of type {type(pipeline).__name__}" in str(caught.value)
    for call in (dasfprof.register_default_profiler, dasfprof.profile):
        with pytest.raises(dasfprof.errors.UnknownOptionError) as unknown:
            call(None, sample_intervall=0.5)  # type: ignore[call-arg]
        assert isinstance(unknown.value, TypeError)
        assert "sample_intervall. Did you mean sample_interval?" in str(unknown.value)
        assert all(name in str(unknown.value) for name in RECORDING)


def test_closed_cluster_wrote_everything(tmp_path: Path) -> None:
    hook = vars(HighLevelGraph)["from_collections"]
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)
    run = dasfprof.register_default_profiler(client, directory=tmp_path, flush_interval="1h")
    with dasfprof.step("s"):
        keys = increments(client, 20)
    client.close()
    cluster.close()
    assert computed(run.database()) == keys
    assert_whole(run)
    assert list(run.analyser(progress=False).trace.steps["step"]) == ["s"]
    assert vars(HighLevelGraph)["from_collections"] is hook
    assert "ended with its cluster, " in repr(run)
    run.stop()
    run.flush()
    assert "stopped" in repr(run)
    for pipeline in (client, cluster):
        with pytest.raises(RegistrationError, match="closed"):
            dasfprof.register_default_profiler(pipeline, directory=tmp_path)
    names = [event.name for event in run.database()]
    assert names.count("Worker Removed") == 2


def test_stop_after_the_client_has_closed(client: Client, tmp_path: Path) -> None:
    """DASF closes its client. The cluster continues without the profiler."""
    with Client(client.scheduler.address, set_as_default=False) as other:
        run = dasfprof.register_default_profiler(other, directory=tmp_path, flush_interval="1h")
        keys = increments(client)
    run.flush()
    assert computed(run.database()) == keys
    run.stop()
    assert "stopped, 6 files" in repr(run)
    wait_until_nothing_is_on(client)
    assert computed(run.database()) == keys


def hold_the_interpreter(fifo: str, marker: str) -> None:
    """Hold the GIL, as some C code does, until there is a byte to read."""
    handle = os.open(fifo, os.O_RDWR)
    Path(marker).touch()
    ctypes.PyDLL(None).read(handle, ctypes.create_string_buffer(1), 1)
    os.close(handle)


@contextmanager
def held_by_c_code(client: Client, worker: str, directory: Path) -> Iterator[None]:
    fifo, marker = directory / "fifo", directory / "marker"
    os.mkfifo(fifo)
    task = client.submit(hold_the_interpreter, str(fifo), str(marker), workers=[worker], pure=False)
    record.wait_until(marker.exists)
    try:
        yield
    finally:
        fifo.write_bytes(b"x")
        task.result()


def test_a_frozen_worker_is_named_and_left_alone(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    victim, other = sorted(client.nthreads())
    traces = tmp_path / "traces"
    run = dasfprof.register_default_profiler(client, flush_interval="1h", directory=traces)
    # Registering may take longer on a busy machine, and the other worker must answer in time.
    run._link.limit = 4.0
    keys = {worker: f"frozen-on-{worker}" for worker in (victim, other)}
    futures = [client.submit(abs, -1, workers=[w], key=key) for w, key in keys.items()]
    assert client.gather(futures) == [1, 1]
    with held_by_c_code(client, victim, tmp_path):
        record.wait_until(lambda: run.flush() or run.unanswered)
        assert set(run.unanswered) == {victim}
        assert victim in repr(run)
        assert victim in caplog.text
        assert keys[other] in computed(run.database())
        assert len(run.collect(tmp_path / "here")) == 6
        caplog.clear()
        run.stop()
        assert set(run.unanswered) == {victim}
        assert "not stopped" in repr(run)
        assert "is not stopped" in caplog.text
        whole = {path.name: TraceFile(path).is_closed() for path in run.files()}
        assert sorted(whole.values()) == [False, False, True, True, True, True]
        assert keys[other] in computed(run.database())
        with pytest.raises(RegistrationError, match=f"{victim}.*Nothing was registered"):
            dasfprof.register_default_profiler(client, directory=traces, response_timeout=4)
    run._link.limit = 30.0
    record.wait_until(lambda: run.stop() or "stopped, 6 files" in repr(run))
    assert not run.unanswered
    assert set(keys.values()) <= set(computed(run.database()))
    assert all(TraceFile(path).is_closed() for path in run.files())
    wait_until_nothing_is_on(client)


def test_a_scheduler_that_closes_before_its_workers(tmp_path: Path) -> None:
    """If workers outlive their scheduler, file and thread end with the scheduler."""

    async def scenario() -> None:
        scheduler = await Scheduler(dashboard_address=None, port=0)
        worker = await Worker(scheduler.address)
        async with Client(scheduler.address, asynchronous=True) as client:
            run = await dasfprof.register_default_profiler(client, directory=tmp_path)
            assert await client.submit(lambda: 1, key="one-1") == 1
            await scheduler.close()
        await worker.finished()
        assert computed(run.database()) == ["one-1"]
        await run.stop()
        assert "stopped" in repr(run)

    asyncio.run(scenario())
    assert all(TraceFile(path).is_closed() for path in tmp_path.iterdir())
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for path in tmp_path.iterdir() for name in names if path.name in name]


def test_unwritable_directory(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RegistrationError, match=r"cannot be written.*Nothing was registered"):
        dasfprof.register_default_profiler(client, directory=tmp_path / "file" / "below")
    wait_until_nothing_is_on(client)
    increments(client)


def test_collect_brings_files_of_remote_hosts(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dasfprof.recording.cluster.home as module

    with dasfprof.profile(client, directory=tmp_path / "there", profiler="cprofile") as run:
        keys = increments(client)
        run.flush()
        monkeypatch.setattr(run, "files", list)
        real = module.list_with_profiles

        class Listing:
            """Function that returns no files in this process, and the real ones on workers."""

            def __call__(self, *args: Any) -> Any:
                return []

            def __reduce__(self) -> Any:
                return getattr, (module, "real_listing")

        monkeypatch.setattr(module, "list_with_profiles", Listing())
        monkeypatch.setattr(module, "real_listing", real, raising=False)
        client.run(_expose_real)
        monkeypatch.setattr(module, "CHUNK_BYTES", 100)
        collected = run.collect(tmp_path / "here")
    assert computed(dasfprof.open_run(tmp_path / "here")) == keys
    assert len(collected) == 6
    assert any("SchedulerPlugin" in path.name for path in collected)
    profiles = sorted(path.name for path in (tmp_path / "there").glob("*.pstats"))
    assert profiles
    assert sorted(path.name for path in (tmp_path / "here").glob("*.pstats")) == profiles


def _expose_real() -> None:
    import dasfprof.recording.cluster.home as module

    module.real_listing = module.list_with_profiles  # type: ignore[attr-defined]


def test_asynchronous_client(tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_workers": 1, "processes": False, "dashboard_address": None}

    async def scenario() -> None:
        async with (
            LocalCluster(asynchronous=True, **options) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            run = await dasfprof.register_default_profiler(client, directory=tmp_path / "a")
            assert await client.submit(lambda: 1, key="one-1") == 1
            await run.flush()
            assert computed(run.database()) == ["one-1"]
            await run.stop()
            async with dasfprof.profile(client, directory=tmp_path / "b") as run:
                assert await client.submit(lambda: 2, key="two-2") == 2
            assert computed(run.database()) == ["two-2"]
            with pytest.raises(RegistrationError, match="async with"):
                dasfprof.profile(client, directory=tmp_path).__enter__()
            run = await dasfprof.register_default_profiler(cluster, directory=tmp_path / "c")
            assert await client.submit(lambda: 3, key="three-3") == 3
            await run.stop()
            assert computed(run.database()) == ["three-3"]

    asyncio.run(scenario())
