"""The normal form of a run: its task runs, clocks and workers, each fact worked out once."""

from __future__ import annotations

import gc
import pickle
import weakref
from pathlib import Path

import numpy as np
from traces import Plan, T, Task, made_trace
from traces.hung import hung

from dasfprof.analysis import Trace
from dasfprof.analysis.model.run import Run, once_per_run, run_of


def test_task_runs_that_had_not_ended_follow_those_that_had(tmp_path: Path) -> None:
    run = run_of(hung(ended=[("g-1", 1.0, 3.0)]).write(tmp_path).trace)
    assert run.ended.tasks["function"].tolist() == ["g"]
    assert run.all.tasks["function"].tolist() == ["g", "f"]
    assert run.open_tasks["state"].tolist() == ["running"]
    assert run.end is not None
    assert run.all.slots.times.start.tolist() == [1.0, 0.0]
    assert len(run.all) == 2


def test_unseen_task_runs_come_after_those_of_workers() -> None:
    seen = {"key": "f-1", "sent": 1.0, "start": 2.0, "duration": 1.0, "done": 3.0, "known": 4.0}
    lost = {"key": "g-1", "lost": True, "sent": 5.0, "start": 6.0, "stop": 8.0, "known": 9.0}
    run = run_of(made_trace([seen], scheduler_only=[lost]))
    assert len(run.ended) == 2
    assert run.ended.column("run_id").tolist() == [0, 0]
    assert (run.ended.slots.times.stop - run.ended.slots.times.start).tolist() == [1.0, 2.0]
    assert [run.ended.slots.functions[code] for code in run.ended.slots.function] == ["f", "g"]


def test_times_of_workers_are_on_the_clock_of_the_scheduler() -> None:
    # Sent at 1 and there at 9.5, done at 12.5 and known at 5: its clock is from 7.5 to 8.5 ahead.
    sent = {"key": "f-1", "sent": 1.0, "received": 9.5, "ready": 9.5, "executing": 9.5}
    ended = {"start": 10.0, "duration": 2.0, "done": 12.5, "known": 5.0}
    calls = [{"worker_id": 0, "start": 11.0, "duration": 1.0}]
    trace = made_trace([sent | ended], workers=[{"boot_id": "other"}], actor_calls=calls)
    run = run_of(trace)
    assert run.offsets.tolist() == [8.0, 0.0]
    assert run.at(trace.actor_calls, "start").tolist() == [3.0]
    assert run.since(T + 4.0) == 4.0
    assert run.ended.times.start.tolist() == [2.0]


def test_workers_have_names_and_lives(tmp_path: Path) -> None:
    plan = Plan([Task("f-1", 0, 1.0, 2.0), Task("f-2", 1, 1.0, 3.0)], hosts=("a", "b"))
    run = run_of(plan.write(tmp_path).trace)
    hosts = run.workers.hosts[run.workers.of_lives[run.all.slots.worker]]
    assert dict(zip(run.ended.tasks["duration"].tolist(), hosts, strict=True)) == {
        1.0: "a",
        2.0: "b",
    }
    assert run.labels.tolist() == run.trace.workers["worker"].tolist()
    assert len(run.all.lives.ids) == 2


def test_facts_are_kept_with_the_trace_and_no_trace_refers_to_itself() -> None:
    times_asked = 0

    @once_per_run
    def count(run: Run) -> int:
        nonlocal times_asked
        times_asked += 1
        return len(run.ended)

    trace = made_trace([{"key": "f-1", "start": 1.0, "duration": 1.0}])
    run = run_of(trace)
    assert run_of(run) is run
    assert run.ended.slots is run_of(trace).ended.slots
    assert run.workers is run_of(trace).workers
    assert [count(trace), count(run), count(run_of(trace))] == [1, 1, 1]
    assert times_asked == 1
    copy = pickle.loads(pickle.dumps(trace))
    assert np.array_equal(run_of(copy).ended.slots.end, run.ended.slots.end)
    known = weakref.ref(trace)
    gc.disable()
    try:
        del trace, run
        assert known() is None
    finally:
        gc.enable()


def test_a_run_without_task_runs(tmp_path: Path) -> None:
    Plan().write_files(tmp_path)
    run = run_of(Trace.from_database(tmp_path, progress=False))
    assert len(run.all) == len(run.ended) == 0
    assert run.ended.steps.codes.tolist() == []
    assert not run.ended.has_steps
