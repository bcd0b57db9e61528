"""`Told`: what a window of time tells of the whole run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.model.accounting import part_of
from dasfprof.analysis.model.attempts import at_keys
from dasfprof.analysis.model.untold_tasks import live_at_counts
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.run_end import Endings, interrupted_ends
from dasfprof.analysis.run.slots import most_slots
from dasfprof.analysis.run.times import message_bounds
from dasfprof.analysis.trace.under_way import places_not_ended
from dasfprof.database.columns import Array

#: What tells when task runs came to the scheduler, and to their worker.
CAME, SENT = ("scheduler_waiting", "queued"), ("sent", "received")
#: What accounts need of those that came early.
_KEPT = (
    *("worker_id", "run_id", "function", "state", "source", "thread", "start", "duration"),
    *("received", "ready", "executing", "seceded", "done", "scheduler_state", "scheduler_start"),
    *("scheduler_stop", "scheduler_waiting", "queued", "stolen", "sent", "known", "lost", "reason"),
)
#: Of those that had come to no worker so many are told at least: there are fewer idle threads.
_FEWEST = 1000

#: Two numbers of each worker, in the order of `Trace.workers`: the least and the largest offset of
#: its clock that messages allow; or when its facts begin and end.
Bounds = tuple[Array, Array]


@dataclass(frozen=True)
class Told:
    """What a window tells of the whole run."""

    seen: Bounds
    bounds: Bounds
    interrupted: Array
    #: The places in `Trace.under_way_history` of task runs whose end it does not hold.
    open: Array
    endings: Endings
    #: See `live_at_counts`, and `most_slots`: 0 of workers whose threads are known.
    live: Array
    most: Array
    #: Task runs, and those of the scheduler alone, that came long before the window.
    early: tuple[pd.DataFrame, pd.DataFrame]
    #: See `at_keys`.
    attempts: pd.DataFrame
    #: How many task runs and transfers of workers' files began in it.
    rows: int
    #: By worker the task runs that it tells of, those that the scheduler does as well, and those
    #: that the scheduler alone saw end.
    by_both: Array

    @classmethod
    def of(cls, own: Run, since: float) -> Told:
        """Find that of a window.

        Parameters
        ----------
        own
            What began in the window, see `Extent.tell`.
        since
            Other windows have read what began before, in Unix seconds.
        """
        around, workers = part_of(own).around, own.workers
        nameless = ((workers["kind"] == "worker") & workers["nthreads"].isna()).any()
        threads = max(int(workers["nthreads"].sum()), _FEWEST)
        return cls(
            _seen(own),
            message_bounds(around),
            interrupted_ends(own),
            places_not_ended(around.under_way_history, around.tasks, around.scheduler_only),
            Endings.of(own),
            live_at_counts(own.whole),
            most_slots(around) if nameless else np.zeros(len(workers), dtype=np.int64),
            (
                _early(own.tasks, begins_of(own)[0], since, threads),
                _early(own.scheduler_only, begins_of(own)[1], since, threads),
            ),
            at_keys(own),
            int((own.tasks["source"] == "worker").sum()) + len(own.transfers),
            _by_both(own),
        )


def begins_of(run: Run, *, sent: bool = False) -> tuple[Array, Array, Array]:
    """Return when task runs, those of the scheduler alone and transfers begin.

    Of a run whose function is not known to have begun that is when it was sent, or else its end.
    """
    only = scheduler_begins(run.scheduler_only, "sent" if sent else "known")
    return run.tasks["start"].to_numpy(), only, run.transfers["start"].to_numpy()


def scheduler_begins(runs: pd.DataFrame, otherwise: str) -> Array:
    """Return when task runs of the scheduler begin; `otherwise` names what else stands for that."""
    start = runs["scheduler_start"].to_numpy(dtype=float)
    return np.where(np.isnan(start), runs[otherwise].to_numpy(dtype=float), start)


def earliest(runs: pd.DataFrame, *names: str) -> Array:
    """Return the first of several times of each task run; NaN: none is known."""
    times: Array = np.fmin.reduce(runs.reindex(columns=names).to_numpy(dtype=float), axis=1)
    return times


def _early(runs: pd.DataFrame, begins: Array, since: float, threads: int) -> pd.DataFrame:
    """Return the task runs that came before a time, and began after it: long before they did.

    Those that had been sent to a worker by then; of others as many as there may be threads: no more
    of them explain why those were idle.
    """
    late = begins >= since
    found = [np.flatnonzero(late & (earliest(runs, *SENT) < since))]
    for name in CAME:
        times = earliest(runs, name)
        waiting = np.flatnonzero(late & (times < since))
        found.append(waiting[np.argsort(times[waiting], kind="stable")][:threads])
    rows = np.unique(np.concatenate(found))
    return runs.iloc[rows][[name for name in _KEPT if name in runs]]


def _seen(own: Run) -> Bounds:
    """Return when the task runs and transfers of each worker begin and end."""
    count = len(own.workers)
    first, last = np.full(count, np.nan), np.full(count, np.nan)
    only = own.scheduler_only
    spans = [
        (table["worker_id"], table["start"], table["start"] + table["duration"])
        for table in (own.tasks, own.transfers)
    ]
    for columns in [*spans, (only["worker_id"], only["sent"], only["known"])]:
        who, begins, ends = (column.to_numpy() for column in columns)
        kept = np.isfinite(begins) & np.isfinite(ends)
        np.fmin.at(first, who[kept], begins[kept])
        np.fmax.at(last, who[kept], ends[kept])
    return first, last


def _by_both(own: Run) -> Array:
    tasks, only = own.tasks, own.scheduler_only
    joined = tasks["sent"].notna() if "sent" in tasks else np.zeros(len(tasks), dtype=bool)
    ids = [table["worker_id"] for table in (tasks, tasks[joined], only[only["lost"]])]
    count = len(own.workers)
    return np.stack([np.bincount(who[who >= 0], minlength=count) for who in ids])
