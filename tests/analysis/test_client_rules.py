"""Rules about client calls and embedded objects: they find faults, but not similar healthy runs."""

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from diagnosed_plans import Cases, assert_found, found
from traces import Plan, Task, filled

from dasfprof.analysis.diagnosis import diagnose
from dasfprof.analysis.run import Run


def small_tasks(gap: float = 0.02) -> list[Task]:
    """Plan tasks of 1 ms on four threads, each of which waits for the next one."""
    tasks = []
    for number in range(400):
        begin = number // 4 * (0.001 + gap)
        worker, thread = divmod(number % 4, 2)
        # The task is on the worker for all that time, because its event loop is slow.
        times = {"received": 0.0, "ready": 0.0, "executing": begin, "thread": thread}
        tasks.append(Task(f"load-{number}", worker, begin + gap, begin + gap + 0.001, **times))
    return tasks


def one_in_transit(gap: float = 0.0) -> Plan:
    """Plan ten tasks of 0.1 s on two threads, each in transit for 0.2 s after the previous one.

    Before that, its graph is in transit, while the client waits in one of ten calls of a line.
    """
    tasks = []
    for number in range(10):
        begin = gap + (gap + 0.3) * number
        times = {"arrival": begin, "runnable": begin, "sent": begin, "received": begin + 0.2}
        tasks.append(Task(f"load-{number}", number % 2, begin + 0.2, begin + 0.3, **times))
    plan = Plan(tasks, threads=1, graphs=[task.arrival for task in tasks])
    plan.sent_values = 10 * sent(1_000_000, 1, seconds=0.02)
    end = tasks[-1].stop
    plan.client_calls = [(gap, end, "result", {"calls": 10, "keys": 10, "waiting": end - gap})]
    plan.client_phases = [(gap, end, "waiting")]
    return plan


def asked(
    calls: int, receiving: float, *, waiting: float = 0, begin: float = 4, **more: Any
) -> Plan:
    """Plan a run of 4 s, after which the client fetches results in `count` calls on one line."""
    facts = {"calls": calls, "keys": calls, "receiving": receiving, "waiting": waiting, **more}
    row = (begin, begin + receiving + waiting, "result", facts)
    return Plan(filled(["load"], 1.0), client_calls=[row])


def sent(size: int, tasks: int, **more: Any) -> list[dict[str, Any]]:
    usual = {"kind": "function", "name": "__main__.load", "why": "of __main__", "line": 3}
    facts = {"size": size, "seconds": 0.002, "tasks": tasks, "held": "global TABLE: dict"}
    return [{**usual, **facts, "file": "/mine.py", "code": "main", **more}]


def named(seconds: float, tokenising: float, until: float = 0.0, call: str = "submit") -> Plan:
    """Plan a call that, by default, ends before all tasks, which occupy all threads."""
    calls = [(until - seconds, until, call, {"tokenising": tokenising, "line": 9})]
    value = {"kind": "argument", "name": "load", "size": 80_000_000, "tasks": 1, "seconds": 0.0}
    value |= {"held": "numpy.ndarray", "file": "/mine.py", "line": 9}
    return Plan(filled(["load"], 1.0), client_calls=calls, sent_values=[value])


def large(seconds: float) -> Plan:
    """Plan a run of 1 s, after which the client waits for a large result."""
    facts = {"keys": 20, "receiving": seconds, "received": 1_600_000_000}
    calls = [(1.0, 1.0 + seconds, "gather", facts)]
    return Plan(filled(["load"], 0.25), client_calls=calls)


ARGUMENT = {"kind": "argument", "name": "load", "held": "numpy.ndarray"}
CASES = Cases()
finds, spares = CASES.finds, CASES.spares
# fmt: off
finds("repeated-gathers", "results one by one", asked(1000, 2.0, waiting=1.0, received=28_000),
    severity="high", seconds=2.0 * 999 / 1000, calls=1000, call="result", each=0.002,
    line="/mine.py:7 main")
finds("large-gathers", "large results", asked(2, 2.0, waiting=2.0, received=1_600_000_000,
    deserialising=0.5), severity="high", seconds=2.0, received=1.6e9, line="/mine.py:7 main")
# The time after the last task does not depend on the duration of the run.
finds("large-gathers", "large results of a short run", large(9.0), severity="high", seconds=9.0)
finds("slow-tokenization", "a large argument that is hashed", named(2.0, 1.5), severity="high",
    seconds=1.5, line="/mine.py:9 main", call="submit", what="A numpy.ndarray of 80 MB")
# Each of 100 rounds on four threads has 20 ms of overhead, 1 ms of it without large objects.
finds("large-objects-in-graph", "functions that hold large values", Plan(small_tasks(),
    sent_values=sent(150_000, 400)), severity="high", seconds=100 * (0.020 - 0.001),
    name="__main__.load", size=150e3, bytes=60e6, held="global TABLE: dict",
    line="/mine.py:3 main")
finds("large-objects-in-graph", "large arguments", Plan(small_tasks(), sent_values=sent(150_000,
    400, **ARGUMENT)), name="load", kind="argument", held="numpy.ndarray")
# The second thread has no task meanwhile, so these seconds extend the run.
finds("large-objects-in-graph", "tasks in transit", one_in_transit(), seconds=10 * (0.2 - 0.001))
finds("large-objects-in-graph", "graphs in transit", one_in_transit(0.3), transit=9 * 0.3,
    seconds=9 * 0.3 + 10 * (0.2 - 0.001))
spares("few results", asked(20, 2.0), "repeated-gathers")
spares("results that are waited for", asked(1000, 2.0, begin=1.0), "repeated-gathers")
spares("lists of results", asked(1000, 2.0, keys=100_000), "repeated-gathers")
spares("results that are computed", asked(1000, 0.1, waiting=3.0), "repeated-gathers")
# The objects must be created anyway.
spares("results that are unpickled", asked(1000, 2.0, deserialising=1.99), "repeated-gathers")
spares("large results that are there at once", asked(2, 0.1, waiting=3.0, received=1_600_000_000),
    "large-gathers")
spares("many small results", asked(1000, 2.0, received=100_000_000), "large-gathers")
spares("no bytes to speak of", asked(2, 2.0, received=3_000_000), "large-gathers")
spares("hashing while all threads are busy", named(2.0, 1.5, until=3.0), "slow-tokenization")
spares("submitting for long", named(2.0, 0.1), "slow-tokenization")
for name, values in (
    ("small values", sent(20_000, 400)), ("a value of one task", sent(150_000, 1)),
    ("values of few tasks", sent(60_000, 40)),
):
    spares(name, Plan(small_tasks(), sent_values=values), "large-objects-in-graph")
# The overhead is close to zero, so large objects do not cost time.
spares("large values of long tasks", Plan(filled(["load"], 1.0), sent_values=sent(10_000_000, 16)),
    "large-objects-in-graph")
# fmt: on


test_a_fault_is_found, test_what_looks_alike_is_not_found = CASES.tests()


def test_small_tasks_beside_single_gathers(tmp_path: Path) -> None:
    plan = Plan(small_tasks(0.01))
    alone = found(plan, tmp_path / "alone", "tasks-too-small")["tasks-too-small"]
    plan.client_calls = asked(400, 1.0).client_calls
    findings = found(plan, tmp_path / "both", "tasks-too-small", "repeated-gathers")
    # Larger tasks have fewer results, so that nothing is fetched one at a time.
    assert [*findings] == ["tasks-too-small", "repeated-gathers"]
    fetching = findings["repeated-gathers"]["Seconds at stake (s)"]
    assert fetching == pytest.approx(1.0 * 399 / 400)
    both = alone["Seconds at stake (s)"] + fetching
    assert findings["tasks-too-small"]["Seconds at stake (s)"] == pytest.approx(both)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("frame = dd.from_pandas(table, npartitions=8)", "Read the table in tasks"),
        ("bag = db.from_sequence(lines).map(parse)", "Read the items in tasks"),
        ("x = da.from_array(data, chunks=100)", "Pass name=False to from_array()"),
        ("x = da.from_array(client.scatter(data))", "Set the keys yourself"),
        (None, "Set the keys yourself"),
    ],
)
def test_what_spares_hashing(text: str | None, advice: str, tmp_path: Path) -> None:
    trace = named(2.0, 1.5, call="tokenising").write(tmp_path).trace
    line = {"line": "mine.py:9", "file": "/mine.py", "number": 9, "text": text}
    trace = dataclasses.replace(trace, lines=pd.DataFrame([line]))
    findings = diagnose(Run.from_trace(trace)).set_index("Rule")
    assert findings["Suggestion"]["slow-tokenization"].startswith(advice)


@pytest.mark.parametrize(("held", "by_item"), [("builtins.dict", True), ("numpy.ndarray", False)])
def test_what_dask_scatters_item_by_item(tmp_path: Path, held: str, by_item: bool) -> None:
    """scatter() of a dict with 3,000 entries takes as long as embedding it in twenty tasks."""
    values = sent(150_000, 400, **{**ARGUMENT, "held": held})
    findings = found(Plan(small_tasks(), sent_values=values), tmp_path)
    assert next(iter(findings)) == "large-objects-in-graph"
    suggestion = findings["large-objects-in-graph"]["Suggestion"]
    assert ("scatter(pickle.dumps(object)" in suggestion) is by_item
    assert ("scatter([object]" in suggestion) is not by_item


@pytest.mark.parametrize("other", [False, True])
def test_nothing_large_is_blamed_where_nothing_large_was_sent(tmp_path: Path, other: bool) -> None:
    """An exception are graphs of another client, about which nothing is known."""
    graphs = {"graphs": [0.0, 0.0], "clients": ["c", "of a worker"]} if other else {}
    sent_graph = {"at": 0.0, "since": -0.1, "start": -0.1}
    plan = Plan(small_tasks(), graphs_sent=[sent_graph], **graphs)
    told = {"costly": True, "sent_large": None if other else False}
    assert_found(plan, tmp_path, "tasks-too-small", **told)
