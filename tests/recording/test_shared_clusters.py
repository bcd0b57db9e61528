"""Recording on clusters that many people share: limits for files, and nothing accumulates."""

import gc
import math
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import independent_record as record
import pytest
from click.testing import CliRunner
from clusters import new_client
from dask_processes import Processes, may_mount
from distributed import Client
from distributed.core import _expects_comm
from open_files import open_files
from recorded_facts import computed

import dasfprof
from dasfprof import preload
from dasfprof.cli.main import cli
from dasfprof.database import FileDatabase, find_runs
from dasfprof.database.multi import was_received
from dasfprof.database.writer import TraceWriter
from dasfprof.handles.rotation import Limits, Rotation, remove_old_runs
from dasfprof.recording.plugins import resources
from dasfprof.recording.plugins.resources import Idleness
from dasfprof.recording.probes import host, processes
from dasfprof.recording.settings import RunSettings, make_settings
from dasfprof.schema.events import InstantEvent

whole_program = pytest.mark.whole_program

DAY = 86400.0


def files_of(directory: Path, name: str, created: float, **header: Any) -> Path:
    """Write the scheduler's file of a finished run, and return its path."""
    facts = {"run": name, "run_uuid": name, "run_created": created, "plugin": "SchedulerPlugin"}
    path = directory / f"{name}-SchedulerPlugin.msgpack"
    with FileDatabase(path, new=True, header={**facts, **header}) as database:
        database.record(InstantEvent("event", created, args={"text": os.urandom(10_000).hex()}))
    return path


def test_the_oldest_runs_of_preloads_are_removed(tmp_path: Path) -> None:
    paths = [files_of(tmp_path, f"run{day}", day * DAY, removable=True) for day in range(6)]
    size = paths[0].stat().st_size
    profile = tmp_path / f"{paths[0].stem}.inc.pstats"
    profile.touch()
    # Files of users' runs, and of a run in progress, are kept regardless of age.
    user = files_of(tmp_path, "user", 0.0)
    header = {"run": "w", "run_uuid": "w", "run_created": 0.0, "removable": True}
    written = FileDatabase(tmp_path / "written.msgpack", new=True, header=header)
    written.record(InstantEvent("event", 0.0))
    written.commit()
    settings = make_settings(name="now", directory=tmp_path)

    def left(**limits: float) -> list[int]:
        given = {"run_length": DAY, "keep_size": 10**9, "keep_days": math.inf} | limits
        remove_old_runs(settings, Limits(**given), now=6 * DAY)  # type: ignore[arg-type]
        assert user.exists()
        assert (tmp_path / "written.msgpack").exists()
        return [number for number, path in enumerate(paths) if path.exists()]

    assert left() == [0, 1, 2, 3, 4, 5]
    assert left(keep_days=5.5) == [1, 2, 3, 4, 5]
    assert not profile.exists()
    assert left(keep_size=int(size * 4.5 / 0.75)) == [2, 3, 4, 5]  # a quarter is for the next run
    assert left(keep_size=1000) == []
    written.close()


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def living(references: list[weakref.ref[Any]]) -> int:
    """Count the objects that garbage collection does not free."""
    gc.collect()
    return sum(reference() is not None for reference in references)


def test_a_preload_on_an_idle_cluster_for_a_week(tmp_path: Path) -> None:
    """With a simulated clock, there is a run per day. Files of three days are kept."""
    clock = Clock(time.time())
    with new_client(n_workers=1, threads_per_worker=1, processes=False) as client:
        scheduler = client.cluster.scheduler
        (worker,) = client.cluster.workers.values()
        begun: list[RunSettings] = []
        references: list[weakref.ref[Any]] = []

        async def begin() -> RunSettings:
            settings = make_settings(name=f"day{len(begun)}-", directory=tmp_path)
            begun.append(replace(settings, created=clock.now, removable=True))
            await preload._begin(scheduler, begun[-1])
            for process, role in ((scheduler, "SchedulerPlugin"), (worker, "WorkerProfiler")):
                references.append(weakref.ref(process.plugins[begun[-1].plugin_name(role)]))
            return begun[-1]

        async def week() -> None:
            limits = Limits(run_length=DAY, keep_size=10**9, keep_days=3)
            rotation = Rotation(scheduler, limits, await begin(), begin, clock)
            for _ in range(7 * 24):
                clock.now += 3600
                await rotation.check()

        client.sync(week)
        plugins = [name for name in scheduler.plugins if name.startswith("dasfprof-")]
        assert plugins == [begun[-1].plugin_name("SchedulerPlugin")]
        # Calls that Dask stores may hold the last finished run.
        record.wait_until(lambda: living(references) <= 4)
    assert len(begun) == 8
    kept = {run.name for run in find_runs(tmp_path)}
    assert kept == {settings.name for settings in begun[4:]}


def test_the_scheduler_frees_ended_runs_without_its_garbage_collector(tmp_path: Path) -> None:
    with new_client(n_workers=1, threads_per_worker=1, processes=False) as client:
        plugins = client.cluster.scheduler.plugins
        references: list[weakref.ref[Any]] = []
        gc.disable()
        for _ in range(4):
            with dasfprof.profile(client, directory=tmp_path) as run:
                client.gather(client.map(abs, range(10), pure=False))
                name = run._settings.plugin_name("SchedulerPlugin")
                references.append(weakref.ref(plugins[name]))
        record.wait_until(lambda: sum(reference() is not None for reference in references) <= 1)
        gc.enable()


def test_an_idle_worker_writes_at_most_5_mb_per_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With simulated clocks: bytes per written sample, and samples written per day.

    A sample is also taken when a task starts on an idle worker.
    """
    with new_client(n_workers=1, threads_per_worker=1, processes=False) as client:
        worker = next(iter(client.cluster.workers.values()))
        with dasfprof.profile(client, directory=tmp_path, sample_interval=3600) as run:
            profiler = next(p for n, p in worker.plugins.items() if n.endswith("WorkerProfiler"))
            monitor = profiler.parts[1]
            clock = Clock(time.monotonic())
            for module in (resources, host, processes):
                monkeypatch.setattr(module, "monotonic", clock)
            size, written = monitor.database.path.stat().st_size, 0
            for _ in range(30):
                clock.now += 60
                monitor._sample()
                monitor.database.commit()
            bytes_a_sample = (monitor.database.path.stat().st_size - size) / 30
            idleness = Idleness(worker)
            for _ in range(int(DAY / 8)):
                clock.now += 1
                written += 8 * idleness.is_due(clock.now)
            assert run.files()
        idleness, now = Idleness(worker), time.monotonic()
        assert idleness.is_due(now)
        due = [idleness.is_due(now + tick / 10) for tick in range(1, 300)]
        assert any(due[:90])
        assert not any(due[150:])
        client.submit(sum, [1, 2]).result()
        assert idleness.is_due(now + 30)
    assert written * bytes_a_sample < 5_000_000
    assert written > DAY / 60 - 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Start a scheduler with a preload, and two workers with nannies and separate disks."""
    directory = tmp_path_factory.mktemp("shared")
    (directory / "traces").mkdir()
    if not may_mount(directory / "traces"):
        pytest.skip("this user may not mount disks")
    processes = Processes(directory, {"DASK_DASFPROF__DIRECTORY": str(directory / "traces")})
    processes.scheduler("--preload", "dasfprof.preload", "--run-length", "1000 days")
    for _ in range(2):
        processes.worker(nanny=True, disk=directory / "traces")
    yield processes
    processes.end()


@pytest.fixture
def client(cluster: Processes) -> Iterator[Client]:
    with cluster.client() as client:
        client.wait_for_workers(2)
        yield client


def state_of_process(dask_worker: Any = None) -> tuple[int, int, int, int, list[str]]:
    """Return the numbers of sockets, handlers, writers and other descriptors, and threads' names.

    The handlers are those that Dask keeps for as long as the process lives. Each part of a run in
    progress has a writer. The threads are dasfprof's.
    """
    threads = [thread.name for thread in threading.enumerate() if "dasfprof" in thread.name]
    sockets, handlers = open_files("socket:"), _expects_comm.cache_info().currsize
    gc.collect()
    writers = sum(type(each) is TraceWriter for each in gc.get_objects())
    return sockets, handlers, writers, open_files("") - sockets, sorted(threads)


def disks(cluster: Processes) -> list[Path]:
    """Return where each worker writes its files."""
    root = f"root{cluster.directory}/traces"
    return [Path(f"/proc/{process.pid}/{root}") for process in cluster.running[1:3]]


@whole_program
def test_runs_leave_nothing_on_a_shared_cluster(
    cluster: Processes, client: Client, request: pytest.FixtureRequest
) -> None:
    traces = cluster.directory / "traces"

    def one_run(number: int) -> None:
        with dasfprof.profile(client, name=f"run{number}-", directory=traces) as run:
            assert client.submit(abs, -number, pure=False).result() == number
        assert len(computed(run)) == 1
        assert sum(map(was_received, run.files())) == 4
        for path in run.files():
            path.unlink()

    one_run(0)
    before = client.run(state_of_process), client.run_on_scheduler(state_of_process)
    preload_files = [set(disk.iterdir()) for disk in disks(cluster)]
    runs = 200 if request.config.getoption("--long") else 20
    for number in range(1, runs):
        one_run(number)
    assert [set(disk.iterdir()) for disk in disks(cluster)] == preload_files

    def is_as_before() -> bool:
        after = client.run(state_of_process), client.run_on_scheduler(state_of_process)
        pairs = [(before[1], after[1]), *((before[0][one], after[0][one]) for one in before[0])]
        # Dask keeps connections for reuse, and needs more of them on a busy machine. Two files in
        # /proc about a task's thread stay open after the preload has sampled the thread. Calls that
        # Dask remembers may keep the two writers of the run that ended last.
        return all(
            b[4] == a[4]
            and a[3] <= b[3] + 2
            and a[2] <= b[2] + 2
            and a[1] < b[1] + runs / 2
            and a[0] < b[0] + runs / 2
            for b, a in pairs
        )

    record.wait_until(is_as_before)
    assert client.run_on_scheduler(counted_requests) == {"dasfprof_receive"}


def counted_requests(dask_scheduler: Any) -> set[str]:
    """Return the names of dasfprof's requests that Dask has counted, which it never forgets."""
    counts = dask_scheduler.counters["op"].components
    return {name for each in counts for name in each if name.startswith("dasfprof")}


@whole_program
def test_files_of_killed_workers_are_fetched(cluster: Processes, client: Client) -> None:
    """A nanny restarts the worker, and the new process sends the killed one's remaining events."""
    victim, traces = min(client.nthreads()), cluster.directory / "traces"
    with dasfprof.profile(client, directory=traces, flush_interval=1000) as run:
        uuid = run._settings.uuid
        client.gather(client.map(abs, range(10), pure=False, workers=[victim]))
        # The worker is killed before it sends what `commit` wrote.
        (pid,) = client.run(write_and_stop_sending, uuid, workers=[victim]).values()
        os.kill(pid, signal.SIGKILL)
        record.wait_until(lambda: victim not in client.nthreads() and len(client.nthreads()) == 2)
    assert len([row for row in computed(run) if row["address"] == victim]) == 10


def write_and_stop_sending(run_uuid: str, dask_worker: Any) -> int:
    """Write events only to the worker's disk, and return the worker's process."""
    (plugin,) = (
        plugin for name, plugin in dask_worker.plugins.items() if f"{run_uuid}-Worker" in name
    )
    plugin.sender._over = True
    for part in plugin.parts:
        part.database.commit()
    return os.getpid()


@whole_program
def test_collect_copies_what_is_missing(cluster: Processes, client: Client, tmp_path: Path) -> None:
    client.gather(client.map(abs, range(10), pure=False))
    for _ in range(2):
        arguments = ["collect", str(cluster.scheduler_file), "-d", str(tmp_path)]
        told = CliRunner().invoke(cli, arguments)
        assert told.exit_code == 0, told.output
        (run,) = find_runs(tmp_path)
        assert told.output.startswith(f"{run.name}: {len(run.files)} files")
    assert sum(file.name.count("TracePlugin") for file in run.files) >= 2
    assert len(computed(SimpleNamespace(files=lambda: run.files))) >= 10
