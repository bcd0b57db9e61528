"""Memory by holder, at a time and over time, equals that of planned runs."""

import dataclasses
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from traces import Plan, T, Task

from dasfprof.analysis.model.held_results import OTHERS, ResultsOverTime, results_over_time

MB = 1_000_000

WAITED, IN_USE = "for tasks yet to begin", "for running tasks"
WANTED, LATE = "for the client", "released late"
COPY, UNEXPLAINED = ("copy by transfer", "unknown: for whom")
UNTOLD = "unknown: if held"
ON_DISK, MORE = "(spilled to disk)", "(more results)"
UNMANAGED = "(unmanaged, old)"
NO_SAMPLE = "(no sample near)"


def leaf(key: str, megabytes: int, **more: Any) -> Task:
    return Task(key, 0, 0.0, 1.0, size=megabytes * MB, **{"wanted": False, **more})


def used(worker: int, at: float, megabytes: int) -> tuple[int, float, dict[str, Any]]:
    return worker, at, {"memory": megabytes * MB}


def held(worker: int, size: int, spilled: int) -> tuple[int, float, dict[str, Any]]:
    return worker, 3.0, {"size": size * MB, "spilled_size": spilled * MB, "state": "running"}


PLAN = Plan(
    tasks=[
        leaf("a-1", 10, released=6.0),
        Task("slow-1", 0, 1.5, 6.0, dependencies=["a-1"]),
        leaf("b-1", 20, released=8.0),
        leaf("b-2", 20, released=8.0),
        Task("use-1", 0, 7.0, 8.0, dependencies=["b-1", "b-2"]),
        leaf("c-1", 5, wanted=True),
        # The scheduler learns at 3.2 of an end at 2.9.
        leaf("d-1", 7, released=3.21),
        Task("e-1", 1, 1.1, 2.9, known=3.2, size=MB, dependencies=["d-1"]),
        leaf("f-1", 3, released=5.0),
        leaf("g-1", 2, released=2.0),
        Task("h-1", 0, 2.0, 4.0, size=50 * MB),
        # Its client connects after all tasks.
        Task("late-1", 1, 9.0, 9.5, arrival=8.5, dependencies=["c-1"]),
    ],
    transfers=[(1, 1.0, 1.1, 7 * MB, ["d-1"])],
    used=[used(0, 0.0, 10), used(0, 3.0, 100), used(0, 6.0, 50), used(1, 0.2, 30), used(1, 6, 40)],
    held=[held(0, 66, 20), held(1, 8, 0)],
    releases=True,
    hosts=("node1", "node2"),  # otherwise, they would share a process
)


def rows(table: pd.DataFrame, *labels: str) -> list[tuple[Any, ...]]:
    names = [*labels, "Why Held", "Function", "Needed By", "Results", "Memory (MB)"]
    return [
        tuple(None if pd.isna(value) else value for value in row)
        for row in table[names].astype(object).itertuples(index=False)
    ]


W0 = [
    (WAITED, "b", "use", 2, 40.0),
    (IN_USE, "a", "slow", 1, 10.0),
    (LATE, "d", "", 1, 7.0),
    (WANTED, "c", "", 1, 5.0),
    (UNEXPLAINED, "f", "", 1, 3.0),
]
W0_REST = [(ON_DISK, "", "", None, -20.0), (MORE, "", "", None, 1.0)]
W1 = [(COPY, "d", "", 1, 7.0), (WANTED, "e", "", 1, 1.0)]


def test_against_values_by_hand(tmp_path: Path) -> None:
    analyser = PLAN.write(tmp_path)
    by_worker = analyser.memory_at(3.0, by="worker")
    first, second = "worker-node1-0", "worker-node2-1"
    assert rows(by_worker, "Worker") == [
        *((first, *one) for one in [*W0, *W0_REST, (UNMANAGED, "", "", None, 54.0)]),
        *((second, *one) for one in [*W1, (NO_SAMPLE, "", "", None, None)]),
    ]
    sums = by_worker.groupby("Worker")["Memory (MB)"].sum()
    assert sums.to_dict() == {first: 100.0, second: 8.0}
    whole = analyser.memory_at(3.0)
    assert "Worker" not in whole
    of_results = sorted([*W0, *W1], key=lambda row: -row[4])
    rest = [*W0_REST, (UNMANAGED, "", "", None, 54.0), (NO_SAMPLE, "", "", None, None)]
    assert sorted(map(str, rows(whole))) == sorted(map(str, [*of_results, *rest]))
    pd.testing.assert_frame_equal(analyser.memory_peak(), whole)
    peaks = analyser.memory_peak("worker")
    by_title = peaks.groupby("Worker")
    assert by_title["Time (s)"].agg(set).to_dict() == {first: {3.0}, second: {6.0}}
    assert by_title["Memory (MB)"].sum().to_dict() == {first: 100.0, second: 40.0}


def test_unmanaged_memory_is_old_or_of_what_runs(tmp_path: Path) -> None:
    """A worker of 10 MB had 30 to 90 MB within 30 s; additional memory belongs to its function."""
    at = [0.0, 5.0, 10.0, 20.0, 39.0, 40.0]
    sizes = [10, 90, 30, 40, 70, 70]
    results = {"size": 0, "spilled_size": 0, "tasks": 0, "state": "running"}
    tasks = [Task("a-1", 0, 1.0, 12.0, size=0, released=12.0)]
    plan = Plan(
        tasks=[*tasks, Task("swell-1", 0, 36.0, 45.0, size=0)],
        used=[used(0, when, size) for when, size in zip(at, sizes, strict=True)],
        held=[(0, when, {**results, "p2p_size": 5 * MB * (when == 39.0)}) for when in at],
        hosts=("node1", "node2"),
        releases=True,
    )
    analyser = plan.write(tmp_path)

    def told(at: float) -> list[list[Any]]:
        table = analyser.memory_at(at, by="worker").query("Worker == 'worker-node1-0'")
        columns = ["Why Held", "Needed By", "Memory (MB)"]
        return table[columns].astype(object).to_numpy().tolist()

    assert told(39.0) == [
        ["(P2P buffers)", "", 5.0],
        [UNMANAGED, "", 30.0],
        ["(unmanaged, recent)", "swell", 35.0],
    ]
    assert told(5.0) == [[UNMANAGED, "", 10.0], ["(unmanaged, recent)", "a", 80.0]]


def test_the_scheduler_and_the_client_are_told_beside_the_workers(tmp_path: Path) -> None:
    sizes = {"scheduler_memory": [(0.5, 70 * MB), (2.5, 90 * MB), (5.0, 99 * MB)]}
    plan = dataclasses.replace(PLAN, **sizes, client_memory=[(1.0, 300 * MB)])
    analyser = plan.write(tmp_path)
    table = analyser.memory_at(3.0).set_index("Why Held")["Memory (MB)"]
    assert table["(process of the scheduler)"] == 90.0
    assert table["(process of the client)"] == 300.0
    assert "(process of the client)" not in set(analyser.memory_at(0.5)["Why Held"])
    by_worker = analyser.memory_at(3.0, by="worker")
    assert not by_worker["Why Held"].str.startswith("(process").any()


def test_an_older_trace_does_not_tell_what_was_still_held(tmp_path: Path) -> None:
    tasks = [dataclasses.replace(task, released=None) for task in PLAN.tasks]
    analyser = dataclasses.replace(PLAN, tasks=tasks, releases=False).write(tmp_path)
    told = rows(analyser.memory_at(3.0, by="worker").query("Worker == 'worker-node1-0'"))
    assert told[:2] == W0[:2]
    assert [row[0] for row in told[2:-3]] == [UNTOLD] * 4  # c, d, f, and g, which was released
    assert all(row[4] is None for row in told[2:-3])
    unnamed = [(ON_DISK, -20.0), (MORE, 16.0), (UNMANAGED, 54.0)]
    assert told[-3:] == [(why, "", "", None, size) for why, size in unnamed]


def test_without_the_scheduler_or_after_a_worker_was_lost(tmp_path: Path) -> None:
    plan = dataclasses.replace(PLAN, scheduler=False, resources=False)
    analyser = plan.write(tmp_path / "without")
    told = {row[1]: row[0] for row in rows(analyser.memory_at(3.0))}
    assert told.pop("a") == IN_USE
    assert told.pop("") == NO_SAMPLE
    assert set(told.values()) == {UNTOLD}
    assert analyser.memory_peak().empty
    # The copy is now the result.
    plan = dataclasses.replace(PLAN, left=[(0, 2.5, "worker-close")])
    told_rows = rows(plan.write(tmp_path / "lost").memory_at(3.0))
    assert told_rows == [(LATE, "d", "", 1, 7.0), W1[1], (NO_SAMPLE, "", "", None, None)]


def random_plan(random: Random) -> Plan:
    """Plan tasks on two workers with dependencies and times of releases."""
    tasks = [
        Task(f"{random.choice('ab')}-{n}", n % 2, start, start + random.randint(1, 6), size=10**n)
        for n, start in enumerate(random.choices(range(10), k=6))
    ]
    transfers = []
    for n in range(6, 12):
        needed = random.sample(tasks, random.randint(1, 3))
        start = max(one.stop for one in needed) + random.randint(1, 4)
        arrival = min(start - 1.0, random.randint(0, 12))
        own = Task(f"{random.choice('cd')}-{n}", n % 2, start, start + 3, arrival=arrival)
        own.dependencies, own.size = [one.key for one in needed], 10**n
        transfers += [
            (own.worker, one.stop, start - 0.5, one.size, [one.key])
            for one in needed
            if one.worker != own.worker
        ]
        tasks.append(own)
    for n, task in enumerate(tasks):
        task.wanted = random.random() < 0.2
        # One task of each worker is known at its end, which fixes the clock.
        task.known = task.stop + (random.choice([0.0, 0.75]) if n > 1 else 0.0)
    for task in tasks:
        last = max(one.known or 0.0 for one in (task, *needing(tasks, task)))
        task.released = random.choice([None, last + 0.01, last + 0.01, last + 3.0])
    return Plan(tasks, transfers=transfers, releases=True, hosts=("node1", "node2"))


def needing(tasks: list[Task], task: Task) -> list[Task]:
    return [one for one in tasks if task.key in one.dependencies]


def expected(plan: Plan, time: float) -> Counter[tuple[str, str, str, str]]:
    """Return bytes by worker, reason, function and dependent, from one result at a time."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for task in plan.tasks:
        if task.stop > time or (task.released is not None and task.released <= time):
            continue
        needers = sorted(needing(plan.tasks, task), key=lambda one: one.start)
        waiting = [one for one in needers if one.arrival <= time < one.start]
        running = [one for one in needers if one.start <= time < one.stop]
        ended = [one.known or 0.0 for one in needers if one.stop <= time]
        if waiting:
            why, by = WAITED, waiting[-1].function
        elif running:
            why, by = IN_USE, running[-1].function
        elif task.wanted:
            why, by = WANTED, ""
        elif task.released is not None and ended and abs(task.released - max(ended)) < 0.1:
            why, by = LATE, ""
        else:
            why, by = UNEXPLAINED, ""
        found[f"worker-node{task.worker + 1}-{task.worker}", why, task.function, by] += task.size
        for at in {
            to for to, _, stop, _, (key,) in plan.transfers if key == task.key and stop <= time
        }:
            found[f"worker-node{at + 1}-{at}", COPY, task.function, ""] += task.size
    return found


@pytest.mark.parametrize("seed", range(2))
def test_random_runs_against_a_naive_search(tmp_path: Path, seed: int) -> None:
    plan = random_plan(Random(seed))
    analyser = plan.write(tmp_path)
    begin = analyser.trace.begin - T
    for time in np.arange(begin + 0.3, max(task.stop for task in plan.tasks), 0.5):
        table = analyser.memory_at(float(time - begin), by="worker")
        table = table[table["Function"] != ""]
        columns = (table[name] for name in ("Worker", "Why Held", "Function", "Needed By"))
        told = zip(zip(*columns, strict=True), table["Memory (MB)"], strict=True)
        wanted = {one: pytest.approx(size / MB) for one, size in expected(plan, time).items()}
        assert dict(told) == wanted, time
    over_time = results_over_time(analyser.run, points=50)
    assert over_time is not None
    for place, time in enumerate(over_time.times + 1e-5):  # files have microseconds
        sizes: Counter[str] = Counter()
        for (_, why, function, _), size in expected(plan, begin + time).items():
            sizes[function if function in over_time.functions else OTHERS] += size * (why != COPY)
        told = dict(zip(over_time.functions, over_time.held[:, place], strict=True))
        assert told == pytest.approx({name: sizes[name] for name in told}, abs=1), time
    total = over_time.held.sum(axis=0)
    assert total.max() == total[np.searchsorted(over_time.times, over_time.peak)]


def at(held: ResultsOverTime, time: float) -> dict[str, float]:
    """Return the megabytes by function at the last point that is not after a time."""
    place = int(np.searchsorted(held.times, time, side="right")) - 1
    return {f: held.held[row, place] / MB for row, f in enumerate(held.functions)}


def test_results_over_time_by_hand(tmp_path: Path) -> None:
    # The times when results were released may not be recorded.
    untold = Plan(tasks=[leaf("a-1", 1)]).write(tmp_path / "untold").run
    assert results_over_time(untold) is None
    held = results_over_time(PLAN.write(tmp_path / "run").run, points=20)  # each half second
    assert held is not None
    # h adds 50 MB at 4.0 s to the 59 MB of a, b, c, e and f.
    assert held.peak == pytest.approx(4.0)
    assert held.functions == ["h", "b", "a", "d", "c", "f", "g", OTHERS]
    expected = {"h": 0.0, "b": 40.0, "a": 10.0, "d": 7.0, "c": 5.0, "f": 3.0, "g": 2.0}
    assert at(held, 1.5) == pytest.approx({**expected, OTHERS: 0.0}, abs=0.01)
    expected |= {"h": 50.0, "d": 0.0, "g": 0.0}
    assert at(held, 4.0) == pytest.approx({**expected, OTHERS: 1.0}, abs=0.01)  # e
    expected |= {"a": 0.0, "b": 0.0, "f": 0.0}
    assert at(held, 9.0) == pytest.approx({**expected, OTHERS: 1.0}, abs=0.01)
