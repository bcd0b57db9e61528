"""The results that were held over a run, by function, against values by hand and a naive count."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from test_memory_anatomy import PLAN
from traces import Plan, Task

from dasfprof.analysis.model.held_results import OTHERS, ResultsOverTime, results_over_time

MB = 1_000_000


def at(held: ResultsOverTime, time: float) -> dict[str, float]:
    """Return the megabytes by function at the last moment that is not after a time."""
    place = int(np.searchsorted(held.times, time, side="right")) - 1
    return {f: held.held[row, place] / MB for row, f in enumerate(held.functions)}


def test_against_values_by_hand(tmp_path: Path) -> None:
    held = results_over_time(PLAN.write(tmp_path).run, points=20)  # each half second
    assert held is not None
    # h brings 50 MB at 4.0 s to the 59 that a, b, c, e and f have; a millionth of them is small.
    assert held.peak == pytest.approx(4.0)
    assert held.functions == ["h", "b", "a", "d", "c", "f", "g", OTHERS]
    expected = {"h": 0.0, "b": 40.0, "a": 10.0, "d": 7.0, "c": 5.0, "f": 3.0, "g": 2.0}
    assert at(held, 1.5) == pytest.approx({**expected, OTHERS: 0.0}, abs=0.01)
    expected |= {"h": 50.0, "d": 0.0, "g": 0.0}
    assert at(held, 4.0) == pytest.approx({**expected, OTHERS: 1.0}, abs=0.01)  # e
    expected |= {"a": 0.0, "b": 0.0, "f": 0.0}
    assert at(held, 9.0) == pytest.approx({**expected, OTHERS: 1.0}, abs=0.01)


def test_of_random_runs_each_moment_is_the_sum_of_what_was_there(tmp_path: Path) -> None:
    random = Random(5)
    tasks = []
    for number in range(300):
        begin = random.uniform(0, 9)
        end = begin + random.uniform(0.001, 0.5)
        size = int(random.expovariate(1 / MB))
        released = random.choice([None, end + random.uniform(0.01, 3)])
        key = f"{random.choice('abcd')}-{number}"
        tasks.append(Task(key, number % 2, begin, end, size=size, released=released, wanted=False))
    trace = Plan(tasks=tasks, releases=True).write(tmp_path).run
    found = results_over_time(trace, points=50)
    assert found is not None
    for place, time in enumerate(found.times + 1e-5):  # files have microseconds
        sizes = dict.fromkeys("abcd", 0.0)
        for task in tasks:
            if task.stop <= time and (task.released is None or time < task.released):
                sizes[task.key[0]] += task.size
        told = dict(zip(found.functions, found.held[:, place], strict=True))
        assert {name: told[name] for name in "abcd"} == pytest.approx(sizes, abs=1)
    total = found.held.sum(axis=0)
    assert total.max() == total[np.searchsorted(found.times, found.peak)]


def test_without_results_there_is_nothing(tmp_path: Path) -> None:
    # When results were let go is not recorded.
    trace = Plan(tasks=[Task("a-1", 0, 0.0, 1.0, size=MB)]).write(tmp_path).run
    assert results_over_time(trace) is None
