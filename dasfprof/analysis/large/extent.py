"""Facts about the full run, which no single window can compute.

`Extent` merges those of all windows and passes the result to each window.
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
from dasfprof.analysis.run.open_runs import appended, with_open_runs
from dasfprof.analysis.run.run_end import (
    Endings,
    RunEnd,
    find_run_end,
    interrupted_ends,
    run_end_of,
)
from dasfprof.analysis.run.slots import most_slots
from dasfprof.analysis.run.times import message_bounds, to_ticks
from dasfprof.analysis.trace.trace import set_result
from dasfprof.analysis.trace.under_way import places_not_ended
from dasfprof.database.columns import Array

# --- WindowSummary: facts that a window contributes ----------------------------------------------

#: Columns with the times at which task runs came to the scheduler, and to their worker.
CAME, SENT = ("scheduler_waiting", "queued"), ("sent", "received")
#: Columns that accounts need of task runs that came early.
_KEPT = (
    *("worker_id", "run_id", "function", "state", "source", "thread", "start", "duration"),
    *("received", "ready", "executing", "seceded", "done", "scheduler_state", "scheduler_start"),
    *("scheduler_stop", "scheduler_waiting", "queued", "stolen", "sent", "known", "lost", "reason"),
)
#: Minimum number of task runs without a worker that are reported. There are fewer idle threads.
_FEWEST = 1000

#: Two numbers per worker, in the order of `Trace.workers`: either minimum and maximum clock offset
#: that messages allow, or start and end of its events.
Bounds = tuple[Array, Array]


class WindowSummary(NamedTuple):
    """Facts that a window contributes to the analysis of the full run."""

    seen: Bounds
    bounds: Bounds
    interrupted: Array
    #: Indices in `Trace.under_way_history` of task runs whose end is not in the window.
    open: Array
    endings: Endings
    #: See `live_at_counts` and `most_slots`. The latter is 0 for workers with a known number of
    #: threads.
    live: Array
    most: Array
    #: Task runs, and task runs that only the scheduler recorded, that came long before the window.
    early: tuple[pd.DataFrame, pd.DataFrame]
    #: See `at_keys`.
    attempts: pd.DataFrame
    #: Numbers of task runs and transfers in workers' files that started in the window.
    rows: int
    #: By worker: task runs in its files, those that the scheduler also recorded, and those that
    #: only the scheduler saw end.
    by_both: Array

    @classmethod
    def from_run(cls, run: Run, since: float) -> WindowSummary:
        """Return the facts of a window.

        Parameters
        ----------
        run
            What started in the window, see `Extent.run_of`.
        since
            Unix seconds. Other windows contribute what started earlier.
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
            live_at_counts(run.whole),
            most_slots(around) if nameless else np.zeros(len(workers), dtype=np.int64),
            (_early(tasks, begins, since, threads), _early(only, only_begins, since, threads)),
            at_keys(run),
            int((tasks["source"] == "worker").sum()) + len(run.transfers),
            np.stack([np.bincount(who[who >= 0], minlength=len(workers)) for who in ids]),
        )


def begins_of(run: Run, *, sent: bool = False) -> tuple[Array, Array, Array]:
    """Return the start times of task runs, of task runs of the scheduler alone, and of transfers.

    If it is unknown when a function started, this is the time of the assignment, or the end.
    """
    only = scheduler_begins(run.scheduler_only, "sent" if sent else "known")
    return run.tasks["start"].to_numpy(), only, run.transfers["start"].to_numpy()


def scheduler_begins(runs: pd.DataFrame, otherwise: str) -> Array:
    """Return start times of the scheduler's task runs. `otherwise` is the fallback column."""
    start = runs["scheduler_start"].to_numpy(dtype=float)
    return np.where(np.isnan(start), runs[otherwise].to_numpy(dtype=float), start)


def earliest(runs: pd.DataFrame, *names: str) -> Array:
    """Return the earliest of several times of each task run, or NaN if none is known."""
    return np.fmin.reduce(runs.reindex(columns=names).to_numpy(dtype=float), axis=1)


def _early(runs: pd.DataFrame, begins: Array, since: float, threads: int) -> pd.DataFrame:
    """Return task runs that arrived before a time and started long after their arrival.

    All task runs that were assigned to a worker by that time are included. Of the others, as many
    are included as there may be threads, because more would not explain additional idle threads.
    """
    late = begins >= since
    parts = [np.flatnonzero(late & (earliest(runs, *SENT) < since))]
    for name in CAME:
        times = earliest(runs, name)
        waiting = np.flatnonzero(late & (times < since))
        parts.append(waiting[np.argsort(times[waiting], kind="stable")][:threads])
    return runs.iloc[np.unique(np.concatenate(parts))][[name for name in _KEPT if name in runs]]


def _seen(run: Run) -> Bounds:
    """Return the start and end of the task runs and transfers of each worker."""
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


# --- Extent: facts about the full run, merged from all windows ------------------------------------

#: Seconds around a window that are read as well. A worker and the scheduler may record the same run
#: at times that differ by less, because of their clocks.
AROUND = 10.0


@dataclass(frozen=True)
class Extent:
    """Facts about the full run. None if not yet known."""

    begin: float
    end: float
    seen: Bounds
    #: Seconds around each window that are read as well.
    around: float
    open: Array
    bounds: Bounds | None = None
    #: Including task runs that had not ended.
    bounds_of_open: Bounds | None = None
    interrupted: Array | None = None
    live: Array | None = None
    most: Array | None = None
    #: Attempts at keys that several windows have (see `at_keys`), with the index of the window.
    attempts: pd.DataFrame | None = None
    #: What each window contributes about the time before it, in the order of windows.
    early: Sequence[tuple[pd.DataFrame, pd.DataFrame]] = ()
    #: Numbers of task runs and transfers in workers' files that started in the windows.
    rows: int = 0
    #: Whether the time around windows is long enough for the clock offsets. If not, a worker and
    #: the scheduler may have recorded the same runs in different windows.
    clocks_fit: bool = True
    #: How the run ended, if known.
    run_end: RunEnd | None = None
    knows_end: bool = False

    @classmethod
    def before_reading(cls, frame: Run, begin: float, end: float) -> Extent:
        """Return the facts that are known before windows are read.

        Parameters
        ----------
        frame
            The run without task runs and transfers.
        begin, end
            Start of the first and end of the last of these.
        """
        delays = np.abs(frame.clocks["scheduler_delay"].to_numpy(dtype=float))
        around = max(AROUND, 5 * float(np.fmax.reduce(delays, initial=0.0)))
        seen = (frame.workers["first_seen"].to_numpy(), frame.workers["last_seen"].to_numpy())
        begin, end = float(np.fmin(begin, frame.begin)), float(np.fmax(end, frame.end))
        return cls(begin, end, seen, around, np.empty(0, dtype=np.int64))

    def widened(self, frame: Run, windows: Sequence[WindowSummary]) -> Extent:
        """Return the extent with the facts of all windows."""
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
        """Return whether work may have been unfinished at the end of the run.

        If so, facts about the end need all windows. See `with_end`.
        """
        nothing = dataclasses.replace(Endings.from_trace(self.run_of(frame)), last=np.nan)
        return (
            len(self.open) > 0
            or any(window.endings.open for window in windows)
            or any(np.isfinite(window.endings.cancelled) for window in windows)
            or run_end_of(self.run_of(frame), nothing) is not None
        )

    def with_end(self, frame: Run, windows: Sequence[WindowSummary]) -> Extent:
        """Return the extent with facts of windows that know each other's unfinished task runs."""
        endings = Endings.merged([window.endings for window in windows])
        return dataclasses.replace(
            self,
            bounds_of_open=_narrowest([window.bounds for window in windows]),
            live=np.sum([window.live for window in windows], axis=0),
            most=np.max([window.most for window in windows], axis=0),
            attempts=_of_several([window.attempts for window in windows]),
            run_end=run_end_of(self.run_of(frame), endings),
        )

    def run_of(self, run: Run, window: Window | None = None, index: int = 0) -> Run:
        """Return what started in a window, as a run with facts about the full run and its `Part`.

        Parameters
        ----------
        run
            What was read for the window.
        window, index
            The window and its index. None for the run without task runs and transfers.
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
        opened = with_open_runs(self._known(known, self.bounds))
        bounds = self.bounds if opened is known else self.bounds_of_open
        self._known(opened, bounds)
        if window is None:
            return known
        begin, end = window.begin - self.begin, window.end - self.begin
        started = with_open = self._known(
            _taken(known, *map(window.has, begins_of(known))), self.bounds
        )
        if opened is not known:
            with_open = _taken(opened, *map(window.has, begins_of(opened)))
        until = Window(-np.inf, window.end + self.around / 2)
        around = _taken(opened, *map(until.has, begins_of(opened, sent=True)))
        around = self._with_early(around, until.end, index)
        for part in (with_open, around):
            set_result(self._known(part, bounds), with_open_runs, part)
        set_result(started, with_open_runs, with_open)
        if self.knows_end and self.attempts is not None:
            before = self.attempts[self.attempts["window"] < index].groupby(level=0)
            set_result(
                started, earlier_attempts, before.agg({"attempts": "sum", "follows": "last"})
            )
        set_result(started, part_of, Part(around, *to_ticks(np.array([begin, end])).tolist()))
        return started

    def of_window(self, index: int) -> Extent:
        """Return the extent that a window needs, which has only the facts of later windows."""
        nothing = (pd.DataFrame(), pd.DataFrame())
        early = [nothing] * min(index + 1, len(self.early))
        return dataclasses.replace(self, early=[*early, *self.early[index + 1 :]])

    def _known(self, run: Run, bounds: Bounds | None) -> Run:
        """Return the trace with the known facts about the full run."""
        if bounds is not None:
            set_result(run, message_bounds, bounds)
        if self.interrupted is not None:
            set_result(run, interrupted_ends, self.interrupted)
        if self.knows_end:
            assert self.live is not None
            assert self.most is not None
            set_result(run, live_at_counts, self.live)
            set_result(run, most_slots, self.most)
            set_result(run, find_run_end, self.run_end)
        return run

    def _with_early(self, around: Run, until: float, index: int) -> Run:
        """Add task runs of later windows that came before a time."""
        tables = {}
        for name, at in (("tasks", 0), ("scheduler_only", 1)):
            rows = [pair[at] for pair in self.early[index + 1 :] if len(pair[at])]
            tables[name] = getattr(around, name)
            if rows:
                more = pd.concat(rows, ignore_index=True)
                begins = scheduler_begins(more, "sent") if at else more["start"].to_numpy()
                early = earliest(more, *CAME, *SENT) < until
                more = more[(begins >= until) & early].reset_index(drop=True)
                tables[name] = appended(tables[name], more)
        return _without_graph(around, tables)


def _of_several(attempts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of keys that occur in several windows, in the order of windows."""
    joined = pd.concat([table.assign(window=index) for index, table in enumerate(attempts)])
    return joined[joined.index.duplicated(keep=False)]


def _taken(run: Run, tasks: Array, only: Array, transfers: Array) -> Run:
    """Return a trace with some of its rows, without the graph."""
    tables = {"tasks": tasks, "scheduler_only": only, "transfers": transfers}
    taken = {
        name: getattr(run, name) if rows.all() else getattr(run, name)[rows].reset_index(drop=True)
        for name, rows in tables.items()
    }
    return _without_graph(run, taken)


def _without_graph(run: Run, tables: dict[str, Any]) -> Run:
    """Return a trace with other tables, without the dependencies of its tasks."""
    lengths = np.full(len(tables["tasks"]), -1, dtype=np.int32)
    nothing = np.empty(0, dtype=np.int64)
    return dataclasses.replace(run, **tables, task_dependencies=(lengths, nothing))


def _narrowest(bounds: Sequence[Bounds]) -> Bounds:
    lower, upper = zip(*bounds, strict=True)
    return np.max(lower, axis=0), np.min(upper, axis=0)
