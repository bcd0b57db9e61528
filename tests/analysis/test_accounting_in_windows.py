"""Time accounting in windows equals that of the whole run."""

import dataclasses
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from random_runs import random_run
from traces import made_trace
from traces.events import T

from dasfprof.analysis.large import extent as extent_module
from dasfprof.analysis.large.extent import Extent, WindowSummary
from dasfprof.analysis.large.windows import Window
from dasfprof.analysis.model.accounting import (
    WindowAccount,
    account_window,
    accounts_of,
    make_accounts,
)
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.under_way import RUN

#: Margin (s) around windows, shorter than waits of synthetic task runs.
AROUND = 2.0


@pytest.fixture(scope="module", autouse=True)
def without_attempts() -> Iterator[None]:
    """Do not number attempts, since synthetic traces lack the data for that."""
    nothing = pd.DataFrame(index=np.empty(0, np.uint64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extent_module, "at_keys", lambda _: nothing)
        yield


def read(trace: Run, window: Window) -> Run:
    """Return a trace with only the events that overlap a window, as files would provide them."""

    def overlapping(table: pd.DataFrame, begin: Any, end: Any) -> pd.DataFrame:
        is_outside = (begin.to_numpy() >= window.end) | (end.to_numpy() < window.begin)
        return table[~is_outside].reset_index(drop=True)

    tasks, only = trace.tasks, trace.scheduler_only
    known = tasks["start"] + tasks["duration"]
    known = known.combine(tasks["known"], np.fmax) if "known" in tasks else known
    tasks = overlapping(tasks, tasks["start"], known)
    only = overlapping(only, only["scheduler_start"].fillna(only["sent"]), only["known"])
    nothing = np.full(len(tasks), -1, dtype=np.int32), np.empty(0, dtype=np.int64)
    facts = {"tasks": tasks, "scheduler_only": only, "task_dependencies": nothing}
    return dataclasses.replace(trace, **facts, begin=T, end=T)


def in_windows(trace: Run, edges: Sequence[float]) -> tuple[Run, list[WindowAccount]]:
    """Account for the windows between times, and return their accounts and the run-wide facts."""
    nothing = pd.DataFrame({name: [] for name in (*RUN, "state")})
    only = trace.scheduler_only.astype({"reason": "category"})
    trace = dataclasses.replace(trace, under_way_history=nothing, scheduler_only=only)
    bounds = [-np.inf, *sorted({T + edge for edge in edges}), np.inf]
    windows = list(map(Window, bounds[:-1], bounds[1:]))
    begin, end = trace.begin, trace.end
    tables = ("tasks", "scheduler_only", "transfers")
    frame = dataclasses.replace(trace, **{name: getattr(trace, name).iloc[:0] for name in tables})
    seen = trace.workers["first_seen"].to_numpy(), trace.workers["last_seen"].to_numpy()
    unread = Extent(begin, end, seen, AROUND, np.empty(0, dtype=np.int64))
    parts = [read(trace, window.widened(AROUND)) for window in windows]
    numbered = [*enumerate(zip(parts, windows, strict=True))]
    summaries = [
        WindowSummary.from_run(unread.run_of(part, window, place), window.begin + AROUND / 2)
        for place, (part, window) in numbered
    ]
    assert sum(each.rows for each in summaries) == len(trace.tasks) + len(trace.transfers)
    # Synthetic traces begin at a given time, not with their first event.
    facts = {"attempts": None, "begin": begin, "end": end, "seen": unread.seen, "knows_end": True}
    known = dataclasses.replace(unread.widened(frame, summaries), **facts)
    return known.run_of(frame), [
        account_window(known.run_of(part, window, place)) for place, (part, window) in numbered
    ]


def assert_same_accounts(trace: Run, edges: Sequence[float]) -> None:
    found = accounts_of(*in_windows(trace, edges))
    expected = make_accounts(trace)
    np.testing.assert_array_equal(found.lives.ids, expected.lives.ids)
    for name in ("threads", "begin", "end"):
        times = (getattr(accounts.lives, name) for accounts in (found, expected))
        np.testing.assert_allclose(*times, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(found.of_lives, expected.of_lives, rtol=1e-9, atol=1e-7)
    for by in ("function", "step", "line"):
        first, second = (dict(zip(*each.busy[by], strict=True)) for each in (found, expected))
        assert first.keys() == second.keys()
        for name, seconds in first.items():
            np.testing.assert_allclose(seconds, second[name], rtol=1e-9, atol=1e-7, err_msg=name)


def with_more(trace: Run, rng: random.Random) -> Run:
    """Add threads, steps, spilling, and times off the grid. Some workers' threads are unknown."""
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


@examples(5, long=42)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 80), max_size=8))
def test_random_runs_in_windows_of_few_seconds(seed: int, edges: list[int]) -> None:
    trace = made_trace(**random_run(seed))
    assert_same_accounts(trace, edges)
    assert_same_accounts(with_more(trace, random.Random(seed)), edges)


def test_a_run_that_most_windows_have_goes_on_in_all() -> None:
    """There are more task runs than threads. Each slot is a third of a thread in all windows."""
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
    assert_same_accounts(trace, [0.3, 1.2, 2.5, 3.0, 5.1, 8.9, 9.5])
    busy = make_accounts(trace)
    assert busy.of_lives.sum() == pytest.approx(12.0, abs=1e-9)


def test_waits_that_reach_through_several_windows() -> None:
    """One task of a graph waits on the scheduler, another one for its inputs; both start late."""
    short = [
        {"key": f"f-{row}", "scheduler_waiting": 0.0, "sent": row + 0.1, "start": row + 0.2}
        | {"duration": 0.5, "known": row + 0.8}
        for row in range(5)
    ]
    late = [
        {"key": "f-9", "scheduler_waiting": 0.0, "queued": 8.0, "sent": 50.0, "start": 50.5},
        {"key": "g-1", "sent": 20.0, "received": 20.0, "ready": 59.0, "start": 60.0},
    ]
    runs = [*short, *({**run, "duration": 1.0, "known": run["start"] + 1.1} for run in late)]
    trace = made_trace(runs, workers=[{"first_seen": 0.0, "last_seen": 70.0, "nthreads": 3}])
    assert_same_accounts(trace, [4, 10, 15, 30, 40, 58])
    spent = accounts_of(*in_windows(trace, [4, 10, 15, 30, 40, 58])).of_lives[0]
    assert spent[ThreadTime.TRANSFER_WAIT] == pytest.approx(39.0)
    # One task is queued for 42 s. The scheduler learns of six ends 0.1 s late; three threads wait.
    assert spent[ThreadTime.SCHEDULER_LATENCY] == pytest.approx(42.0 + 6 * 3 * 0.1)


def test_without_a_task() -> None:
    lives = [{"first_seen": 1.0, "last_seen": 5.0, "nthreads": 3}]
    assert_same_accounts(made_trace([], workers=lives), [2.0])
    assert_same_accounts(made_trace([], workers=[]), [1.0])
