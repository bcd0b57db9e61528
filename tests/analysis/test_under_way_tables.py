"""Tables of work in progress: the last snapshot of each task, with its stack."""

from pathlib import Path
from typing import Any

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


def at(seconds: float, key: str, **values: Any) -> tuple[Any, ...]:
    facts = {"timestamp": T + seconds, "key": key, "since": T, "stack": -1, **values}
    return row(TASK_UNDER_WAY, **facts)


def stacks_of(trace: Trace) -> dict[str, Any]:
    """Return the frames of each task in progress by key, None if they are unknown."""
    frames = [*trace.stacks["frames"], None]
    keys = trace.keys.texts(trace.under_way["key_id"].to_numpy())
    return {key: frames[number] for key, number in zip(keys, trace.under_way["stack"], strict=True)}


def test_stacks_are_those_of_their_own_file(tmp_path: Path) -> None:
    """Each file numbers its stacks from 0."""
    for name, line in (("a", 1), ("b", 2)):
        Plugin(tmp_path, name=name, address=f"tcp://10.0.0.1:400{line}").write(
            (STACK, [(T, 0, [["run", "x.py", 9]], -1), (T, 1, [["f", f"{name}.py", line]], -1)]),
            (TASK_UNDER_WAY, [at(1, f"f-{name}", stack=1), at(1, f"g-{name}", stack=7)]),
        )
    trace = Trace.from_database(tmp_path)
    frames = {f"f-{name}": (("f", f"{name}.py", line),) for name, line in (("a", 1), ("b", 2))}
    assert stacks_of(trace) == {**frames, "g-a": None, "g-b": None}
    assert len(trace.stacks) == 2  # those that are used


def test_stacks_begin_with_other_stacks(tmp_path: Path) -> None:
    main, call = ("main", "x.py", 9), ("f", "y.py", 3)
    stacks = [(T, 0, [[*main]], -1), (T, 1, [[*call]], 0), (T, 2, [["g", "z.py", 1]], 1)]
    lost = [(T, 4, [[*call]], 3), (T, 5, [[*call]], 5), (T, 6, [[*main], [*call]], -1)]
    keys = {"a-0": 0, "b-0": 2, "c-0": 4, "d-0": 5, "e-0": 1, "f-0": 6}
    under_way = [at(1, key, stack=number) for key, number in keys.items()]
    Plugin(tmp_path).write((STACK, [*stacks, *lost]), (TASK_UNDER_WAY, under_way))
    trace = Trace.from_database(tmp_path)
    assert stacks_of(trace) == {
        "a-0": (main,),
        "b-0": (main, call, ("g", "z.py", 1)),
        "c-0": None,  # the parent of its stack is missing
        "d-0": (call,),  # damaged: it would be its own parent
        "e-0": (main, call),
        "f-0": (main, call),
    }
    assert len(trace.stacks) == 4


def test_a_run_whose_end_the_scheduler_alone_knows_has_ended(tmp_path: Path) -> None:
    """Its worker was killed before it wrote the end."""
    told = {"worker": "tcp://10.0.0.1:4000", "timestamp": T}
    ended = {"state": "memory", "start": T + 0.5, "stop": T + 1.5, "duration": 1.6}
    lost = {"state": "released", "start": None, "stop": None, "duration": 3.0}
    under_way = [at(1, f"f-{n}", run_id=n) for n in (1, 2)]
    Plugin(tmp_path).write((TASK_UNDER_WAY, under_way), close=False)
    runs = [
        row(TASK_RUN, key=f"f-{n}", run_id=n, **told, **facts)
        for n, facts in ((1, ended), (2, lost))
    ]
    Plugin(tmp_path, "SchedulerPlugin").write((TASK_RUN, runs))
    assert stacks_of(Trace.from_database(tmp_path)).keys() == {"f-2"}


def test_last_row_of_each_run_that_has_not_ended(tmp_path: Path) -> None:
    under_way = [
        at(1, "ends-1", run_id=1),
        at(1, "hangs-1", run_id=2, state="executing"),
        at(3, "hangs-1", run_id=2, state="cancelled", waits_keys=["a-1", "b-1"]),
        at(2, "again-1", run_id=3),
    ]
    ended = [
        row(COMPUTE, timestamp=T, duration=2.0, key=key, run_id=number, state="memory")
        for key, number in (("ends-1", 1), ("again-1", 4))
    ]
    sample = row(LOOP_SAMPLE, timestamp=T + 9, since=T + 4, stack=-1, interval=0.05)
    Plugin(tmp_path).write((TASK_UNDER_WAY, under_way), (COMPUTE, ended), (LOOP_SAMPLE, [sample]))
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
    facts = {"occasion": "interval", "tasks": tasks, "unfinished": 3, "clients": clients}
    states = [row(SCHEDULER_STATE, timestamp=T + 1, **facts)]
    Plugin(tmp_path, "SchedulerPlugin").write((SCHEDULER_STATE, states))
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
