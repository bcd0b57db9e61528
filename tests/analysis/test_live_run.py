"""A run's files are followed as they grow, and the running totals are those of the whole run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from traces import Plugin, row

from dasfprof.analysis.live import LiveRun
from dasfprof.analysis.live.counts import TaskCounts
from dasfprof.analysis.live.state import still_to_come
from dasfprof.analysis.trace import Trace
from dasfprof.database import FileDatabase, open_run
from dasfprof.database.following import FollowedFile, process_facts
from dasfprof.database.writer import Source
from dasfprof.errors import SourceNotFoundError
from dasfprof.report.terminal.live_view import pace_in_words, state_in_words
from dasfprof.schema.events import Schema
from dasfprof.schema.resources import MANAGED_MEMORY, RESOURCE_USAGE
from dasfprof.schema.steps import STEP, STEP_LAYER
from dasfprof.schema.tasks import COMPUTE, GRAPH, TASK_RUN, WORKER_ADDED, WORKER_REMOVED
from dasfprof.schema.under_way import SCHEDULER_STATE, STACK, TASK_UNDER_WAY

A, B = "tcp://10.0.0.1:4000", "tcp://10.0.0.1:4001"
KINDS = {
    "SchedulerPlugin": (TASK_RUN, GRAPH, SCHEDULER_STATE, WORKER_ADDED, WORKER_REMOVED),
    "TracePlugin": (COMPUTE, STACK, TASK_UNDER_WAY),
    "ResourceMonitor": (MANAGED_MEMORY, RESOURCE_USAGE),
    "StepRecorder": (STEP, STEP_LAYER),
}


@pytest.fixture(autouse=True)
def _files_are_closed() -> Iterator[None]:
    yield
    while Growing.opened:
        Growing.opened.pop().close()


class Growing:
    """A file of a plugin of this process, written piece by piece."""

    opened: ClassVar[list[FileDatabase]] = []

    def __init__(self, directory: Path, plugin: str, worker: str = A, **header: Any) -> None:
        directory.mkdir(exist_ok=True)
        facts: dict[str, Any] = {"plugin": plugin, "run": "run", "run_uuid": "1", **header}
        if plugin in ("TracePlugin", "ResourceMonitor"):
            facts["worker"] = {"name": worker[-1], "address": worker, "nthreads": 2}
            facts["worker"]["memory_limit"] = 1000
        self.path = directory / f"run-{plugin}-node-{worker[-4:]}.msgpack"
        self.database = FileDatabase(self.path, flush_interval=3600, header=facts)
        self.opened.append(self.database)
        self._sources = {kind: Source.of(kind) for kind in KINDS[plugin]}
        for source in self._sources.values():
            self.database.writer.start(source)

    def add(self, schema: Schema, *rows: dict[str, Any]) -> None:
        self._sources[schema].rows.extend(row(schema, **values) for values in rows)
        self.database.commit()


def run_of(key: Any, end: float, seconds: float, state: str = "memory", **more: Any) -> Any:
    return {
        "timestamp": end - seconds,
        "duration": seconds,
        "key": key,
        "state": state,
        "start": end - seconds,
        "stop": end,
        **more,
    }


def counts_of(live: LiveRun) -> dict[Any, tuple[int, int]]:
    return {(f.step, f.function): (f.done, f.failed) for f in live.read().functions}


def test_each_part_is_counted_once(tmp_path: Path) -> None:
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    file.add(TASK_RUN, *(run_of(("load-1", n), now, 1.0) for n in range(3)))
    live = LiveRun(tmp_path)
    assert counts_of(live) == {(None, "load"): (3, 0)}
    assert counts_of(live) == {(None, "load"): (3, 0)}
    file.add(TASK_RUN, run_of("sum-2", now, 1.0), run_of("sum-3", now, 1.0, state="erred"))
    # What has not ended for good is not counted: a task that goes back, one that was still open.
    file.add(TASK_RUN, *(run_of("sum-4", now, 1.0, state=s) for s in ("waiting", "processing")))
    assert counts_of(live) == {(None, "load"): (3, 0), (None, "sum"): (1, 1)}
    assert live.read().goes_on is True
    file.database.close()
    assert live.read().goes_on is False


def test_a_file_that_is_cut_anywhere_is_read_on_later(tmp_path: Path) -> None:
    """However a file's bytes arrive, each event is read once."""
    now = time.time()
    whole = Growing(tmp_path / "whole", "SchedulerPlugin")
    for part in range(3):
        whole.add(TASK_RUN, *(run_of((f"f{part}-1", n), now, 1.0) for n in range(5)))
    whole.database.close()
    data = whole.path.read_bytes()
    (tmp_path / "cut").mkdir()
    path = tmp_path / "cut" / whole.path.name
    for step in (1, 7, 100, 331):
        file = FollowedFile(path)
        path.write_bytes(b"")
        found = []
        for end in range(step, len(data) + step, step):
            with path.open("ab") as growing:
                growing.write(data[end - step : end])
            found += list(file.read({"Task Run": ("key",)}))
        assert [batch.rows for batch in found] == [5, 5, 5]
        assert file.closed
        assert file.header["plugin"] == "SchedulerPlugin"


def test_damage_is_passed_over(tmp_path: Path) -> None:
    file = Growing(tmp_path, "SchedulerPlugin")
    file.add(TASK_RUN, run_of("a-1", 1.0, 1.0))
    size = file.path.stat().st_size
    file.add(TASK_RUN, run_of("b-1", 1.0, 1.0))
    file.add(TASK_RUN, run_of("c-1", 1.0, 1.0))
    file.database.close()
    data = bytearray(file.path.read_bytes())
    data[size + 30] ^= 0xFF
    file.path.write_bytes(data)
    assert counts_of(LiveRun(tmp_path)) == {(None, "a"): (1, 0), (None, "c"): (1, 0)}


def test_files_that_appear_later_belong_to_the_run(tmp_path: Path) -> None:
    Growing(tmp_path, "SchedulerPlugin")
    live = LiveRun(tmp_path)
    assert live.read().workers == ()
    Growing(tmp_path, "ResourceMonitor", A).add(RESOURCE_USAGE, {"timestamp": 1.0, "memory": 500})
    Growing(tmp_path, "TracePlugin", B)
    Plugin(tmp_path / "x", "TracePlugin").write()  # of another directory
    other = Growing(tmp_path, "ResourceMonitor", "tcp://9.9.9.9:9999", run_uuid="other")
    state = live.read()
    assert [(worker.address, worker.memory) for worker in state.workers] == [(A, 500), (B, None)]
    assert other.path not in live.paths


def scheduler_state(time: float, **tasks: dict[str, int]) -> dict[str, Any]:
    return {"timestamp": time, "occasion": "interval", "tasks": tasks, "workers": []}


def test_unfinished_tasks_are_the_last_count_less_what_ended_since(tmp_path: Path) -> None:
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    live = LiveRun(tmp_path)
    file.add(TASK_RUN, *(run_of(("load-1", n), now - 5, 1.0) for n in range(4)))
    file.add(
        SCHEDULER_STATE,
        scheduler_state(now - 4, load={"processing": 4, "waiting": 10, "memory": 4}),
    )
    (load,) = live.read().functions
    assert (load.done, load.on_workers, load.waiting, load.total) == (4, 4, 10, 18)
    file.add(TASK_RUN, *(run_of(("load-1", n), now - 3, 1.0) for n in range(4, 10)))
    (load,) = live.read().functions
    assert (load.done, load.on_workers, load.waiting, load.total) == (10, 4, 4, 18)
    # The next count is written together with runs that ended before and after it.
    file.add(TASK_RUN, run_of(("load-1", 10), now - 2.5, 1.0), run_of(("load-1", 11), now, 1.0))
    file.add(SCHEDULER_STATE, scheduler_state(now - 2, load={"processing": 4, "queued": 3}))
    state = live.read()
    (load,) = state.functions
    assert (load.done, load.on_workers, load.waiting, load.total) == (12, 4, 2, 18)
    assert (state.done, state.total, state.total_is_bound) == (12, 18, False)


def test_time_left_weighs_functions_by_their_length(tmp_path: Path) -> None:
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    # Two threads for 20 s: 20 runs of a second, then 10 of two seconds.
    short = [run_of(("short-1", n), now - 20 + (n // 2) + 1, 1.0) for n in range(20)]
    long = [run_of(("long-1", n), now - 10 + 2 * (n // 2) + 2, 2.0) for n in range(10)]
    file.add(TASK_RUN, *short, *long)
    file.add(SCHEDULER_STATE, scheduler_state(now, long={"waiting": 20}, short={"waiting": 4}))
    state = LiveRun(tmp_path).read()
    assert state.seconds_left == pytest.approx((20 * 2 + 4 * 1) / 2, rel=0.1)
    # A trace of the run, read meanwhile, tells the same.
    worker, names = Growing(tmp_path, "TracePlugin"), ("timestamp", "duration", "key", "state")
    worker.add(COMPUTE, *({name: run[name] for name in names} for run in (*short, *long)))
    left = still_to_come(Trace.from_database(open_run(tmp_path)))
    assert left is not None
    assert (left.tasks, left.unknown) == (24, 0)
    assert left.seconds == pytest.approx((20 * 2 + 4 * 1) / 2, rel=0.1)
    file.add(SCHEDULER_STATE, scheduler_state(now + 0.1, new={"waiting": 20}))
    assert LiveRun(tmp_path).read().unknown_tasks == 20
    left = still_to_come(Trace.from_database(open_run(tmp_path)))
    assert left is not None
    assert (left.tasks, left.seconds, left.unknown) == (20, None, 20)
    for one in (file, worker):
        one.database.close()
    assert still_to_come(Trace.from_database(open_run(tmp_path))) is None


@pytest.mark.parametrize(("ago", "length", "quiet"), [(26.0, 0.5, True), (5.0, 0.5, False)])
def test_nothing_that_ends_is_no_pace(
    tmp_path: Path, ago: float, length: float, quiet: bool
) -> None:
    """26 s after the last end of tasks of half a second nobody knows when the rest is due."""
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    file.add(TASK_RUN, *(run_of(("f-1", n), now - ago - n / 10, length) for n in range(20)))
    file.add(SCHEDULER_STATE, {"timestamp": now, "tasks": {"f": {"processing": 2}}})
    state = LiveRun(tmp_path).read()
    words = list(pace_in_words(state))
    assert (state.quiet_for is not None) == quiet
    assert (state.seconds_left is None) == quiet
    assert ("no task has ended for" in words[0]) == quiet
    # Tasks of a minute may well not end for 26 s.
    file.add(TASK_RUN, run_of("long-1", now - 26.0, 60.0))
    assert LiveRun(tmp_path).read().quiet_for is None


def test_what_is_left_is_of_no_step_where_a_later_one_may_have_it(tmp_path: Path) -> None:
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    left = {"timestamp": now, "tasks": {"ok": {"waiting": 4}}}
    for number, step in enumerate(("first", "second")):
        stimulus = f"update-graph-{number}.5"
        file.add(GRAPH, {"timestamp": now, "tasks": 4, "stimulus": stimulus, "step": [step]})
        if not number:
            file.add(TASK_RUN, run_of("ok-1", now, 0.1, graph=stimulus))
        file.add(SCHEDULER_STATE, left)
        waiting = {(f.step, f.function): f.waiting for f in LiveRun(tmp_path).read().functions}
        assert waiting == [{("first", "ok"): 4}, {("first", "ok"): 0, (None, "ok"): 4}][number]


def test_a_scheduler_that_outlives_its_cut_file(tmp_path: Path) -> None:
    """Its process lives; workers of which it tells nothing more have closed their files."""
    file = Growing(tmp_path, "SchedulerPlugin")
    file.add(WORKER_ADDED, {"timestamp": 1.0, "worker": A, "nthreads": 2})
    worker = Growing(tmp_path, "TracePlugin", A)
    assert LiveRun(tmp_path).read().goes_on is True
    worker.database.close()
    state = LiveRun(tmp_path).read()
    assert state.goes_on is None
    assert "it may be cut" in state.notes[0]
    # One whose worker left waits for another.
    file.add(WORKER_REMOVED, {"timestamp": 2.0, "worker": A, "reason": "retire-workers"})
    assert LiveRun(tmp_path).read().goes_on is True


def test_steps_by_layer_and_by_graph(tmp_path: Path) -> None:
    token, now = "0123456789abcdef" * 2, time.time()
    client = Growing(tmp_path, "StepRecorder")
    client.add(STEP, {"id": 1, "parent": -1, "step": "load"}, {"id": 2, "parent": 1, "step": "x"})
    client.add(STEP_LAYER, {"id": 2, "layer": f"read-{token}"})
    file = Growing(tmp_path, "SchedulerPlugin")
    graph = {"timestamp": now, "tasks": 3, "stimulus": f"update-graph-{now}", "step": ["train"]}
    file.add(GRAPH, graph)
    stimulus = graph["stimulus"]
    file.add(
        TASK_RUN,
        run_of((f"read-{token}", 1), now, 1.0, graph=stimulus),
        run_of("fit-1", now, 1.0, graph=stimulus),
        run_of("fit-2", now, 1.0, graph="update-graph-1.5"),
    )
    assert counts_of(LiveRun(tmp_path)) == {
        ("load/x", "read"): (1, 0),
        ("train", "fit"): (1, 0),
        (None, "fit"): (1, 0),
    }


FRAMES = [
    ["main", "/usr/lib/python3.11/threading.py", 1002],
    ["_run", "/env/lib/python3.11/site-packages/distributed/worker.py", 3],
    ["fit", "/home/me/train.py", 12],
    ["wait", "/usr/lib/python3.11/threading.py", 331],
]


def under_way(key: Any, since: float, seen: float, **more: Any) -> dict[str, Any]:
    facts = {"timestamp": seen, "key": key, "state": "executing", "since": since, "stack": 7}
    return {**facts, **more}


def test_long_tasks_and_their_lines(tmp_path: Path) -> None:
    now = time.time()
    scheduler = Growing(tmp_path, "SchedulerPlugin")
    scheduler.add(TASK_RUN, *(run_of(("fit-1", n), now - 60, 5.0) for n in range(9)))
    worker = Growing(tmp_path, "TracePlugin")
    worker.add(STACK, {"number": 7, "frames": FRAMES})
    worker.add(
        TASK_UNDER_WAY,
        under_way(("fit-1", 20), now - 16, now - 1, waits_in="Event", waits_for="go"),
        under_way(("fit-1", 21), now - 11, now - 1),  # not three times the median
        under_way("first-1", now - 11, now - 1),  # no median
        under_way("first-2", now - 5, now - 1),  # too short
        under_way("over-1", now - 30, now - 5),
        under_way("forgotten-1", now - 300, now - 200),
    )
    live = LiveRun(tmp_path)
    found = {task.key: task for task in live.read().long_tasks}
    assert list(found) == ["over-1", "('fit-1', 20)", "first-1"]
    fit = found["('fit-1', 20)"]
    assert 16 <= fit.seconds < 21  # when it is read
    assert fit.median_seconds == pytest.approx(5, rel=0.1)
    assert fit.line == "/home/me/train.py:12 fit"
    assert fit.waits == "Event 'go'"
    assert found["first-1"].median_seconds is None
    # A task whose end is written is over; seen again after that end, it runs again.
    worker.add(
        COMPUTE, {"timestamp": now - 30, "duration": 28.0, "key": "over-1", "state": "memory"}
    )
    worker.add(
        COMPUTE, {"timestamp": now - 30, "duration": 5.0, "key": "first-1", "state": "erred"}
    )
    assert [task.key for task in live.read().long_tasks] == ["('fit-1', 20)", "first-1"]
    left = {"timestamp": now, "worker": A, "reason": "handle-worker-cleanup"}
    scheduler.add(WORKER_ADDED, {"timestamp": now - 99, "worker": A, "nthreads": 2})
    scheduler.add(WORKER_REMOVED, left)
    assert live.read().long_tasks == ()


def test_workers_and_their_threads(tmp_path: Path) -> None:
    now = time.time()
    scheduler = Growing(tmp_path, "SchedulerPlugin")
    added = {"timestamp": now - 9, "name": "far", "host": "10.0.0.9", "nthreads": 4}
    scheduler.add(WORKER_ADDED, {**added, "worker": "tcp://10.0.0.9:1", "memory_limit": 70})
    told = {"worker": "tcp://10.0.0.9:1", "status": "paused", "executing": 3, "memory": 60}
    state = {**scheduler_state(now), "workers": [{**told, "processing": 5}]}
    scheduler.add(SCHEDULER_STATE, state)
    monitor = Growing(tmp_path, "ResourceMonitor", A)
    monitor.add(MANAGED_MEMORY, {"timestamp": now, "executing": 1, "ready": 2, "state": "running"})
    monitor.add(RESOURCE_USAGE, {"timestamp": now, "memory": 400})
    state = LiveRun(tmp_path).read()
    assert (state.busy, state.threads) == (4, 6)
    far, near = sorted(state.workers, key=lambda worker: worker.name == "0")
    assert (far.name, far.status, far.busy, far.open_tasks) == ("far", "paused", 3, 5)
    assert (far.memory, far.memory_limit) == (60, 70)
    assert (near.status, near.busy, near.open_tasks) == ("running", 1, 3)
    assert (near.memory, near.memory_limit) == (400, 1000)


def test_without_the_schedulers_file_workers_files_tell(tmp_path: Path) -> None:
    now = time.time()
    for worker, keys in ((A, ("f-1", "f-2")), (B, ("f-3", "g-1"))):
        file = Growing(tmp_path, "TracePlugin", worker)
        runs = [{"timestamp": now, "duration": 1.0, "key": key, "state": "memory"} for key in keys]
        file.add(COMPUTE, *runs)
    state = LiveRun(tmp_path).read()
    assert {f.function: f.done for f in state.functions} == {"f": 3, "g": 1}
    assert (state.total, state.seconds_left) == (None, None)


def test_graphs_bound_the_total_where_nobody_counts(tmp_path: Path) -> None:
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    file.add(GRAPH, {"timestamp": now, "tasks": 10, "stimulus": "update-graph-1.5"})
    file.add(TASK_RUN, *(run_of(("f-1", n), now - 5 + n, 1.0) for n in range(5)))
    state = LiveRun(tmp_path).read()
    assert (state.total, state.total_is_bound) == (10, True)
    assert state.notes


def test_dead_writers_end_a_run(tmp_path: Path) -> None:
    """A header of a process that is gone: the run has ended, though no file is closed."""
    facts = {**process_facts(), "process_started": 1.0}
    file = Growing(tmp_path, "SchedulerPlugin", **facts)
    state = LiveRun(tmp_path).read()
    assert (state.goes_on, state.closed) == (False, False)
    assert state_in_words(state).startswith("was cut off")
    elsewhere = Growing(tmp_path / "far", "SchedulerPlugin", boot_id="another")
    assert LiveRun(tmp_path / "far").read().goes_on is None
    file.database.close()
    elsewhere.database.close()


def test_sources(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="no run in"):
        LiveRun(tmp_path)
    with pytest.raises(SourceNotFoundError, match="nothing"):
        LiveRun(tmp_path / "nothing")
    old = Growing(tmp_path, "SchedulerPlugin", run="old", run_uuid="0", run_created=1.0)
    new = Growing(tmp_path, "TracePlugin", run="new", run_uuid="1", run_created=2.0)
    assert LiveRun(tmp_path).name == "new"
    assert LiveRun(tmp_path / "old").paths == [old.path]
    assert LiveRun(new.path).paths == [new.path]
    assert LiveRun(f"{tmp_path}/*SchedulerPlugin*").paths == [old.path]


def as_array(values: Sequence[float]) -> Any:
    return np.array(values, dtype=float)


def test_medians_and_rates_against_the_values_themselves() -> None:
    generator = np.random.default_rng(1)
    counts = TaskCounts()
    all_seconds, all_ends = [], []
    for _ in range(50):
        seconds = generator.lognormal(0, 2, 200)
        ends = generator.uniform(1000, 1060, 200)
        rows = np.full(200, counts.number("s", "f"))
        counts.add(rows, np.ones(200, dtype=bool), ends - seconds, ends, seconds)
        all_seconds.append(seconds)
        all_ends.append(ends)
    seconds, ends = np.concatenate(all_seconds), np.concatenate(all_ends)
    assert counts.median_of("f") == pytest.approx(float(np.median(seconds)), rel=0.1)
    assert counts.means()[0] == pytest.approx(float(seconds.mean()))
    rates = counts.rates(1060.0)
    assert rates[0] == pytest.approx(((ends > 1030) & (ends <= 1060)).sum() / 30, rel=0.05)
    assert counts.median_of("g") is None


def test_names_beyond_all_measure_are_counted_together() -> None:
    counts = TaskCounts()
    for number in range(5000):
        row_number = np.array([counts.number(None, f"hostile{number}")])
        one = as_array([1.0])
        counts.add(row_number, np.array([True]), one, one, one)
    assert len(counts.rows) < 2100
    assert counts.done.sum() == 5000
