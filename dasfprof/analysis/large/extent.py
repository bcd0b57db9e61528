"""Facts about the full run that no single window can compute.

Each window contributes a `WindowSummary`. `Extent` merges them and is passed to every window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.large.windows import Window
from dasfprof.analysis.model.accounting import Part, part_of
from dasfprof.analysis.model.attempts import at_keys, earlier_attempts, live_at_counts
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.run_end import (
    Endings,
    RunEnd,
    find_run_end,
    interrupted_ends,
    run_end_of,
)
from dasfprof.analysis.run.slots import most_slots
from dasfprof.analysis.run.task_runs import OpenRuns, appended, message_bounds, open_runs, to_ticks
from dasfprof.analysis.trace.columns import rows_of
from dasfprof.analysis.trace.under_way import places_not_ended
from dasfprof.database.columns import Array

#: Columns with the times at which a task run reached the scheduler. `SENT` is the same for its
#: worker.
CAME, SENT = ("scheduler_waiting", "queued"), ("sent", "received")
#: Columns of early task runs (see `_early`) that the accounts of thread time need.
_COLUMNS = (
    *("worker_id", "run_id", "function", "state", "source", "thread", "start", "duration"),
    *("received", "ready", "executing", "seceded", "done", "scheduler_state", "scheduler_start"),
    *("scheduler_stop", "scheduler_waiting", "queued", "stolen", "sent", "known", "lost", "reason"),
)
#: Minimum limit for the number of early task runs that wait for a worker. No run needs more of them
#: than it has idle threads.
_FEWEST = 1000

#: Two numbers per worker, in the order of `Trace.workers`. They are either the minimum and maximum
#: clock offset that messages allow, or the start and end of the worker's events.
Bounds = tuple[Array, Array]


class WindowSummary(NamedTuple):
    """Facts that a window contributes to the analysis of the full run, such as clock bounds."""

    seen: Bounds
    bounds: Bounds
    interrupted: Array
    #: Indices in `Trace.under_way_history` of task runs whose end the window does not contain.
    open: Array
    endings: Endings
    #: See `live_at_counts` and `most_slots`. For workers whose number of threads is known, `most`
    #: is 0.
    live: Array
    most: Array
    #: Task runs (of workers, and of the scheduler only) that started in this window but arrived
    #: long before it.
    early: tuple[pd.DataFrame, pd.DataFrame]
    #: Attempts at keys. See `at_keys`.
    attempts: pd.DataFrame
    #: Number of task runs and transfers in workers' files that started in the window.
    rows: int
    #: Three numbers per worker: task runs in its files; those of them that the scheduler also
    #: recorded; and task runs whose end only the scheduler recorded.
    by_both: Array

    @classmethod
    def from_run(cls, run: Run, since: float) -> WindowSummary:
        """Return the facts that a window contributes.

        `run` has the task runs and transfers that started in the window (see `Extent.run_of`). Task
        runs that started before `since` (Unix seconds) are contributed by other windows.
        """
        around, workers = part_of(run).around, run.workers
        nameless = ((workers["kind"] == "worker") & workers["nthreads"].isna()).any()
        threads = max(int(workers["nthreads"].sum()), _FEWEST)
        begins, only_begins, _ = begins_of(run)
        tasks, only = run.tasks, run.scheduler_only
        joined = tasks["sent"].notna() if "sent" in tasks else np.zeros(len(tasks), dtype=bool)
        ids = [table["worker_id"] for table in (tasks, tasks[joined], only[only["lost"]])]
        return cls(
            _seen(run),
            message_bounds(around),
            interrupted_ends(run),
            places_not_ended(around.under_way_history, around.tasks, around.scheduler_only),
            Endings.from_trace(run),
            live_at_counts(run),
            most_slots(around) if nameless else np.zeros(len(workers), dtype=np.int64),
            (_early(tasks, begins, since, threads), _early(only, only_begins, since, threads)),
            at_keys(run),
            int((tasks["source"] == "worker").sum()) + len(run.transfers),
            np.stack([np.bincount(who[who >= 0], minlength=len(workers)) for who in ids]),
        )


def begins_of(run: Run, *, sent: bool = False) -> tuple[Array, Array, Array]:
    """Return the starts of the rows of ``tasks``, ``scheduler_only`` and ``transfers``.

    For rows of ``scheduler_only`` without a recorded start, the time of the assignment to a worker
    is returned if `sent`, and otherwise the time of the end.
    """
    only = scheduler_begins(run.scheduler_only, "sent" if sent else "known")
    return run.tasks["start"].to_numpy(), only, run.transfers["start"].to_numpy()


def scheduler_begins(runs: pd.DataFrame, otherwise: str) -> Array:
    """Return the start of each task run, or the column `otherwise` if no start was recorded."""
    start = runs["scheduler_start"].to_numpy(dtype=float)
    return np.where(np.isnan(start), runs[otherwise].to_numpy(dtype=float), start)


def earliest(runs: pd.DataFrame, *names: str) -> Array:
    """Return the earliest of each task run's times, or NaN if none is known."""
    return np.fmin.reduce(runs.reindex(columns=names).to_numpy(dtype=float), axis=1)


def _early(runs: pd.DataFrame, begins: Array, since: float, threads: int) -> pd.DataFrame:
    """Return task runs that arrived before `since`, but started at `since` or later.

    All task runs that were assigned to a worker before `since` are included. Of the task runs that
    were assigned later, only the first `threads` by each column in `CAME` are included.
    """
    late = begins >= since
    parts = [np.flatnonzero(late & (earliest(runs, *SENT) < since))]
    # More task runs than there are threads would not explain additional idle threads.
    for name in CAME:
        times = earliest(runs, name)
        waiting = np.flatnonzero(late & (times < since))
        parts.append(waiting[np.argsort(times[waiting], kind="stable")][:threads])
    return runs.iloc[np.unique(np.concatenate(parts))][[name for name in _COLUMNS if name in runs]]


def _seen(run: Run) -> Bounds:
    """Return the first start and the last end of task runs and transfers on each worker."""
    only = run.scheduler_only
    spans = [
        (table["worker_id"], table["start"], table["start"] + table["duration"])
        for table in (run.tasks, run.transfers)
    ]
    spans.append((only["worker_id"], only["sent"], only["known"]))
    who, begins, ends = (np.concatenate(columns) for columns in zip(*spans, strict=True))
    known = np.isfinite(begins) & np.isfinite(ends)
    workers = Groups(np.where(known, who, -1), len(run.workers))
    return workers.min(begins), workers.max(ends)


#: Seconds before and after a window that are also read. Because of their clocks, a worker and the
#: scheduler may record the same task run at different times, but these differ by less.
AROUND = 10.0


@dataclass(frozen=True)
class Extent:
    """Facts about the full run, with None for a fact that is not known yet."""

    begin: float
    end: float
    seen: Bounds
    #: Seconds before and after each window that are also read.
    around: float
    open: Array
    bounds: Bounds | None = None
    interrupted: Array | None = None
    live: Array | None = None
    most: Array | None = None
    #: Attempts at keys that occur in several windows (see `at_keys`), with the index of the window.
    attempts: pd.DataFrame | None = None
    #: For each window, in order: its task runs that arrived before it (see `WindowSummary.early`).
    early: Sequence[tuple[pd.DataFrame, pd.DataFrame]] = ()
    #: Number of task runs and transfers in workers' files, over all windows.
    rows: int = 0
    #: Whether the time around windows is longer than differences of clocks. If not, a worker and
    #: the scheduler may have recorded the same task run in different windows.
    clocks_fit: bool = True
    #: How the run ended, or None if nothing was unfinished. `knows_end` tells whether this is
    #: known.
    run_end: RunEnd | None = None
    knows_end: bool = False

    @classmethod
    def before_reading(cls, frame: Run, begin: float, end: float) -> Extent:
        """Return the facts that are known before windows are read.

        `frame` is the run without its task runs and transfers. The first of these starts at
        `begin`, and the last one ends at `end`.
        """
        delays = np.abs(frame.clocks["scheduler_delay"].to_numpy(dtype=float))
        around = max(AROUND, 5 * float(np.fmax.reduce(delays, initial=0.0)))
        seen = (frame.workers["first_seen"].to_numpy(), frame.workers["last_seen"].to_numpy())
        begin, end = float(np.fmin(begin, frame.begin)), float(np.fmax(end, frame.end))
        return cls(begin, end, seen, around, np.empty(0, dtype=np.int64))

    def widened(self, frame: Run, windows: Sequence[WindowSummary]) -> Extent:
        """Return the extent, extended by the facts that all windows contribute."""
        seens, limits, interrupted, opened, _, live, most, early, attempts, rows, by_both = zip(
            *windows, strict=True
        )
        firsts, lasts = zip(self.seen, *seens, strict=True)
        seen = np.fmin.reduce(firsts), np.fmax.reduce(lasts)
        opens, counts = np.unique(np.concatenate(opened), return_counts=True)
        lower, upper = bounds = _narrowest(limits)
        of_worker, of_both, of_scheduler = np.sum(by_both, axis=0)
        apart = np.maximum(lower, -upper) > self.around / 4
        apart |= (of_worker > 0) & (of_both == 0) & (of_scheduler > 0)
        return dataclasses.replace(
            self,
            begin=float(np.fmin(frame.begin, np.fmin.reduce(seen[0], initial=np.nan))),
            end=float(np.fmax(frame.end, np.fmax.reduce(seen[1], initial=np.nan))),
            seen=seen,
            open=opens[counts == len(windows)],
            bounds=bounds,
            interrupted=np.concatenate(interrupted),
            live=np.sum(live, axis=0),
            most=np.max(most, axis=0),
            attempts=_of_several(attempts),
            early=early,
            rows=sum(rows),
            clocks_fit=not apart.any(),
        )

    def may_be_unfinished(self, frame: Run, windows: Sequence[WindowSummary]) -> bool:
        """Return whether work may have been unfinished when the run ended.

        If so, `with_end` needs new summaries of all windows.
        """
        nothing = dataclasses.replace(Endings.from_trace(self.run_of(frame)), last=np.nan)
        return (
            len(self.open) > 0
            or any(window.endings.open for window in windows)
            or any(np.isfinite(window.endings.cancelled) for window in windows)
            or run_end_of(self.run_of(frame), nothing) is not None
        )

    def with_end(self, frame: Run, windows: Sequence[WindowSummary]) -> Extent:
        """Return the extent with facts about the end of the run.

        `windows` are the summaries of a second reading, for which this extent was used. For
        `frame`, see `before_reading`.
        """
        # Which task runs did not finish in the full run is known only after the first reading.
        endings = Endings.merged([window.endings for window in windows])
        return dataclasses.replace(
            self,
            bounds=_narrowest([window.bounds for window in windows]),
            live=np.sum([window.live for window in windows], axis=0),
            most=np.max([window.most for window in windows], axis=0),
            attempts=_of_several([window.attempts for window in windows]),
            run_end=run_end_of(self.run_of(frame), endings),
        )

    def run_of(self, run: Run, window: Window | None = None, index: int = 0) -> Run:
        """Return the part of a run that started in a window, with facts about the full run.

        Parameters
        ----------
        run
            The run that was read for the window.
        window, index
            The window and its index. The window is None if `run` contains no task runs and
            transfers.
        """
        first, last = self.seen
        history = run.under_way_history
        known = dataclasses.replace(
            run,
            begin=self.begin,
            end=self.end,
            workers=run.workers.assign(first_seen=first, last_seen=last),
            under_way=history.iloc[self.open].reset_index(drop=True),
        )
        self._known(known, self.bounds)
        if window is None:
            return known
        begin, end = window.begin - self.begin, window.end - self.begin
        until = Window(-np.inf, window.end + self.around / 2)
        started = _taken(known, window)
        around = self._with_early(_taken(known, until, sent=True), until.end, index)
        # Unfinished task runs may limit the bounds further, which all windows must know first.
        bounds = self.bounds if self.knows_end or not len(self.open) else None
        self._known(started, bounds)
        self._known(around, bounds)
        if self.knows_end and self.attempts is not None:
            before = self.attempts[self.attempts["window"] < index].groupby(level=0)
            earlier = before.agg({"attempts": "sum", "follows": "last"})
            earlier_attempts.set_result(started, earlier)
        part_of.set_result(started, Part(around, *to_ticks(np.array([begin, end])).tolist()))
        return started

    def of_window(self, index: int) -> Extent:
        """Return the extent for a window. `early` only contains what this window needs."""
        nothing = (pd.DataFrame(), pd.DataFrame())
        # A window needs the early task runs of later windows only.
        early = [nothing] * min(index + 1, len(self.early))
        return dataclasses.replace(self, early=[*early, *self.early[index + 1 :]])

    def _known(self, run: Run, bounds: Bounds | None) -> None:
        """Store facts about the full run in `run`.

        `bounds` is the result of `message_bounds`. Facts that are not known yet are left out.
        """
        # Analyses of the run then return these facts instead of computing them.
        if bounds is not None:
            message_bounds.set_result(run, bounds)
        if self.interrupted is not None:
            interrupted_ends.set_result(run, self.interrupted)
        if self.knows_end:
            assert self.live is not None
            assert self.most is not None
            live_at_counts.set_result(run, self.live)
            most_slots.set_result(run, self.most)
            find_run_end.set_result(run, self.run_end)

    def _with_early(self, around: Run, until: float, index: int) -> Run:
        """Add the task runs of later windows that arrived before `until`."""

        def extended(table: pd.DataFrame, at: int) -> pd.DataFrame:
            rows = [pair[at] for pair in self.early[index + 1 :] if len(pair[at])]
            if not rows:
                return table
            more = pd.concat(rows, ignore_index=True)
            begins = scheduler_begins(more, "sent") if at else more["start"].to_numpy()
            early = earliest(more, *CAME, *SENT) < until
            return appended(table, more[(begins >= until) & early].reset_index(drop=True))

        tables = {name: getattr(around, name) for name in ("tasks", "scheduler_only")}
        tables = {name: extended(table, at) for at, (name, table) in enumerate(tables.items())}
        rows, others = open_runs(around)
        return _with_tables(around, tables, OpenRuns(rows, extended(others, 1)))


def _of_several(attempts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join the tables of all windows, and return the rows of keys that occur in several of them.

    The new column ``window`` contains the index of the window. The rows are sorted by it.
    """
    joined = pd.concat([table.assign(window=index) for index, table in enumerate(attempts)])
    return joined[joined.index.duplicated(keep=False)]


def _taken(run: Run, window: Window, *, sent: bool = False) -> Run:
    """Return a run that contains only the rows that began in a window, and no dependencies.

    For `sent`, see `begins_of`.
    """
    masks = map(window.has, begins_of(run, sent=sent))
    names = ("tasks", "scheduler_only", "transfers")
    tables = {
        name: rows_of(getattr(run, name), mask) for name, mask in zip(names, masks, strict=True)
    }
    rows, others = open_runs(run)
    opened = window.has(run.task_runs["start"].to_numpy()[len(run.tasks) :])
    remaining = window.has(scheduler_begins(others, "sent" if sent else "known"))
    return _with_tables(run, tables, OpenRuns(rows_of(rows, opened), rows_of(others, remaining)))


def _with_tables(run: Run, tables: dict[str, Any], unfinished: OpenRuns) -> Run:
    """Return a run in which some tables are replaced, and dependencies are removed."""
    lengths = np.full(len(tables["tasks"]), -1, dtype=np.int32)
    nothing = np.empty(0, dtype=np.int64)
    part = dataclasses.replace(run, **tables, task_dependencies=(lengths, nothing))
    open_runs.set_result(part, unfinished)
    return part


def _narrowest(bounds: Sequence[Bounds]) -> Bounds:
    lower, upper = zip(*bounds, strict=True)
    return np.max(lower, axis=0), np.min(upper, axis=0)
