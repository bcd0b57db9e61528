"""What only the whole run tells: `Extent`, which its windows find together, and each then knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.large.told import (
    CAME,
    SENT,
    Bounds,
    Told,
    begins_of,
    earliest,
    scheduler_begins,
)
from dasfprof.analysis.large.windows import Window
from dasfprof.analysis.model.accounting import Part, part_of
from dasfprof.analysis.model.attempts import earlier_attempts
from dasfprof.analysis.model.untold_tasks import live_at_counts
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import tell
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
from dasfprof.database.columns import Array

#: Seconds around a window that are read as well: more than a worker and the scheduler, by their
#: clocks, tell of the same run at different times.
AROUND = 10.0


@dataclass(frozen=True)
class Extent:
    """What only the whole run tells; None: not yet known."""

    begin: float
    end: float
    seen: Bounds
    #: Seconds around each window that are read as well.
    around: float
    open: Array
    bounds: Bounds | None = None
    #: With task runs that had not ended.
    bounds_of_open: Bounds | None = None
    interrupted: Array | None = None
    live: Array | None = None
    most: Array | None = None
    #: The attempts at keys that several windows have, see `at_keys`, with the place of the window.
    attempts: pd.DataFrame | None = None
    #: What each window tells of what came before it, in their order.
    early: Sequence[tuple[pd.DataFrame, pd.DataFrame]] = ()
    #: How many task runs and transfers of workers' files began in the windows.
    rows: int = 0
    #: Whether what was read around windows is enough for how far clocks are apart: else a worker
    #: and the scheduler may have told of the same runs in different windows.
    clocks_fit: bool = True
    #: How the run ended, if that is known.
    run_end: RunEnd | None = None
    knows_end: bool = False

    @classmethod
    def of(cls, frame: Run, begin: float, end: float) -> Extent:
        """Find what is known before windows were read.

        Parameters
        ----------
        frame
            The run without task runs and transfers.
        begin, end
            When the first of these begins, and the last ends.
        """
        delays = np.abs(frame.clocks["scheduler_delay"].to_numpy(dtype=float))
        around = max(AROUND, 5 * float(np.fmax.reduce(delays, initial=0.0)))
        seen = (
            frame.workers["first_seen"].to_numpy(),
            frame.workers["last_seen"].to_numpy(),
        )
        begin, end = float(np.fmin(begin, frame.begin)), float(np.fmax(end, frame.end))
        return cls(begin, end, seen, around, np.empty(0, dtype=np.int64))

    def widened(self, frame: Run, told: Sequence[Told]) -> Extent:
        """Return what all windows tell together."""
        seen = _widest([self.seen, *(one.seen for one in told)])
        opens, counts = np.unique(np.concatenate([one.open for one in told]), return_counts=True)
        lower, upper = bounds = _narrowest([one.bounds for one in told])
        of_worker, of_both, of_scheduler = np.sum([one.by_both for one in told], axis=0)
        apart = np.maximum(lower, -upper) > self.around / 4
        apart |= (of_worker > 0) & (of_both == 0) & (of_scheduler > 0)
        return dataclasses.replace(
            self,
            begin=float(np.fmin(frame.begin, np.fmin.reduce(seen[0], initial=np.nan))),
            end=float(np.fmax(frame.end, np.fmax.reduce(seen[1], initial=np.nan))),
            seen=seen,
            open=opens[counts == len(told)],
            bounds=bounds,
            interrupted=np.concatenate([one.interrupted for one in told]),
            live=np.sum([one.live for one in told], axis=0),
            most=np.max([one.most for one in told], axis=0),
            attempts=_of_several([one.attempts for one in told]),
            early=[one.early for one in told],
            rows=sum(one.rows for one in told),
            clocks_fit=not apart.any(),
        )

    def may_be_unfinished(self, frame: Run, told: Sequence[Told]) -> bool:
        """Return whether only all windows tell that nothing was under way as the run ended."""
        nothing = dataclasses.replace(Endings.of(self.tell(frame)), last=np.nan)
        return (
            len(self.open) > 0
            or any(one.endings.open or np.isfinite(one.endings.given_up) for one in told)
            or run_end_of(self.tell(frame), nothing) is not None
        )

    def with_end(self, frame: Run, told: Sequence[Told]) -> Extent:
        """Return what windows tell that know of each other which task runs had not ended."""
        endings = Endings.of_all([one.endings for one in told])
        return dataclasses.replace(
            self,
            bounds_of_open=_narrowest([one.bounds for one in told]),
            live=np.sum([one.live for one in told], axis=0),
            most=np.max([one.most for one in told], axis=0),
            attempts=_of_several([one.attempts for one in told]),
            run_end=run_end_of(self.tell(frame), endings),
        )

    def tell(self, run: Run, window: Window | None = None, place: int = 0) -> Run:
        """Return what began in a window, which then knows of the whole run and of its `Part`.

        Parameters
        ----------
        run
            What was read for the window.
        window, place
            The window, and which it is; None: the run without task runs and transfers.
        """
        first, last = self.seen
        history = run.under_way_history
        whole = dataclasses.replace(
            run,
            begin=self.begin,
            end=self.end,
            workers=run.workers.assign(first_seen=first, last_seen=last),
            under_way=history.iloc[self.open].reset_index(drop=True),
        )
        opened = with_open_runs(self._known(whole, self.bounds))
        bounds = self.bounds if opened is whole else self.bounds_of_open
        self._known(opened, bounds)
        if window is None:
            return whole
        begin, end = window.begin - self.begin, window.end - self.begin
        own = of_own = self._known(_taken(whole, *map(window.has, begins_of(whole))), self.bounds)
        if opened is not whole:
            of_own = _taken(opened, *map(window.has, begins_of(opened)))
        until = Window(-np.inf, window.end + self.around / 2)
        around = _taken(opened, *map(until.has, begins_of(opened, sent=True)))
        around = self._with_early(around, until.end, place)
        for one in (of_own, around):
            tell(self._known(one, bounds), with_open_runs, one)
        tell(own, with_open_runs, of_own)
        if self.knows_end and self.attempts is not None:
            before = self.attempts[self.attempts["window"] < place].groupby(level=0)
            tell(own, earlier_attempts, before.agg({"attempts": "sum", "follows": "last"}))
        tell(own, part_of, Part(around, *to_ticks(np.array([begin, end])).tolist()))
        return own

    def of_window(self, place: int) -> Extent:
        """Return what a window needs to know: of others, only what the later ones tell."""
        nothing = (pd.DataFrame(), pd.DataFrame())
        early = [nothing] * min(place + 1, len(self.early))
        return dataclasses.replace(self, early=[*early, *self.early[place + 1 :]])

    def _known(self, run: Run, bounds: Bounds | None) -> Run:
        """Return a trace that was told what is known of the whole run."""
        if bounds is not None:
            tell(run, message_bounds, bounds)
        if self.interrupted is not None:
            tell(run, interrupted_ends, self.interrupted)
        if self.knows_end:
            assert self.live is not None
            assert self.most is not None
            tell(run, live_at_counts, self.live)
            tell(run, most_slots, self.most)
            tell(run, find_run_end, self.run_end)
        return run

    def _with_early(self, around: Run, until: float, place: int) -> Run:
        """Add task runs that later windows tell of, and that came before a time."""
        tables = {}
        for name, at in (("tasks", 0), ("scheduler_only", 1)):
            rows = [pair[at] for pair in self.early[place + 1 :] if len(pair[at])]
            tables[name] = getattr(around, name)
            if rows:
                more = pd.concat(rows, ignore_index=True)
                begins = scheduler_begins(more, "sent") if at else more["start"].to_numpy()
                early = earliest(more, *CAME, *SENT) < until
                more = more[(begins >= until) & early].reset_index(drop=True)
                tables[name] = appended(tables[name], more)
        lengths = np.full(len(tables["tasks"]), -1, dtype=np.int32)
        nothing = np.empty(0, dtype=np.int64)
        return dataclasses.replace(around, **tables, task_dependencies=(lengths, nothing))


def _of_several(attempts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return what windows tell of the keys that another window has as well, in their order."""
    hashes = np.sort(np.concatenate([one.index.to_numpy() for one in attempts]))
    several = np.unique(hashes[:-1][hashes[:-1] == hashes[1:]])
    of_windows = [
        one[np.isin(one.index.to_numpy(), several)].assign(window=place)
        for place, one in enumerate(attempts)
    ]
    return pd.concat(of_windows)


def _taken(run: Run, tasks: Array, only: Array, transfers: Array) -> Run:
    """Return a trace with some of its rows; the graph is left out."""
    tables = {"tasks": tasks, "scheduler_only": only, "transfers": transfers}
    taken = {
        name: getattr(run, name) if kept.all() else getattr(run, name)[kept].reset_index(drop=True)
        for name, kept in tables.items()
    }
    lengths = np.full(len(taken["tasks"]), -1, dtype=np.int32)
    nothing = np.empty(0, dtype=np.int64)
    return dataclasses.replace(run, **taken, task_dependencies=(lengths, nothing))


def _widest(spans: Sequence[Bounds]) -> Bounds:
    firsts, lasts = zip(*spans, strict=True)
    return np.fmin.reduce(firsts), np.fmax.reduce(lasts)


def _narrowest(bounds: Sequence[Bounds]) -> Bounds:
    lower, upper = zip(*bounds, strict=True)
    return np.max(lower, axis=0), np.min(upper, axis=0)
