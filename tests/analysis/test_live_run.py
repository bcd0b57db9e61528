"""Files of a run are followed while they grow, and the scheduler's last totals are right."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from traces import row

from dasfprof.analysis.live import LiveRun
from dasfprof.database import FileDatabase
from dasfprof.database.following import FollowedFile, process_facts
from dasfprof.database.writer import Source
from dasfprof.errors import SourceNotFoundError
from dasfprof.report.terminal.live_view import pace_in_words, state_in_words
from dasfprof.schema.events import Schema
from dasfprof.schema.tasks import WORKER_REMOVED
from dasfprof.schema.under_way import SCHEDULER_STATE, STACK, TASK_UNDER_WAY

A, B = "tcp://10.0.0.1:4000", "tcp://10.0.0.1:4001"
KINDS = {"SchedulerPlugin": (SCHEDULER_STATE, WORKER_REMOVED), "ResourceMonitor": ()}
KINDS["TracePlugin"] = STACK, TASK_UNDER_WAY


@pytest.fixture(autouse=True)
def _files_are_closed() -> Iterator[None]:
    yield
    while Growing.opened:
        Growing.opened.pop().close()


class Growing:
    """File of a plugin in this process, which is written in pieces."""

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
        self._sources = {kind: Source.from_schema(kind) for kind in KINDS[plugin]}
        for source in self._sources.values():
            self.database.writer.start(source)

    def add(self, schema: Schema, *rows: dict[str, Any]) -> None:
        self._sources[schema].rows.extend(row(schema, **values) for values in rows)
        self.database.commit()


def scheduler_state(time: float, **more: Any) -> dict[str, Any]:
    return {"timestamp": time, "occasion": "interval", "tasks": {}, "finished": {}, **more}


def counts_of(live: LiveRun) -> dict[str, tuple[int, int]]:
    return {f.function: (f.done, f.failed) for f in live.read().functions}


def test_the_last_totals_hold(tmp_path: Path) -> None:
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    live = LiveRun(tmp_path)
    state = live.read()
    assert (state.goes_on, state.done, state.total, state.rate) == (True, None, None, 0.0)
    assert "Progress is unknown" in state.notes[0]
    tasks = {"load": {"processing": 4, "waiting": 10, "no-worker": 1, "memory": 3, "erred": 1}}
    file.add(SCHEDULER_STATE, scheduler_state(now - 1, tasks=tasks, finished={"load": [3, 1, 6.0]}))
    (load,) = live.read().functions
    assert (load.done, load.failed, load.on_workers, load.waiting) == (3, 1, 4, 11)
    assert (load.total, load.mean_seconds) == (19, 2.0)
    finished, late = {"load": [14, 1, 28.0], "sum": [0, 2, 0.0]}, {"late": {"queued": 5}}
    file.add(SCHEDULER_STATE, scheduler_state(now, tasks=late, finished=finished))
    assert counts_of(live) == {"load": (14, 1), "sum": (0, 2), "late": (0, 0)}
    state = live.read()
    assert (state.done, state.failed, state.waiting, state.total) == (14, 3, 5, 22)
    assert (state.goes_on, state.notes, state.unknown_tasks) == (True, (), 5)
    file.database.close()
    assert live.read().goes_on is False


def test_odd_totals_and_damage_are_passed_over(tmp_path: Path) -> None:
    file = Growing(tmp_path, "SchedulerPlugin")
    hostile = {"a": [1, 2], "b": "text", "c": [-5, "x", None], "d": [2, 0, 1.0]}
    tasks = {"a": 7, "d": {"processing": -1, "waiting": "many", "queued": 1}}
    file.add(SCHEDULER_STATE, scheduler_state(1.0, tasks=tasks, finished=hostile, workers=[7]))
    assert counts_of(LiveRun(tmp_path)) == {"c": (0, 0), "d": (2, 0)}
    size = file.path.stat().st_size
    file.add(WORKER_REMOVED, {"timestamp": 2.0, "worker": A, "reason": "x"})
    file.add(SCHEDULER_STATE, scheduler_state(3.0, finished={"a": [2, 0, 2.0]}))
    file.database.close()
    data = bytearray(file.path.read_bytes())
    data[size + 30] ^= 0xFF
    file.path.write_bytes(data)
    assert counts_of(LiveRun(tmp_path)) == {"a": (2, 0)}


def test_a_file_that_is_cut_anywhere_is_read_on_later(tmp_path: Path) -> None:
    """Each event is read once, however the file's bytes arrive."""
    now = time.time()
    whole = Growing(tmp_path / "whole", "SchedulerPlugin")
    for part in range(3):
        whole.add(WORKER_REMOVED, *({"timestamp": now, "worker": f"{part}.{n}"} for n in range(5)))
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
            found += list(file.read({WORKER_REMOVED.name: ("worker",)}))
        assert [batch.rows for batch in found] == [5, 5, 5]
        assert file.closed
        assert file.header["plugin"] == "SchedulerPlugin"


def test_time_left_weighs_functions_by_their_length(tmp_path: Path) -> None:
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    # Two threads: 20 tasks of a second, then 10 of two seconds. Before, there were no tasks.
    left = {"long": {"waiting": 20}, "short": {"waiting": 4}}
    states = [scheduler_state(now - 40), scheduler_state(now - 30)]
    for second in range(1, 21):
        finished = {"short": [min(2 * second, 20), 0, min(2.0 * second, 20.0)]}
        if second > 10:
            finished["long"] = [second - 10, 0, 2.0 * (second - 10)]
        states.append(scheduler_state(now - 20 + second, tasks=left, finished=finished))
    file.add(SCHEDULER_STATE, *states)
    state = LiveRun(tmp_path).read()
    assert state.seconds_left == pytest.approx((20 * 2 + 4 * 1) / 2, rel=0.1)
    assert state.rate == pytest.approx(30 / 20)
    assert state.began == pytest.approx(now - 20)
    new = scheduler_state(now + 0.1, tasks={"new": {"waiting": 20}}, finished=finished)
    file.add(SCHEDULER_STATE, new)
    state = LiveRun(tmp_path).read()
    assert (state.unknown_tasks, state.seconds_left) == (20, None)


def test_time_left_is_that_of_the_present_batch(tmp_path: Path) -> None:
    """An hour ago, tasks of the same function took 10 s each. Now they take half a second."""
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    file.add(
        SCHEDULER_STATE,
        scheduler_state(now - 9, tasks={"f": {"processing": 2}}, finished={"f": [98, 0, 980.0]}),
        scheduler_state(now - 8, finished={"f": [100, 0, 1000.0]}),
    )
    for second in range(7):
        left = {"f": {"waiting": 40 - 4 * second}}
        finished = {"f": [100 + 4 * second, 0, 1000 + 2.0 * second]}
        row = scheduler_state(now - 6 + second, tasks=left, finished=finished)
        file.add(SCHEDULER_STATE, row)
    state = LiveRun(tmp_path).read()
    assert state.seconds_left == pytest.approx(16 * 0.5 / 2, rel=0.1)
    assert state.functions[0].mean_seconds == 0.5


@pytest.mark.parametrize(("ago", "mean", "quiet"), [(26, 1, True), (5, 1, False), (26, 60, False)])
def test_no_time_left_if_nothing_ends(tmp_path: Path, ago: int, mean: float, quiet: bool) -> None:
    """26 s after the last task of one second ended, it is unknown when the others are due."""
    now = time.time()
    file = Growing(tmp_path, "SchedulerPlugin")
    for second in range(-ago - 4, 1, 1):
        done = 20 + min(second + ago, 0)
        row = {"tasks": {"f": {"processing": 2}}, "finished": {"f": [done, 0, mean * done]}}
        file.add(SCHEDULER_STATE, scheduler_state(now + second, **row))
    state = LiveRun(tmp_path).read()
    said = "no task has finished for" in next(pace_in_words(state))
    signs = state.quiet_for is not None, state.seconds_left is None, said, state.stands_still
    assert signs == (quiet,) * 4


def test_a_scheduler_that_outlives_its_cut_file(tmp_path: Path) -> None:
    """Its process is alive. Workers that it no longer records have closed their files."""
    file = Growing(tmp_path, "SchedulerPlugin")
    worker = Growing(tmp_path, "TracePlugin", A)
    assert LiveRun(tmp_path).read().goes_on is True
    worker.database.close()
    state = LiveRun(tmp_path).read()
    assert state.goes_on is None
    assert "may be truncated" in state.notes[0]
    # A task whose worker left waits for another worker.
    file.add(WORKER_REMOVED, {"timestamp": 2.0, "worker": A, "reason": "retire-workers"})
    assert LiveRun(tmp_path).read().goes_on is True


def under_way(key: Any, since: float, seen: float, **more: Any) -> dict[str, Any]:
    facts = {"timestamp": seen, "key": key, "state": "executing", "since": since, "stack": 7}
    return {**facts, **more}


def test_long_tasks_and_their_lines(tmp_path: Path) -> None:
    now = time.time()
    scheduler = Growing(tmp_path, "SchedulerPlugin")
    keys = ["('fit-1', 20)", "('fit-1', 21)", "first-1", "first-2", "forgotten-1"]

    def counted(seen: float, *keys: str) -> None:
        worker = {"worker": A, "name": "0", "threads": 4, "keys": list(keys)}
        row = scheduler_state(seen, workers=[worker], finished={"fit": [9, 0, 45.0]})
        scheduler.add(SCHEDULER_STATE, row)

    counted(now - 2, *keys)
    worker = Growing(tmp_path, "TracePlugin")
    threading = "/usr/lib/python3.11/threading.py"
    dask = "/env/lib/python3.11/site-packages/distributed/worker.py"
    of_dask = [["main", threading, 1002], ["_run", dask, 3]]
    own = [["fit", "/home/me/train.py", 12], ["wait", threading, 331]]
    stacks = (3, of_dask, -1), (7, own, 3)
    worker.add(STACK, *({"number": n, "frames": at, "parent": up} for n, at, up in stacks))
    worker.add(
        TASK_UNDER_WAY,
        under_way("forgotten-1", now - 300, now - 200),
        under_way(("fit-1", 20), now - 16, now - 1, waits_in="Event", waits_for="go"),
        under_way(("fit-1", 21), now - 11, now - 1),  # not three times the mean
        under_way("first-1", now - 11, now - 1),  # no mean
        under_way("first-2", now - 5, now - 1),  # too short
        under_way("over-1", now - 30, now - 5),  # the scheduler does not wait for it
    )
    live = LiveRun(tmp_path)
    state = live.read()
    found = {task.key: task for task in state.long_tasks}
    assert list(found) == ["('fit-1', 20)", "first-1"]
    fit = found["('fit-1', 20)"]
    assert 16 <= (fit.seconds or 0) <= 16 + time.time() - now  # when it is read
    assert (state.means[fit.function], fit.worker) == (5.0, "0")
    assert fit.activity.line == "/home/me/train.py:12 fit"
    assert fit.activity.call == "Event 'go'"
    assert found["first-1"].function not in state.means
    documents = {task["key"]: task for task in state.document()["long_tasks"]}
    assert documents[fit.key]["line"] == "/home/me/train.py:12 fit"
    assert [each["mean_seconds"] for each in documents.values()] == [5.0, None]
    counted(now - 1, "('fit-1', 20)")
    assert [task.key for task in live.read().long_tasks] == ["('fit-1', 20)"]
    left = {"timestamp": now, "worker": A, "reason": "handle-worker-cleanup"}
    scheduler.add(WORKER_REMOVED, left)
    assert live.read().long_tasks == ()


def test_workers_and_their_threads(tmp_path: Path) -> None:
    now = time.time()
    scheduler = Growing(tmp_path, "SchedulerPlugin")
    Growing(tmp_path, "TracePlugin", A, host="node")
    limit = {"threads": 4, "memory_limit": 70, "last_seen": now - 3}
    far = {"worker": "tcp://10.0.0.9:1", "name": "far", "status": "paused", "memory": 60, **limit}
    near = {"worker": A, "name": "0", "status": "running", "threads": 2, "last_seen": now}
    workers = [{**far, "processing": 5, "executing": 7}, {**near, "processing": 3, "executing": 1}]
    scheduler.add(SCHEDULER_STATE, scheduler_state(now, workers=workers))
    state = LiveRun(tmp_path).read()
    assert (state.busy, state.threads) == (5, 6)
    there, here = sorted(state.cluster.workers, key=lambda worker: worker.name == "0")
    facts = (there.name, there.host, there.status, there.busy, there.processing)
    assert facts == ("far", "10.0.0.9", "paused", 4, 5)
    assert (there.memory, there.memory_limit) == (60, 70)
    assert 3 <= there.silent <= 3 + time.time() - now
    assert (here.host, here.busy, here.processing, here.memory) == ("node", 1, 3, None)


def test_dead_writers_end_a_run(tmp_path: Path) -> None:
    """If the process in a header has ended, the run has ended, although no file is closed."""
    facts = {**process_facts(), "process_started": 1.0}
    Growing(tmp_path, "SchedulerPlugin", **facts)
    state = LiveRun(tmp_path).read()
    assert (state.goes_on, state.closed) == (False, False)
    assert state_in_words(state).startswith("was cut off")
    Growing(tmp_path / "far", "SchedulerPlugin", boot_id="another")
    assert LiveRun(tmp_path / "far").read().goes_on is None


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
    # Files that appear later belong to the run, unless they name another run.
    live = LiveRun(tmp_path / "new")
    later = Growing(tmp_path, "TracePlugin", B, run="new", run_uuid="1")
    other = Growing(tmp_path, "ResourceMonitor", "tcp://9.9.9.9:9999", run_uuid="other")
    live.read()
    assert later.path in live.paths and other.path not in live.paths
