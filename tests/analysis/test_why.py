"""Why a task ran there: choices against the scheduler's own, against figures worked out by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import placement_rates as rates
import pytest
from distributed import Client
from traces import Plan, Task

from dasfprof import TraceAnalyser
from dasfprof.errors import InvalidArgumentError

#: Of the choices of a program, those that may differ: what the record cannot tell is no constant.
MOST_OTHER = 0.1


@pytest.mark.parametrize(
    "program", [rates.stolen, rates.restricted, rates.large_group, rates.shuffle, rates.uneven]
)
def test_choices_are_those_of_the_scheduler(
    program: Callable[[Client], None], tmp_path: Path
) -> None:
    analyser, watched = rates.recorded(program, tmp_path)
    address = analyser.trace.workers["address"]
    said: Counter[str] = Counter()
    followed = alike = compared = 0
    for key, decisions in rates.choices_of(analyser).items():
        said += Counter(one.agreement for one in decisions)
        sent = [one for one in decisions if one.victim < 0]
        for one, (rule, where) in zip(sent, watched.choices[key], strict=True):
            # What the scheduler itself says of each worker that it looked at.
            assert address[one.worker] == where
            followed += one.rule in rates.METHODS[rule]
            for candidate in one.candidates:
                work, missing, _ = watched.costs[key][address[candidate.worker]]
                compared += 1
                alike += candidate.missing == missing and abs(candidate.occupancy - work) < 1e-3
    choices = sum(said.values())
    assert choices >= len(analyser.trace.tasks)
    assert said["untold"] <= MOST_OTHER * choices
    assert said["other"] <= MOST_OTHER * choices
    assert followed >= (1 - MOST_OTHER) * sum(map(len, watched.choices.values()))
    # Of large copies the scheduler hears at a moment that is not recorded.
    assert alike >= (0.2 if program is rates.uneven else 0.6) * compared
    if program is rates.stolen:
        stolen = analyser.trace.tasks["stolen"].notna()
        assert choices - sum(map(len, watched.choices.values())) == len(analyser.trace.steals)
        (key, *_) = analyser.trace.keys.texts(analyser.trace.tasks["key_id"][stolen].to_numpy())
        table = analyser.why(key)
        assert "waits on another worker" in table["What"].tolist()
        assert table["What"].tolist().count("stolen") >= 1


# --- By hand --------------------------------------------------------------------------------------

#: As a plan's workers are called.
FIRST, SECOND = "worker-node1-0", "worker-node1-1"


def one_input(*more: Task, transfers: bool = True) -> Plan:
    """``take-0`` waits for a thread of the worker with its input, 10 MB, while the other is idle.

    Bytes take 0.1 s for 10 MB, less 1 ms that messages take.
    """
    tasks = [
        Task("make-0", 0, 0.0, 1.0, size=10_000_000),
        Task("busy-0", 0, 1.0, 3.0, sent=0.5, received=0.5, ready=0.5),
        Task("take-0", 0, 3.0, 4.0, sent=1.1, received=1.1, ready=1.1, dependencies=["make-0"]),
        Task("last-0", 1, 5.0, 6.0, sent=5.0),
        *more,
    ]
    moved = [(0, 4.5, 4.6, 10_000_000, ["last-0"])] if transfers else []
    return Plan(tasks, threads=1, transfers=moved)


def of(table: pd.DataFrame, what: str) -> pd.DataFrame:
    return table[table["What"] == what].reset_index(drop=True)


def test_parts_touch_and_say_what_it_waited_for(tmp_path: Path) -> None:
    table = one_input().write(tmp_path).why("take-0")
    parts = table[table["Seconds"].notna()]
    assert parts["What"].tolist() == ["waits for inputs", "waits for a thread", "runs"]
    assert parts["From (s)"].round(6).tolist() == [0.0, 1.1, 3.0]
    assert parts["Seconds"].round(6).tolist() == [1.1, 1.9, 1.0]
    assert parts["Worker"].tolist() == ["scheduler", FIRST, FIRST]
    inputs, thread, _ = parts["Why"]
    assert "make-0 came last" in inputs and f"from {FIRST} at 1.000 s" in inputs
    assert thread == "Until busy-0 gave one back."


def test_where_it_would_have_begun_sooner(tmp_path: Path) -> None:
    table = one_input().write(tmp_path).why("take-0")
    (chosen,) = of(table, "chosen").to_dict("records")
    assert chosen["Worker"] == FIRST and f"By it {FIRST} is the choice" in chosen["Why"]
    (other,) = of(table, "not considered").to_dict("records")
    # Sent at 1.1 s and 0.1 s under way, it would have begun at 1.2 s instead of 3.
    assert other["Worker"] == SECOND
    assert other["Sooner (s)"] == pytest.approx(1.8, abs=0.01)
    assert "1.8 s sooner" in other["Why"]


def test_where_processes_of_a_run_have_different_settings(tmp_path: Path) -> None:
    """As a client whose own schedulers are recorded beside a cluster's: the default counts."""
    plan = one_input()
    plan.settings = {"distributed.scheduler.worker-saturation": "inf / 1.0"}
    told = plan.write(tmp_path / "different").why("take-0")
    pd.testing.assert_frame_equal(told, one_input().write(tmp_path / "default").why("take-0"))


@pytest.mark.parametrize(
    ("more", "sooner"),
    [
        ([Task("busy-1", 1, 1.0, 2.0)], 1.0),
        ([Task("busy-1", 1, 1.0, 2.9), Task("next-0", 1, 2.9, 4.0, sent=1.5, received=1.5)], None),
        ([Task("busy-1", 1, 1.0, 3.5)], None),
    ],
    ids=["once free", "another waits", "never free"],
)
def test_sooner_takes_a_free_thread(more: list[Task], sooner: float | None, tmp_path: Path) -> None:
    table = of(one_input(*more).write(tmp_path).why("take-0"), "not considered")
    assert table["Sooner (s)"].tolist() == ([] if sooner is None else [pytest.approx(sooner)])


def test_sooner_is_unknown_where_no_transfer_tells_its_time(tmp_path: Path) -> None:
    table = one_input(transfers=False).write(tmp_path).why("take-0")
    assert not len(of(table, "not considered"))


def two_inputs(worker: int) -> Plan:
    """The first worker holds 10 MB of its inputs and has 2 s to do, the other holds 1 MB."""
    tasks = [
        Task("busy-0", 0, 0.0, 1.0),
        Task("large-0", 0, 1.0, 1.2, size=10_000_000),
        Task("small-0", 1, 1.0, 1.4, size=1_000_000),
        Task("busy-1", 0, 1.2, 2.2, sent=1.05, received=1.05, ready=1.05),
        Task("busy-2", 0, 2.2, 3.2, sent=1.1, received=1.1, ready=1.1),
        Task("take-0", worker, 3.5, 4.0, sent=1.5, dependencies=["large-0", "small-0"]),
    ]
    return Plan(tasks, threads=1)


def test_what_the_scheduler_knew_of_each_worker(tmp_path: Path) -> None:
    table = two_inputs(1).write(tmp_path).why("take-0")
    (chosen,), (other,) = (
        of(table, each).to_dict("records") for each in ("chosen", "could choose")
    )
    # 10 MB at Dask's 100 MB/s; two tasks of a function that took 1 s, and 1 MB.
    assert [chosen[name] for name in ("Tasks There", "Work There (s)", "To Move (MB)")] == [
        0,
        0,
        10,
    ]
    assert chosen["Expected Wait (s)"] == pytest.approx(0.1)
    assert [other[name] for name in ("Tasks There", "Work There (s)", "To Move (MB)")] == [2, 2, 1]
    assert other["Expected Wait (s)"] == pytest.approx(2.01)
    assert f"By it {SECOND} is the choice, as was done." in chosen["Why"]


def test_a_choice_that_differs_is_said_to(tmp_path: Path) -> None:
    table = two_inputs(0).write(tmp_path).why("take-0")
    (words,) = of(table, "chosen")["Why"]
    assert f"By it {SECOND} would be the choice" in words


@pytest.mark.parametrize("asked", [{"workers": ["tcp://10.0.0.1:4001"]}, {"resources": {"GPU": 1}}])
def test_what_it_asked_for(asked: dict[str, object], tmp_path: Path) -> None:
    plan = two_inputs(1)
    plan.tasks[-1].annotations = asked
    analyser = plan.write(tmp_path)
    (words,) = of(analyser.why("take-0"), "chosen")["Why"]
    if "resources" in asked:  # a plan's workers have none
        assert "cannot be recomputed: no worker was there that it may run on" in words
        assert not len(of(analyser.why("take-0"), "not considered"))
        assert "It asked for GPU 1." in words
    else:
        assert "It asked for workers tcp://10.0.0.1:4001." in words


def test_a_key_is_one_that_ran(tmp_path: Path) -> None:
    analyser: TraceAnalyser = two_inputs(1).write(tmp_path)
    assert len(analyser.why("tak")) == len(analyser.why("take-0"))
    with pytest.raises(InvalidArgumentError, match="3 keys begin so"):
        analyser.why("busy")
    with pytest.raises(InvalidArgumentError, match="no task run has it"):
        analyser.why("nothing")
    with pytest.raises(InvalidArgumentError, match="with run_id=77"):
        analyser.why("take-0", run_id=77)


def test_resources_that_an_older_trace_does_not_tell(tmp_path: Path) -> None:
    plan = two_inputs(1)
    plan.tasks[-1].annotations = {"resources": {"GPU": 1}}
    analyser = plan.write(tmp_path)
    analyser.trace.workers["resources"] = None
    (words,) = of(analyser.why("take-0"), "chosen")["Why"]
    assert "cannot be recomputed: the workers' resources were not recorded" in words
