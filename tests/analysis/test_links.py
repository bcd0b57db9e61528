"""Links between task runs: for a repeated key, to the run whose result was used."""

from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from traces import ANY_RUNS, Plan, T, Task, made_trace

from dasfprof.analysis.model.links import find_links
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import task_slots


def repeated() -> Plan:
    """Write a run in which a key runs four times, and fails the second time. All results are used.

    ``early-0`` uses ``late-0``, which runs only later: its result existed before recording.
    """
    tasks = [
        Task("make-0", 0, 0.0, 1.0),
        Task("take-0", 1, 1.5, 2.0, dependencies=["make-0"]),
        Task("make-0", 0, 2.5, 3.0, state="erred", exception="ValueError()"),
        Task("make-0", 0, 3.5, 4.0),
        Task("take-1", 1, 4.5, 5.0, dependencies=["make-0"]),
        Task("make-0", 1, 5.5, 6.0),
        Task("take-2", 0, 6.5, 7.0, dependencies=["make-0"]),
        Task("early-0", 0, 7.0, 7.5, dependencies=["late-0"]),
        Task("late-0", 1, 8.0, 8.5),
    ]
    return Plan(tasks, threads=1)


def links(trace: Run) -> set[tuple[str, float, float | None]]:
    """Return the links: key, and starts of the dependent and of the dependency."""
    found = find_links(trace)
    starts = (task_slots(trace).times.start).round(6)
    keys = trace.keys.texts(trace.tasks["key_id"].to_numpy()[found.row])
    made = [None if row < 0 else float(starts[row]) for row in found.producer]
    return set(zip(keys.tolist(), starts[found.row].tolist(), made, strict=True))


def test_a_result_may_be_of_a_worker_that_was_lost(tmp_path: Path) -> None:
    plan = Plan([Task("make-0", 0, 0.0, 1.0), Task("take-0", 0, 5.0, 6.0, dependencies=["make-0"])])
    lost = {"timestamp": T + 2.0, "duration": 1.5, "key": "make-0", "run_id": 9, "state": "memory"}
    lost |= {"worker": "tcp://10.0.0.1:4001", "start": T + 2.5, "stop": T + 3.0}
    plan.unseen = [{**lost, "cause": "update-graph-1", "end_cause": "task-finished-9"}]
    assert links(plan.write(tmp_path).run) == {("take-0", 5.0, 2.5)}


@pytest.mark.parametrize("scheduler", [True, False])
def test_a_run_is_linked_to_the_run_whose_result_it_took(tmp_path: Path, scheduler: bool) -> None:
    plan = repeated()
    plan.scheduler = scheduler
    # Without the scheduler, the only run of a key may be on a host with another clock.
    expected = {("take-0", 1.5, 0.0), ("take-1", 4.5, 3.5), ("take-2", 6.5, 5.5)}
    early = ("early-0", 7.0, None if scheduler else 8.0)
    assert links(plan.write(tmp_path).run) == {*expected, early}


@examples(12, long=100)
@given(ANY_RUNS)
def test_links_of_random_traces(runs: list[dict[str, object]]) -> None:
    trace = made_trace(runs, workers=({}, {}))
    found, times = find_links(trace), task_slots(trace).times
    wanted = [(row, key) for row, run in enumerate(runs) for key in run["dependencies"]]
    texts = trace.keys.texts(found.key_id)
    assert list(zip(found.row.tolist(), texts, strict=True)) == wanted
    for (row, key), producer in zip(wanted, found.producer, strict=True):
        made = [
            other
            for other, run in enumerate(runs)
            if run["key"] == key
            and run["state"] == "memory"
            and times.known[other] <= times.sent[row]
        ]
        assert (producer == -1) == (not made)
        if made:
            assert producer in made
            assert times.known[producer] == max(times.known[made])
