"""Accounts of a run whose task runs come in the order of their arrival, and not all at once.

Parts of a run tell rows, a task run each (`account_rows`). Sorted, and looked at window by window,
they give the accounts (`accounts_of_rows`) that `accounting` has of the whole run at once. In
memory are a window's rows, and those of the tasks that had not ended before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.model.account_sums import (
    Accounts,
    AccountSums,
    Group,
    own_causes_of,
    used_time,
)
from dasfprof.analysis.model.accounting import knows_tasks, slot_groups
from dasfprof.analysis.model.actor_calls import call_spans
from dasfprof.analysis.model.busy_time import COSTS, recorded_costs
from dasfprof.analysis.model.idle_pool import PoolDemand
from dasfprof.analysis.model.idle_time import idle_threads
from dasfprof.analysis.model.run import run_of
from dasfprof.analysis.model.slots import (
    TaskSlots,
    UnfinishedRuns,
    most_at_a_time,
    slot_ends,
    taken_next,
)
from dasfprof.analysis.model.times import STAGES, TaskTimes
from dasfprof.analysis.model.untold_tasks import live_at_counts, untold_tasks
from dasfprof.analysis.model.workers import lives_of, slot_spans
from dasfprof.analysis.numeric.sorted_rows import GROUP, Rows, group_codes, group_ids
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: What rows are sorted by.
ARRIVAL = "arrival"
#: The columns of rows by their types.
_TYPES = {
    "float64": (*STAGES, "here", "released", *COSTS),
    "int64": ("worker", GROUP, "thread", "run_id"),
    "bool": ("ran", "unrecorded"),
}
#: Rows that a window has, besides those of tasks that had not ended before it.
_WINDOW = 1 << 20
#: What is known of a row from the windows before: see `taken_next` and `used_time`.
_TAKEN, _USED = "taken", ("before", "inside", "after")


@dataclass(frozen=True)
class AccountedPart:
    """What a part of a run tells of it beside its rows."""

    groups: list[Group]
    #: See `slot_spans` and `live_at_counts`.
    first: Array
    last: Array
    live: Array
    knows_tasks: bool


def account_rows(trace: Trace) -> tuple[AccountedPart, pd.DataFrame]:
    """Return what a part tells, and a row for each of its task runs, those too that never ended."""
    runs = run_of(trace).all
    trace, slots, unfinished = runs.trace, runs.slots, runs.unfinished
    codes, groups = slot_groups(runs)
    threads, names = runs.threads
    ran, never = len(codes), len(unfinished.sent)
    nothing = {name: np.full(never, np.nan) for name in _TYPES["float64"]}
    told = {name: getattr(slots.times, name) for name in STAGES}
    told |= {"here": slots.sent, "released": slots.released, **recorded_costs(trace, ran)}
    nothing |= {
        name: getattr(unfinished, name) for name in ("arrival", "runnable", "sent", "known")
    }
    rows = {name: np.concatenate([told[name], nothing[name]]) for name in told}
    rows["worker"] = np.concatenate([slots.worker, unfinished.worker.astype(np.int64)])
    rows["ran"] = np.arange(ran + never) < ran
    rows["unrecorded"] = np.append(slots.reception_unknown, unfinished.taken)
    for name, none in ((GROUP, 0), ("thread", 0), ("run_id", -1)):
        rows[name] = np.full(ran + never, none, dtype=np.int64)
    rows[GROUP][:ran] = group_ids([repr(group) for group in groups])[codes]
    rows["thread"][: len(threads)] = np.append(group_ids(names), 0)[threads]
    rows["run_id"][: len(threads)] = trace.tasks["run_id"].to_numpy()
    times = slots.times
    first, last = slot_spans(slots, len(trace.workers))
    live = live_at_counts(
        trace, [times.arrival, unfinished.arrival], [times.known, unfinished.known]
    )
    return AccountedPart(groups, first, last, live, knows_tasks(trace)), pd.DataFrame(rows)


def accounts_of_rows(
    trace: Trace, parts: Sequence[AccountedPart], rows: Iterable[Rows]
) -> Accounts:
    """Account for every thread-second of every worker's life.

    Parameters
    ----------
    trace
        The run, which need not have its task runs.
    parts, rows
        What `account_rows` told of all parts; rows in pieces, sorted by `ARRIVAL`. They are gone
        through twice where no file tells how many threads a worker has.
    """
    trace, workers = run_of(trace).all.trace, len(trace.workers)
    spans = (
        np.minimum.reduce([part.first for part in parts]),
        np.maximum.reduce([part.last for part in parts]),
    )
    untold = untold_tasks(trace, np.sum([part.live for part in parts], axis=0))
    lives = lives_of(trace, spans, lambda: _most_at_a_time(rows, workers))
    names = sorted({group for part in parts for group in part.groups})
    ids = [repr(name) for name in names]
    sums = AccountSums(lives, workers, names)
    for window in _windows(rows):
        calls, slots = call_spans(trace), window.slots
        own_lives = lives.within(window.begin, window.end)
        causes = own_causes_of(slots, window.unfinished, own_lives, workers)
        threads = [(own, idle_threads(each)) for own, each in causes]
        demand = PoolDemand.of_runs(slots, window.unfinished, calls, untold)
        sums.add_window(own_lives, [each for _, each in threads], demand)
        window.note(used_time(slots, threads))
        ended = window.ended
        if len(ended):
            codes = group_codes(window.rows[GROUP][ended], ids)
            costs = {name: window.rows[name][ended] for name in COSTS}
            used = np.stack([window.rows[name][ended] for name in _USED])
            sums.add_runs(codes, _times(window.rows, ended), costs, used)
    return sums.accounts(trace, any(part.knows_tasks for part in parts))


@dataclass(frozen=True)
class _Window:
    """Rows of the task runs that had come, and not ended, in a window of time."""

    rows: dict[str, Array]
    begin: float
    end: float
    slots: TaskSlots
    unfinished: UnfinishedRuns

    @classmethod
    def make(cls, rows: dict[str, Array], begin: float, end: float) -> _Window:
        """Find the slots of runs, as far as the window goes."""
        ran, never = np.flatnonzero(rows["ran"]), np.flatnonzero(~rows["ran"])
        times, worker = _times(rows, ran), rows["worker"][ran]
        threads, names = pd.factorize(rows["thread"][ran])
        threads = np.where(np.append(names, 0)[threads] == 0, -1, threads)
        known = rows[_TAKEN][ran]
        taken = taken_next(times, worker, threads, rows["run_id"][ran])
        taken = np.where(np.isnan(known), taken, known)
        # Who comes later may take a thread from then on.
        rows[_TAKEN][ran] = np.where(taken < end, taken, np.nan)
        released = rows["released"][ran]
        slots = TaskSlots(
            times=times,
            worker=worker,
            function=np.empty(0, dtype=np.int64),
            functions=[],
            sent=rows["here"][ran],
            released=released,
            end=slot_ends(times, released, taken),
            reception_unknown=rows["unrecorded"][ran],
        )
        unfinished = UnfinishedRuns(
            worker=rows["worker"][never],
            taken=rows["unrecorded"][never],
            **{name: rows[name][never] for name in ("arrival", "runnable", "sent", "known")},
        )
        return cls(rows, begin, end, slots, unfinished)

    def note(self, used: Array) -> None:
        """Add to the thread-time that each run has used."""
        ran = np.flatnonzero(self.rows["ran"])
        for name, more in zip(_USED, used, strict=True):
            self.rows[name][ran] += more

    @property
    def over(self) -> Array:
        """Whether each row has no time beyond the window."""
        return self.rows["known"] < self.end

    @property
    def ended(self) -> Array:
        """The rows of runs that the windows after this one do not have."""
        return np.flatnonzero(self.rows["ran"] & self.over)


def _windows(pieces: Iterable[Rows]) -> Iterator[_Window]:
    """Yield the windows that pieces of rows make, from the beginning of time to its end."""
    nothing = {name: np.empty(0, kind) for kind, names in _TYPES.items() for name in names}
    begin, rows = -np.inf, _begun(nothing)
    for piece in _cut(pieces):
        rows = {name: np.concatenate([rows[name], each]) for name, each in piece.items()}
        end = float(piece[ARRIVAL][-1])
        if end > begin:
            window = _Window.make(rows, begin, end)
            yield window
            going_on = np.flatnonzero(~window.over)
            begin, rows = end, {name: each[going_on] for name, each in rows.items()}
    yield _Window.make(rows, begin, np.inf)


def _cut(pieces: Iterable[Rows]) -> Iterator[dict[str, Array]]:
    for piece in pieces:
        for start in range(0, len(piece[ARRIVAL]), _WINDOW):
            yield _begun({name: each[start : start + _WINDOW] for name, each in piece.items()})


def _begun(rows: dict[str, Array]) -> dict[str, Array]:
    """Add to rows what the windows before would have told."""
    count = len(rows[ARRIVAL])
    rows[_TAKEN] = np.full(count, np.nan)
    return {**rows, **{name: np.zeros(count, dtype=np.int64) for name in _USED}}


def _times(rows: dict[str, Array], places: Array) -> TaskTimes:
    return TaskTimes(*(rows[name][places] for name in STAGES))


def _most_at_a_time(rows: Iterable[Rows], workers: int) -> Array:
    """Count the most slots that each worker had at a time."""
    most = np.zeros(workers, dtype=np.int64)
    for window in _windows(rows):
        slots, begins = window.slots, window.slots.times.executing
        begun = np.flatnonzero(begins < window.end)
        found = most_at_a_time(slots.worker[begun], begins[begun], slots.end[begun], workers)
        most = np.maximum(most, found)
    return most
