"""What is recorded of work under way becomes tables: the last of each task, with its stack."""

from __future__ import annotations

from pathlib import Path

from traces import Plan, Plugin, T, Task, row

from dasfprof import TraceAnalyser
from dasfprof.analysis.trace import Trace
from dasfprof.database.ends import End
from dasfprof.schema.profiles import LOOP_SAMPLE
from dasfprof.schema.tasks import COMPUTE, TASK_RUN
from dasfprof.schema.under_way import (
    CLIENT_UNDER_WAY,
    SCHEDULER_STATE,
    STACK,
    TASK_UNDER_WAY,
)


def at(seconds: float, key: str, **values: object) -> tuple[object, ...]:
    return row(TASK_UNDER_WAY, timestamp=T + seconds, key=key, since=T, stack=-1, **values)


def test_stacks_are_those_of_their_own_file(tmp_path: Path) -> None:
    """Each file numbers its stacks from 0."""
    for name, line in (("a", 1), ("b", 2)):
        Plugin(tmp_path, name=name, address=f"tcp://10.0.0.1:400{line}").write(
            (STACK, [(T, 0, [["run", "x.py", 9]], -1), (T, 1, [["f", f"{name}.py", line]], -1)]),
            (
                TASK_UNDER_WAY,
                [
                    row(TASK_UNDER_WAY, timestamp=T + 1, key=f"f-{name}", stack=1, since=T),
                    row(TASK_UNDER_WAY, timestamp=T + 1, key=f"g-{name}", stack=7, since=T),
                ],
            ),
        )
    trace = Trace.from_database(tmp_path)
    keys = trace.keys.texts(trace.under_way["key_id"].to_numpy())
    stacks = dict(zip(keys, trace.under_way["stack"], strict=True))
    for name, line in (("a", 1), ("b", 2)):
        frames = trace.stacks["frames"][stacks[f"f-{name}"]]
        assert frames == (("f", f"{name}.py", line),)
        assert stacks[f"g-{name}"] == -1
    assert len(trace.stacks) == 2  # those that something refers to


def test_stacks_begin_with_other_stacks(tmp_path: Path) -> None:
    main, call = ["main", "x.py", 9], ["f", "y.py", 3]
    stacks = [(T, 0, [main], -1), (T, 1, [call], 0), (T, 2, [["g", "z.py", 1]], 1)]
    lost = [(T, 4, [call], 3), (T, 5, [call], 5), (T, 6, [main, call], -1)]
    keys = {"a-0": 0, "b-0": 2, "c-0": 4, "d-0": 5, "e-0": 1, "f-0": 6}
    Plugin(tmp_path).write(
        (STACK, [*stacks, *lost]),
        (
            TASK_UNDER_WAY,
            [
                row(TASK_UNDER_WAY, timestamp=T + 1, key=key, stack=number, since=T)
                for key, number in keys.items()
            ],
        ),
    )
    trace = Trace.from_database(tmp_path)
    names = trace.keys.texts(trace.under_way["key_id"].to_numpy())
    found = dict(zip(names, trace.under_way["stack"], strict=True))
    frames = [*trace.stacks["frames"], None]
    whole = {key: frames[found[key]] for key in keys}
    first, second = tuple(main), tuple(call)
    assert whole["a-0"] == (first,)
    assert whole["b-0"] == (first, second, ("g", "z.py", 1))
    assert whole["c-0"] is None  # the stack that it begins with is lost
    assert whole["d-0"] == (second,)  # damaged: it would be its own
    assert whole["e-0"] == whole["f-0"] == (first, second)
    assert found["e-0"] == found["f-0"]


def test_a_run_whose_end_the_scheduler_alone_knows_has_ended(tmp_path: Path) -> None:
    """Its worker was killed before it had written that."""
    told = {"worker": "tcp://10.0.0.1:4000", "timestamp": T}
    ended = {"state": "memory", "start": T + 0.5, "stop": T + 1.5, "duration": 1.6}
    lost = {"state": "released", "start": None, "stop": None, "duration": 3.0}
    Plugin(tmp_path).write(
        (TASK_UNDER_WAY, [at(1, "f-1", run_id=1), at(1, "f-2", run_id=2)]), close=False
    )
    Plugin(tmp_path, "SchedulerPlugin").write(
        (
            TASK_RUN,
            [
                row(TASK_RUN, key="f-1", run_id=1, **told, **ended),
                row(TASK_RUN, key="f-2", run_id=2, **told, **lost),
            ],
        )
    )
    trace = Trace.from_database(tmp_path)
    assert trace.keys.texts(trace.under_way["key_id"].to_numpy()).tolist() == ["f-2"]


def test_last_row_of_each_run_that_has_not_ended(tmp_path: Path) -> None:
    Plugin(tmp_path).write(
        (
            TASK_UNDER_WAY,
            [
                at(1, "ends-1", run_id=1),
                at(1, "hangs-1", run_id=2, state="executing"),
                at(3, "hangs-1", run_id=2, state="cancelled", waits_keys=["a-1", "b-1"]),
                at(2, "again-1", run_id=3),
            ],
        ),
        (
            COMPUTE,
            [
                row(COMPUTE, timestamp=T, duration=2.0, key="ends-1", run_id=1, state="memory"),
                row(COMPUTE, timestamp=T, duration=2.0, key="again-1", run_id=4, state="memory"),
            ],
        ),
        (LOOP_SAMPLE, [row(LOOP_SAMPLE, timestamp=T + 9, since=T + 4, stack=-1, interval=0.05)]),
    )
    trace = Trace.from_database(tmp_path)
    table = trace.under_way
    assert trace.keys.texts(table["key_id"].to_numpy()).tolist() == ["again-1", "hangs-1"]
    assert table["state"].tolist()[1] == "cancelled"
    assert trace.keys.texts(list(table["waits_keys"][1])).tolist() == ["a-1", "b-1"]
    assert table["waits_keys"][0] == ()
    assert len(trace.under_way_history) == 4
    assert trace.loop_samples["since"].tolist() == [T + 4]
    assert trace.end == T + 9


def test_states_of_scheduler_and_client(tmp_path: Path) -> None:
    tasks = {"f": {"processing": 2, "waiting": 1}}
    clients = [{"client": "c", "wanted": 3, "keys": ["f-1"]}]
    Plugin(tmp_path, "SchedulerPlugin").write(
        (
            SCHEDULER_STATE,
            [
                row(
                    SCHEDULER_STATE,
                    timestamp=T + 1,
                    occasion="interval",
                    tasks=tasks,
                    unfinished=3,
                    clients=clients,
                )
            ],
        )
    )
    Plugin(tmp_path, "StepRecorder").write(
        (STACK, [(T, 0, [["main", "script.py", 3]], -1)]),
        (CLIENT_UNDER_WAY, [row(CLIENT_UNDER_WAY, timestamp=T + 2, client="c", since=T, stack=0)]),
    )
    trace = Trace.from_database(tmp_path)
    (state,) = trace.scheduler_states.to_dict("records")
    assert (state["tasks"], state["unfinished"]) == (tasks, 3)
    assert state["clients"][0]["keys"] in (("f-1",), ["f-1"])
    (client,) = trace.clients_under_way.to_dict("records")
    assert client["client"] == "c"
    assert trace.stacks["frames"][client["stack"]] == (("main", "script.py", 3),)
    assert set(trace.workers["kind"]) == {"scheduler"}


def test_how_recording_ended(tmp_path: Path) -> None:
    whole = Plan([Task("f-1", 0, 0.0, 1.0)]).write(tmp_path / "whole").trace
    assert whole.recording is End.CLOSED
    plan = Plan([Task("f-1", 0, 0.0, 1.0)], killed=[0])
    assert plan.write(tmp_path / "killed").trace.recording is End.CLOSED
    Plugin(tmp_path / "cut", "SchedulerPlugin").write(
        (SCHEDULER_STATE, [row(SCHEDULER_STATE, timestamp=T)]), close=False
    )
    assert Trace.from_database(tmp_path / "cut").recording is End.UNKNOWN
    assert len(TraceAnalyser(tmp_path / "cut", progress=False).diagnose()) >= 0
