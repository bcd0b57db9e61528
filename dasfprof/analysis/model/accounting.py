"""Where every second of every thread went."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dasfprof.analysis.model import idle_time
from dasfprof.analysis.model.account_sums import (
    Accounts,
    WindowAccount,
    accounts_of,
    knows_tasks,
    own_causes_of,
    seconds_of_groups,
    used_time,
)
from dasfprof.analysis.model.idle_cells import IdleCells, idle_cells, own_cells
from dasfprof.analysis.model.idle_time import PoolDemand, idle_threads
from dasfprof.analysis.model.thread_time import OF_USES, ThreadTime, idle_classes
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.database.columns import Array

# --- `Part`: a window of the time of a run, and what reaches into it ------------------------------


@dataclass(frozen=True)
class Part:
    """A window of the time of a run, and what reaches into it."""

    #: Also what began before the window, and what came before its end and began later.
    around: Run
    #: When the window begins, and before when it ends: seconds from the run's begin, by the
    #: scheduler's clock.
    begin: float = float("-inf")
    end: float = float("inf")


@once_per_trace
def part_of(trace: Run) -> Part:
    """Return which part of a run a trace is; a whole run is one part."""
    return Part(trace)


#: About how many cells tell why threads were idle: a page has half a megabyte of them.
_MOST_CELLS = 100_000


@dataclass(frozen=True)
class ThreadSeconds:
    """What `Accounts` of any window rest on, of a trace with its open runs."""

    #: Of the whole run.
    accounts: Accounts
    #: The idle threads of each life.
    cells: list[IdleCells]
    #: See `used_time`.
    used: Array


def make_accounts(trace: Run) -> Accounts:
    """Account for every thread-second of every worker's life."""
    return thread_seconds(trace.whole).accounts


def busy_seconds(trace: Run, codes: Array, count: int) -> Array:
    """Return the busy thread-seconds by class of groups of the slots of a trace.

    Parameters
    ----------
    trace
        With its open runs.
    codes, count
        The group of each of `task_slots` (-1: none), and how many there are.
    """
    used = thread_seconds(trace).used
    return seconds_of_groups(trace, trace.slots, used, codes, count)


def accounts_within(trace: Run, begin: float, end: float) -> Accounts:
    """Account for every thread-second of the workers' lives within a window.

    Task runs are taken to lie within it.
    """
    trace = trace.whole
    found = thread_seconds(trace)
    accounts = found.accounts
    lives = accounts.lives.within(begin, end)
    places = np.searchsorted(accounts.lives.ids, lives.ids)
    idle = [found.cells[place].between(begin, end) for place in places.tolist()]
    of_lives = by_class(trace, np.reshape(idle, (-1, idle_time.CAUSES)))
    busy = list(OF_USES.values())
    of_lives[:, busy] = accounts.of_lives[places][:, busy]
    return replace(accounts, lives=lives, of_lives=of_lives)


@once_per_trace
def thread_seconds(trace: Run) -> ThreadSeconds:
    """Find the classes of all threads of a trace with its open runs."""
    return find_thread_seconds(trace, _MOST_CELLS)


def find_thread_seconds(trace: Run, most: int) -> ThreadSeconds:
    """Do what `thread_seconds` does, with about so many cells."""
    slots, unfinished = trace.slots, trace.unfinished
    lives = trace.lives
    span = float(lives.end.max() - lives.begin.min()) if len(lives.ids) else 0.0
    count = max(most // max(len(lives.ids), 1), 8)
    demand = PoolDemand.of(trace)
    bounds = _bounds(trace, demand)
    of_lives = [
        (rows, own_cells(causes, bounds, span, count))
        for rows, causes in own_causes_of(slots, unfinished, lives, len(trace.workers))
    ]
    threads = [(rows, own.threads) for rows, own in of_lives]
    used, whole = used_time(slots, threads), (-np.inf, np.inf)
    account, pool = WindowAccount.of(trace, slots, lives, threads, used, demand, whole)
    cells = list(idle_cells(lives, [own for _, own in of_lives], pool, span, count))
    return ThreadSeconds(accounts_of(trace, [account]), cells, used)


@once_per_trace
def account_window(trace: Run) -> WindowAccount:
    """Account for the window of time that a part of a run is."""
    part = part_of(trace)
    whole = part.around.whole
    slots, unfinished = whole.slots, whole.unfinished
    lives = whole.lives.within(part.begin, part.end)
    threads = [
        (rows, idle_threads(causes))
        for rows, causes in own_causes_of(slots, unfinished, lives, len(whole.workers))
    ]
    window, used = (part.begin, part.end), used_time(slots, threads)
    return WindowAccount.of(whole, slots, lives, threads, used, PoolDemand.of(whole), window)[0]


def by_class(trace: Run, causes: Array) -> Array:
    """Turn idle thread-seconds by cause, the last axis, into those by class."""
    seconds = np.zeros((*causes.shape[:-1], len(ThreadTime)))
    for cause, spent in idle_classes(knows_tasks(trace)).items():
        seconds[..., spent] += causes[..., cause]
    return seconds


def _bounds(trace: Run, demand: PoolDemand) -> Array:
    """Return where windows that are asked for begin and end: with the run's work."""
    end = trace.ending
    ends = [] if end is None else [trace.seconds_at(end.time)]
    given_up = trace.unfinished
    ends += given_up.known[given_up.ended].tolist()
    return np.concatenate([demand.arrival[:1], demand.known[-1:], ends])
