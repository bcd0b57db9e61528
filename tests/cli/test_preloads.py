"""``--preload dasfprof.preload`` with Dask's real commands, ended by SIGTERM."""

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dask
import pytest
from clusters import is_written, wait_until
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, LocalCluster
from shell import BIN, DEADLINE, environment

from dasfprof.database.multi import find_runs
from dasfprof.database.reader import TraceFile

pytestmark = pytest.mark.whole_program

PRELOAD = ("--preload", "dasfprof.preload")
TASKS = 40


@contextmanager
def started(*command: str, log: Path, traces: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command of Dask, and kill it at the end if it still runs."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(BIN / "dask"), *command],
            cwd=log.parent,
            env=environment(DASK_DASFPROF__DIRECTORY=traces),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Send SIGTERM and wait.

    Workers and scheduler must not get it at the same time, because Dask then sometimes waits
    forever (4 of 25 times with 2026.8.0, without preload and nanny).
    """
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        assert process.wait(timeout=DEADLINE) == 0


@pytest.mark.parametrize("nanny", ["--nanny", pytest.param("--no-nanny", marks=pytest.mark.slow)])
def test_a_scheduler_with_the_preload(nanny: str, tmp_path: Path) -> None:
    """After SIGTERM, the files of the preload's run are complete."""
    traces, address = tmp_path / "traces", tmp_path / "scheduler.json"
    with ExitStack() as stack:
        # The workers start before their scheduler, as on batch systems.
        servers = [
            stack.enter_context(
                started(
                    *("worker", "--scheduler-file", str(address), nanny, "--nthreads", "1"),
                    *("--no-dashboard", "--name", f"w{number}"),
                    log=tmp_path / f"{number}.log",
                    traces=traces,
                )
            )
            for number in range(2)
        ]
        scheduler = stack.enter_context(
            started(
                *("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
                *("--scheduler-file", str(address), *PRELOAD),
                log=tmp_path / "scheduler.log",
                traces=traces,
            )
        )
        wait_until(lambda: is_written(address))
        with Client(scheduler_file=str(address), timeout=120) as client:
            client.wait_for_workers(2)
            futures = client.map(abs, range(TASKS), pure=False)
            assert sum(client.gather(futures)) == sum(range(TASKS))
            plugins = client.run(lambda dask_worker: sorted(dask_worker.plugins))
            for names in plugins.values():
                assert sum(name.endswith("-WorkerProfiler") for name in names) == 1
        end(servers)
        end([scheduler])
    (run,) = find_runs(traces)
    assert run.name.startswith("default-")
    kinds, functions, states = Counter[str](), Counter[str](), Counter[str]()
    for path in run.files:
        file = TraceFile(path)
        for batch in file.batches():
            functions.update(batch.args["name"].to_list() if batch.name == "Compute" else ())
            states.update(batch.args["state"].to_list() if batch.name == "Task Run" else ())
        assert file.end is not None, path
        assert (file.dropped, file.errors, bool(file.damage)) == (0, 0, False)
        kinds[file.header["plugin"]] += 1
    assert functions == {"abs": TASKS}
    assert kinds == {"TracePlugin": 2, "ResourceMonitor": 2, "SchedulerPlugin": 1}
    assert states == {"memory": TASKS}
    log = (tmp_path / "scheduler.log").read_text()
    assert f"dasfprof.preload - INFO - dasfprof records run '{run.name}' in" in log
    for path in tmp_path.glob("*.log"):
        assert "dasfprof/recording/" not in path.read_text(), "a traceback of ours"


def test_a_directory_that_cannot_be_written_leaves_the_scheduler_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log, address = tmp_path / "log", tmp_path / "scheduler.json"
    command = ("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", *PRELOAD)
    with started(
        *command, "--scheduler-file", str(address), log=log, traces=tmp_path / "file" / "below"
    ) as scheduler:
        wait_until(lambda: is_written(address))
        with Client(scheduler_file=str(address), timeout=120) as client:
            names = client.run_on_scheduler(
                lambda dask_scheduler: [*dask_scheduler.plugins, *dask_scheduler.worker_plugins]
            )
        end([scheduler])
    assert not any(name.startswith("dasfprof-") for name in names)
    told = log.read_text()
    assert f"dasfprof records nothing here: the directory '{tmp_path / 'file' / 'below'}'" in told
    assert "cannot be written" in told


def test_clients_with_the_preload(tmp_path: Path) -> None:
    """With the preload in their config, clients record until they close."""
    config = {
        "distributed.client.preload": ["dasfprof.preload"],
        "dasfprof.directory": str(tmp_path),
        "dasfprof.name": "mine",
        "dasfprof.add-time-suffix": False,
    }
    before = vars(HighLevelGraph)["from_collections"]
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        for _ in range(2):
            with dask.config.set(config), Client(cluster) as client, Client(cluster):
                assert client.submit(abs, -3, pure=False).result() == 3
            names = [*cluster.scheduler.plugins, *cluster.scheduler.worker_plugins]
            assert not any(name.startswith("dasfprof-") for name in names)
            assert vars(HighLevelGraph)["from_collections"] is before
    runs = find_runs(tmp_path)
    assert [run.name for run in runs] == ["mine", "mine"]
    for run in runs:
        events = [batch for path in run.files for batch in TraceFile(path).batches()]
        assert sum(batch.rows for batch in events if batch.name == "Compute") == 1
        assert all(path.exists() for path in run.files)
