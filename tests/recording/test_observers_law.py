"""Errors in the profiler never affect the computation: they are counted, and logged once.

Exceptions are injected below every hook of the plugins, into everything that they call. The cluster
shares this process, so that patches also apply to its workers.
"""

import gc
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import distributed.worker
import pytest
from clusters import new_client, wait_until
from distributed import Client, Reschedule
from independent_record import attempt
from recorded_facts import computed, read

import dasfprof
from dasfprof.database.blocks import BlockEncoder
from dasfprof.database.file import FileDatabase
from dasfprof.database.output import TraceOutput
from dasfprof.database.writer import TraceWriter
from dasfprof.recording.plugins.resources import HostDuty
from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
from dasfprof.recording.probes.gpu import GpuProbe
from dasfprof.recording.probes.host import ResourceProbe, WorkerProbe
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.task_runs.results import ResultDescriber
from dasfprof.recording.task_runs.task_notes import FlatNotes
from dasfprof.recording.task_runs.thread_time import RunQueue

#: Number of workers, and of recorders that can each log a first error: two per worker, one on the
#: scheduler, and one in the client's process.
WORKERS, RECORDERS = 2, 6
#: Threads of databases that earlier tests in this process have not closed.
EARLIER: set[threading.Thread] = set()
#: Dask's original functions.
RUN_TASK = distributed.worker._run_task_simple


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    EARLIER.update(threading.enumerate())
    with new_client(n_workers=WORKERS, threads_per_worker=1, processes=False) as client:
        yield client


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("injected")


def work(client: Client, directory: Path, name: str) -> list[Any]:
    """Call every hook of the plugins: graphs, transfers, errors, retries, steals."""
    first, second = client.nthreads()
    there = client.submit(bytes, 100, key=f"{name}-there", workers=[first])
    here = client.submit(bytes, 200, key=f"{name}-here", workers=[second])
    both = client.submit(lambda a, b: len(a + b), there, here, key=(f"{name}-both", 0))
    flaky = client.submit(attempt, directory / "a", 2, OSError, retries=3, key=f"{name}-flaky")
    again = client.submit(attempt, directory / "b", 2, Reschedule, key=f"{name}-again")
    bad = client.submit(lambda: 1 / 0, key=f"{name}-bad")
    results = client.gather([both, flaky, again])
    client.log_event("stealing", ("confirm", f"{name}-here", "ready", first, second, "steal-1.0"))
    with pytest.raises(ZeroDivisionError):
        bad.result()
    return results


EXPECTED = [300, 2, 2]

#: Functions that raise: names in classes, and in modules of `dasfprof.recording`, which a hook, a
#: probe or a writer calls.
OWNERS: dict[Any, str] = {
    RunQueue: "__init__ _open stop",
    RunSettings: "open_database",
    TraceWriter: "start",
    WorkerTaskPlugin: "_finished _succeeded _note_run",
    ResultDescriber: "__init__ __call__",
    FlatNotes: "__init__ fold _columns",
    SchedulerTaskPlugin: "add_worker _task_run _unfinished",
    HostDuty: "held release",
    ResourceProbe: "__init__ sample close",
    WorkerProbe: "__init__ sample",
    GpuProbe: "sample close",
    BlockEncoder: "extend payload",
    TraceOutput: "append",
    FileDatabase: "close",
    "plugins.worker_plugin": "worker_facts",
    "plugins.tasks": "listen availability observe time failed_run transfer",
    "plugins.scheduler": "time scheduler_notes",
    "plugins.resources": "fold_rows",
    "probes.host": "monotonic",
    "task_runs.task_notes": "run_queue_seconds _run_columns _task_run_columns _times",
    "task_runs.thread_time": "ThreadFile",
}
SITES = [(owner, name) for owner, names in OWNERS.items() for name in names.split()]

#: Functions whose errors cannot be counted: the file does not exist yet, or is being closed.
UNCOUNTED = {
    *("ResultDescriber.__init__", "FlatNotes.__init__", "worker_plugin.worker_facts"),
    *("tasks.availability", "RunSettings.open_database", "scheduler.scheduler_notes"),
    *("TraceWriter.start", "TraceOutput.append", "FileDatabase.close"),
}


def site_name(site: tuple[Any, str]) -> str:
    owner = site[0] if isinstance(site[0], str) else site[0].__name__
    return f"{owner.rpartition('.')[2]}.{site[1]}"


def on_cluster(client: Client) -> set[str]:
    """Return dasfprof's plugins and threads on the scheduler, on workers, and in this process."""
    left = {t.name for t in {*threading.enumerate()} - EARLIER if "dasfprof" in t.name}
    scheduler = client.cluster.scheduler
    left |= {name for name in (*scheduler.plugins, *scheduler.worker_plugins) if "dasfprof" in name}
    for worker in client.cluster.workers.values():
        left |= {name for name in worker.plugins if "dasfprof" in name}
        left |= {"_finalize_metrics"} & vars(worker).keys()
    if distributed.worker._run_task_simple is not RUN_TASK:
        left.add("_run_task_simple")
    return left


@pytest.mark.parametrize(
    "site",
    [
        pytest.param(site, id=site_name(site), marks=[pytest.mark.whole_program] * bool(number % 3))
        for number, site in enumerate(SITES)
    ],
)
def test_a_failure_inside_reaches_nobody(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    site: tuple[Any, str],
) -> None:
    caplog.set_level(logging.WARNING, "dasfprof")
    owner, attribute = site
    with monkeypatch.context() as patched:
        if isinstance(owner, str):
            patched.setattr(f"dasfprof.recording.{owner}.{attribute}", fail)
        else:
            patched.setattr(owner, attribute, fail)
        run = dasfprof.register_default_profiler(client, directory=tmp_path / "traces")
        assert work(client, tmp_path, site_name(site)) == EXPECTED
        run.stop()
    if site == (FileDatabase, "close"):  # the patched function would have ended the threads
        close_databases()
    wait_until(lambda: not on_cluster(client))  # threads may end a moment later
    files = [*map(read, run.files())]
    assert not any(file.damage for file in files)
    if site_name(site) not in UNCOUNTED:
        assert sum(file.errors for file in files) > 0
    for logger in ("dasfprof.recording.guard", "dasfprof.database.writer"):
        levels = [record.levelno for record in caplog.records if record.name == logger]
        assert len(levels) <= RECORDERS
        assert set(levels) <= {logging.WARNING}
    assert any(record.name.startswith("dasfprof.") for record in caplog.records)


def test_plugin_not_set_up(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dasfprof.recording.plugins.tasks.listen", fail)
    run = dasfprof.register_default_profiler(client, directory=tmp_path)
    client.gather(client.map(abs, range(20), key=[("collects-nothing", i) for i in range(20)]))
    worker = client.cluster.workers[0]
    (plugin,) = (p for name, p in worker.plugins.items() if name.endswith("-WorkerProfiler"))
    assert plugin.recorder._source.rows == []
    run.stop()


def close_databases() -> None:
    for database in [one for one in gc.get_objects() if isinstance(one, FileDatabase)]:
        database.close()


#: Calls with wrong arguments. The first two are for a worker's plugin.
GARBAGE = [
    ("transition", (None, "released", "rescheduled"), {}),
    ("transition", ([], "released", "waiting"), {}),
    ("transition", ("no such key", "waiting", "processing"), {}),
    ("transition", ([], "waiting", "queued"), {"surprise": 1}),
    ("update_graph", (None,), {"tasks": None, "keys": 3}),
    ("log_event", ("stealing", ("confirm",)), {}),
    ("log_event", ("stealing", ()), {}),
    ("add_worker", (None, None), {}),
    ("remove_worker", (None, None), {"stimulus_id": 3}),
]


def test_hooks_take_anything(client: Client, tmp_path: Path) -> None:
    run = dasfprof.register_default_profiler(client, directory=tmp_path)
    plugins = client.cluster.scheduler.plugins | client.cluster.workers[0].plugins
    (of_worker,) = (each for name, each in plugins.items() if name.endswith("WorkerProfiler"))
    (of_scheduler,) = (each for name, each in plugins.items() if name.endswith("SchedulerPlugin"))
    for number, (hook, args, kwargs) in enumerate(GARBAGE):
        plugin = of_worker if number < 2 else of_scheduler
        assert getattr(plugin, hook)(*args, **kwargs) is None
    assert client.submit(abs, -1, key="after-all-hooks").result() == 1
    run.stop()
    assert sum(read(path).errors for path in run.files()) == len(GARBAGE)
    assert "after-all-hooks" in {row["key"] for row in computed(run)}


def test_nothing_stays_after_stop(client: Client, tmp_path: Path) -> None:
    work(client, tmp_path, "stays-0")
    descriptors, objects = open_files(), recorders()
    for round_ in range(2):
        directory = tmp_path / f"{round_}"
        run = dasfprof.register_default_profiler(client, directory=directory)
        assert on_cluster(client)
        work(client, directory, f"stays-{round_ + 1}")
        run.stop()
        wait_until(lambda: not on_cluster(client))
    wait_until(lambda: not open_files() - descriptors)
    wait_until(lambda: recorders() <= objects)


def open_files() -> Counter[str]:
    """Return the open files of this process, without connections, which Dask keeps for reuse."""
    found: Counter[str] = Counter()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it may have been closed
            found[os.readlink(descriptor).partition(":[")[0]] += 1
    del found["socket"]
    return found


def recorders() -> int:
    """Return the number of recording objects that are alive."""
    gc.collect()
    types = (WorkerTaskPlugin, SchedulerTaskPlugin, FlatNotes, RunQueue, HostDuty)
    return sum(isinstance(one, types) for one in gc.get_objects())


class Wrapper:
    """Another profiler, which wraps the same method of the worker."""

    def __init__(self, worker: Any) -> None:
        self.below = worker._finalize_metrics
        self.calls = 0
        worker._finalize_metrics = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.below(*args, **kwargs)


@pytest.mark.parametrize("below", [True, False])
def test_a_wrapper_below_or_above_ours(below: bool, client: Client, tmp_path: Path) -> None:
    worker = client.cluster.workers[0]
    other = Wrapper(worker) if below else None
    run = dasfprof.register_default_profiler(client, directory=tmp_path)
    other = other or Wrapper(worker)
    try:
        client.submit(abs, -1, key=f"both-{below}", workers=[worker.address]).result()
        assert other.calls == 1
        run.stop()
        assert worker._finalize_metrics is other
        client.submit(abs, -1, key=f"theirs-{below}", workers=[worker.address]).result()
        assert other.calls == 2
    finally:
        del worker._finalize_metrics
    assert [row["key"] for row in computed(run)] == [f"both-{below}"]


def test_dask_s_own_metrics_are_the_same(client: Client, tmp_path: Path) -> None:
    """The profiler does not change the metrics of the worker."""
    seen: list[Any] = []
    workers = list(client.cluster.workers.values())
    digest = type(workers[0]).digest_metric

    def labels(name: str) -> set[Any]:
        seen.clear()
        client.submit(abs, -1, key=name).result()
        wait_until(lambda: any("other" in label for label in seen))
        return {label[3:] for label in seen if isinstance(label, tuple) and label[0] == "execute"}

    def spy(self: Any, name: Any, value: float) -> None:
        seen.append(name)
        digest(self, name, value)

    for worker in workers:
        worker.digest_metric = spy.__get__(worker)
    try:
        without = labels("metric-0")
        with dasfprof.profile(client, directory=tmp_path):
            assert labels("metric-1") == without
    finally:
        for worker in workers:
            del worker.digest_metric
