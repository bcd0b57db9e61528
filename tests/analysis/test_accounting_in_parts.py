"""Time accounting by parts and windows is that of the whole run at once, to the last digit."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_runs import random_run
from traces import made_trace
from traces.in_memory import any_run

from dasfprof.analysis import Trace
from dasfprof.analysis.model import accounting_in_parts
from dasfprof.analysis.model.accounting import make_accounts
from dasfprof.analysis.model.accounting_in_parts import (
    ARRIVAL,
    AccountedPart,
    account_rows,
    accounts_of_rows,
)
from dasfprof.analysis.model.clock_offsets import message_bounds
from dasfprof.analysis.model.once_per_trace import tell
from dasfprof.analysis.numeric.sorted_rows import Rows


def parts_of(trace: Trace) -> Iterator[Trace]:
    """Cut the task runs of a trace in two."""
    even = np.arange(len(trace.tasks)) % 2 == 0
    for own, only in ((even, trace.scheduler_only), (~even, trace.scheduler_only.iloc[:0])):
        part = dataclasses.replace(trace, tasks=trace.tasks[own], scheduler_only=only)
        tell(part, message_bounds, message_bounds(trace))
        yield part


class Pieces:
    """Sorted rows, in pieces of so many."""

    def __init__(self, rows: pd.DataFrame, size: int) -> None:
        self._rows, self._size = rows.sort_values(ARRIVAL, kind="stable"), size

    def __iter__(self) -> Iterator[Rows]:
        for start in range(0, len(self._rows), self._size):
            piece = self._rows.iloc[start : start + self._size]
            yield {str(name): column.to_numpy() for name, column in piece.items()}


def assert_same_accounts(trace: Trace, size: int) -> None:
    """Compare accounts in windows of so many rows with those of the whole trace."""
    told: list[AccountedPart] = []
    rows: list[pd.DataFrame] = []
    for part in parts_of(trace):
        of_part, own = account_rows(part)
        told.append(of_part)
        rows.append(own)
    frame = dataclasses.replace(trace, tasks=trace.tasks.iloc[:0])
    tell(frame, message_bounds, message_bounds(trace))
    found = accounts_of_rows(frame, told, Pieces(pd.concat(rows), size))
    expected = make_accounts(trace)
    for name in ("ids", "threads", "begin", "end"):
        np.testing.assert_array_equal(getattr(found.lives, name), getattr(expected.lives, name))
    assert (found.functions, found.steps) == (expected.functions, expected.steps)
    for name in ("of_lives", "of_functions", "of_steps"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


def with_more(trace: Trace, rng: random.Random) -> Trace:
    """Add threads, steps, what was spilled, and times on no grid; some workers' threads unknown."""
    tasks = trace.tasks.copy()
    for name in ("scheduler_waiting", "sent", "received", "executing", "start", "done", "known"):
        if name in tasks:
            tasks[name] += [rng.choice([0, rng.random()]) for _ in range(len(tasks))]
    tasks["thread"] = pd.Categorical([rng.choice(["t-1", "t-2", None]) for _ in range(len(tasks))])
    tasks["step"] = pd.Categorical([rng.choice(["load", "sum", None]) for _ in range(len(tasks))])
    memory = trace.managed_memory
    memory = memory.assign(spill_write=[rng.random() * row for row in range(len(memory))])
    threads = [None if rng.random() < 0.2 else count for count in trace.workers["nthreads"]]
    workers = trace.workers.assign(nthreads=pd.array(threads, dtype="Int64"))
    return dataclasses.replace(trace, tasks=tasks, managed_memory=memory, workers=workers)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_random_runs_in_windows_of_few_rows(seed: int, size: int) -> None:
    trace = made_trace(**random_run(seed))
    assert_same_accounts(trace, size)
    assert_same_accounts(with_more(trace, random.Random(seed)), size)


@settings(max_examples=60, deadline=None)
@given(st.lists(any_run(), max_size=9), st.integers(1, 3))
def test_times_in_any_order(runs: list[dict[str, Any]], size: int) -> None:
    assert_same_accounts(made_trace(runs, workers=[{}, {}]), size)


def test_a_run_that_most_windows_have_goes_on_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """More runs than threads: each slot has a third of a thread, wherever time is cut."""
    monkeypatch.setattr(accounting_in_parts, "_WINDOW", 3)
    whole = {"sent": 0.0, "received": 0.0, "ready": 0.0, "executing": 0.1, "start": 0.2, "cpu": 0.0}
    long = [
        {**whole, "key": f"long-{number}", "duration": 9.0 + number / 7, "known": 9.9 + number}
        for number in range(2)
    ]
    short = [
        {"key": f"f-{row}", "sent": row / 3, "start": row / 3 + 0.1, "duration": 0.3, "cpu": 0.1}
        for row in range(25)
    ]
    trace = made_trace([*long, *short], workers=[{"first_seen": 0.0, "last_seen": 12.0}])
    assert_same_accounts(trace, 1000)
    busy = make_accounts(trace)
    assert busy.of_lives.sum() == pytest.approx(12.0, abs=1e-9)


def test_without_a_task() -> None:
    lives = [{"first_seen": 1.0, "last_seen": 5.0, "nthreads": 3}]
    assert_same_accounts(made_trace([], workers=lives), 1)
    assert_same_accounts(made_trace([], workers=[]), 1)
