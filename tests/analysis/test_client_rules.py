"""The rules about what the client calls and sends: on the fault, and not on what looks alike."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from diagnosed_plans import found
from traces import Plan, Task, filled

from dasfprof.analysis.diagnosis import diagnose
from dasfprof.analysis.run import Run


def small_tasks(gap: float = 0.02) -> list[Task]:
    """Plan tasks of 1 ms on four threads, each of which waits for the next one."""
    tasks = []
    for number in range(400):
        turn, lane = divmod(number, 4)
        begin = turn * (0.001 + gap)
        worker, thread = divmod(lane, 2)
        key = f"load-{number}"
        # It is there all the time; the worker's loop takes so long for it.
        times = {"received": 0.0, "ready": 0.0, "executing": begin}
        one = Task(key, worker, begin + gap, begin + gap + 0.001, thread=thread, **times)
        tasks.append(one)
    return tasks


def asked(calls: int, receiving: float, waiting: float = 0.0, **more: Any) -> Plan:
    """Plan a run of 4 s whose results the client fetches in so many calls of a line."""
    facts = {"calls": calls, "keys": calls, "receiving": receiving, "waiting": waiting, **more}
    row = (0.0, receiving + waiting, "result", facts)
    return Plan(filled(["load"], 1.0), client_calls=[row])


def test_many_single_gathers(tmp_path: Path) -> None:
    finding = found(asked(1000, 2.0, waiting=1.0, received=28_000), tmp_path)["single-gathers"]
    assert finding["Severity"] == "high"
    assert finding["Seconds at stake (s)"] == pytest.approx(2.0 * 999 / 1000)
    assert "1,000 calls of result" in finding["Finding"]
    assert "2 ms each, most at /mine.py:7 main" in finding["Evidence"]
    assert "client.gather(list" in finding["Suggestion"]


@pytest.mark.parametrize(
    "plan",
    [
        asked(20, 2.0),  # few
        asked(1000, 2.0, keys=100_000),  # lists
        asked(1000, 0.1, waiting=3.0),  # it waits for them to be computed
        asked(1000, 2.0, deserialising=1.99),  # objects have to be made in any case
    ],
)
def test_gathers_that_look_alike(tmp_path: Path, plan: Plan) -> None:
    assert "single-gathers" not in found(plan, tmp_path)


def test_small_tasks_beside_single_gathers(tmp_path: Path) -> None:
    plan = Plan(small_tasks(0.01))
    alone = found(plan, tmp_path / "alone")["tasks-too-small"]
    plan.client_calls = asked(400, 1.0).client_calls
    findings = found(plan, tmp_path / "both")
    assert next(iter(findings)) == "single-gathers"
    small = findings.get("tasks-too-small")
    if small is not None:
        assert small["Cause"] == "single-gathers"
        assert small["Seconds at stake (s)"] < alone["Seconds at stake (s)"]


def test_large_results(tmp_path: Path) -> None:
    plan = asked(2, 2.0, waiting=2.0, received=1_600_000_000, deserialising=0.5)
    finding = found(plan, tmp_path)["large-results"]
    assert (finding["Severity"], finding["Seconds at stake (s)"]) == ("high", 2.0)
    assert "1.6 GB, for which it waits 2 s" in finding["Finding"]
    assert "/mine.py:7 main" in finding["Evidence"]


def test_results_that_take_longer_than_the_tasks(tmp_path: Path) -> None:
    """What comes after the last task is as long as it is, and no less for a short run."""
    plan = Plan(filled(["load"], 0.25))
    facts = {"keys": 20, "receiving": 9.0, "received": 1_600_000_000}
    plan.client_calls = [(1.0, 10.0, "gather", facts)]
    finding = found(plan, tmp_path)["large-results"]

    assert (finding["Severity"], finding["Seconds at stake (s)"]) == ("high", 9.0)


@pytest.mark.parametrize(
    "plan",
    [
        asked(2, 0.1, waiting=3.0, received=1_600_000_000),  # it is there at once
        asked(1000, 2.0, received=100_000_000),  # many small ones
        asked(2, 2.0, received=3_000_000),  # no bytes to speak of: something else is slow
    ],
)
def test_results_that_look_alike(tmp_path: Path, plan: Plan) -> None:
    assert "large-results" not in found(plan, tmp_path)


def named(seconds: float, tokenising: float, until: float = 0.0, call: str = "submit") -> Plan:
    """Plan a call that ends before all tasks, which occupy all threads, unless said."""
    facts = {"tokenising": tokenising, "line": 9}
    return Plan(
        filled(["load"], 1.0),
        client_calls=[(until - seconds, until, call, facts)],
        sent_values=[
            {
                **{"kind": "argument", "name": "load", "size": 80_000_000, "tasks": 1},
                **{"held": "numpy.ndarray", "file": "/mine.py", "line": 9, "seconds": 0.0},
            }
        ],
    )


def test_tokenising(tmp_path: Path) -> None:
    finding = found(named(2.0, 1.5), tmp_path)["tokenising"]
    assert (finding["Severity"], finding["Seconds at stake (s)"]) == ("high", 1.5)
    assert "1.5 s of that at /mine.py:9 main, in submit" in finding["Evidence"]
    assert "A numpy.ndarray of 80 MB was sent from there" in finding["Evidence"]
    assert finding["Suggestion"].startswith("Give pure=False or key= to submit()")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("frame = dd.from_pandas(table, npartitions=8)", "Have tasks read the table"),
        ("x = da.from_array(data, chunks=100)", "Give name=False to from_array()"),
        ("x = da.from_array(client.scatter(data))", "Give names that need no hashing"),
        (None, "Give names that need no hashing"),
    ],
)
def test_what_spares_hashing_is_of_what_hands_over(
    text: str | None, advice: str, tmp_path: Path
) -> None:
    trace = named(2.0, 1.5, call="tokenising").write(tmp_path).trace
    line = {"line": "mine.py:9", "file": "/mine.py", "number": 9, "text": text}
    trace = dataclasses.replace(trace, lines=pd.DataFrame([line]))
    findings = diagnose(Run.of(trace)).set_index("Rule")
    assert findings["Suggestion"]["tokenising"].startswith(advice)


def test_hashing_while_all_threads_are_busy_costs_nothing(tmp_path: Path) -> None:
    assert "tokenising" not in found(named(2.0, 1.5, until=3.0), tmp_path)


def test_submitting_for_long_is_not_tokenising(tmp_path: Path) -> None:
    assert "tokenising" not in found(named(2.0, 0.1), tmp_path)


def sent(size: int, tasks: int, **more: Any) -> list[dict[str, Any]]:
    usual = {"kind": "function", "name": "__main__.load", "why": "of __main__", "line": 3}
    facts = {"size": size, "seconds": 0.002, "tasks": tasks, "held": "global TABLE: dict"}
    return [{**usual, **facts, "file": "/mine.py", "code": "main", **more}]


@pytest.mark.parametrize(("held", "by_item"), [("builtins.dict", True), ("numpy.ndarray", False)])
def test_what_dask_scatters_item_by_item(tmp_path: Path, held: str, by_item: bool) -> None:
    """Of a dict of 3,000 entries scatter() takes as long as twenty tasks that have it by value."""
    values = sent(150_000, 400, kind="argument", name="load", held=held)
    finding = found(Plan(small_tasks(), sent_values=values), tmp_path)["sent-by-value"]

    assert ("scatter(pickle.dumps(object)" in finding["Suggestion"]) is by_item
    assert ("scatter([object]" in finding["Suggestion"]) is not by_item


def test_large_functions_by_value(tmp_path: Path) -> None:
    plan = Plan(small_tasks(), sent_values=sent(150_000, 400))
    findings = found(plan, tmp_path)
    assert next(iter(findings)) == "sent-by-value"
    finding = findings["sent-by-value"]
    # 20 ms for each task on four threads, of which 1 ms is what any takes at the scheduler.
    assert finding["Severity"] == "high"
    assert finding["Seconds at stake (s)"] == pytest.approx(400 * (0.020 / 4 - 0.001), rel=0.05)
    assert "__main__.load is sent by value (of __main__), 150 kB in each" in finding["Finding"]
    assert "60 MB" in finding["Finding"]
    assert "It holds global TABLE: dict" in finding["Evidence"]
    assert "/mine.py:3 main" in finding["Evidence"]
    small = findings.get("tasks-too-small")
    assert small is None or small["Cause"] == "sent-by-value"


@pytest.mark.parametrize(
    "values",
    [
        sent(20_000, 400),  # small
        sent(150_000, 1),  # of one task alone
        sent(60_000, 40),  # of few
    ],
)
def test_values_that_look_alike(tmp_path: Path, values: list[dict[str, Any]]) -> None:
    findings = found(Plan(small_tasks(), sent_values=values), tmp_path)
    assert "sent-by-value" not in findings
    assert "tasks-too-small" in findings


@pytest.mark.parametrize("other", [False, True])
def test_nothing_large_is_blamed_where_nothing_large_was_sent(tmp_path: Path, other: bool) -> None:
    """Unless another client's graphs came as well, of which nothing is known."""
    tasks = small_tasks()
    graphs = {"graphs": [0.0, 0.0], "clients": ["c", "of a worker"]} if other else {}
    plan = Plan(tasks, graphs_sent=[{"at": 0.0, "since": -0.1, "start": -0.1}], **graphs)
    finding = found(plan, tmp_path)["tasks-too-small"]

    assert "Their number alone does not explain" in finding["Suggestion"]
    assert ("No large values were sent" in finding["Suggestion"]) is not other
    assert ("scatter()" in finding["Suggestion"]) is other


def test_large_values_of_long_tasks(tmp_path: Path) -> None:
    """Handling takes next to no time: whoever looks for time need not look there."""
    plan = Plan(filled(["load"], 1.0), sent_values=sent(10_000_000, 16))
    assert "sent-by-value" not in found(plan, tmp_path)


def test_arguments_by_value(tmp_path: Path) -> None:
    values = sent(150_000, 400, kind="argument", name="load", held="numpy.ndarray")
    finding = found(Plan(small_tasks(), sent_values=values), tmp_path)["sent-by-value"]
    assert finding["Finding"].startswith("Arguments of load are sent by value, 150 kB in each of")
    assert "They are numpy.ndarray." in finding["Evidence"]
