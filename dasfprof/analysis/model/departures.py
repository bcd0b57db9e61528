"""Reasons for the loss of workers with tasks, including losses at a common age."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dasfprof.analysis.model.attempts import WORKER_LOST, find_attempts
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import Departure, Why, departure
from dasfprof.analysis.trace.trace import once_per_trace

#: Thresholds for workers that were lost because of their age: minimum number of losses, and maximum
#: difference of their ages in seconds or as a fraction. In addition, the times of the losses must
#: differ by more than the ages, and they must be at least half of all unexplained losses.
_SAME_AGE, _AGE_SECONDS, _AGE_FRACTION = 3, 2.0, 0.05
#: Thresholds for a loss that age may explain: maximum fraction of the memory limit that the worker
#: used, and maximum fraction of its age for which one of its lost tasks had run. A task that had
#: run longer may itself be the reason for the loss.
_FAR, _PART_OF_AGE = 0.5, 0.5


@once_per_trace
def departures_of(run: Run) -> dict[int, Departure]:
    """Return how worker instances with tasks were lost, by row of `Trace.workers`."""
    attempts = find_attempts(run)
    attempts = attempts[(attempts["category"] == WORKER_LOST).to_numpy(dtype=bool)]
    departures = {life: departure(run, life) for life in np.unique(attempts["life"]).tolist()}
    workers, tasks = run.workers, run.tasks["worker_id"].to_numpy()
    left, started = (workers[name].to_numpy(dtype=float) for name in ("left", "started"))
    ages, lost = left - started, attempts[np.isfinite(attempts["run"]).to_numpy(dtype=bool)]

    def may_be(life: int, ended: Departure) -> bool:
        said = isinstance(workers["exit_reason"].iloc[life], str)
        by_host = ended.why is Why.MEMORY and ended.host_was_full and not said
        ran = lost["run"][(lost["life"] == life).to_numpy(dtype=bool)].max()
        return (
            (by_host or ended.why is Why.UNKNOWN)
            and ended.memory < _FAR * ended.limit
            and bool((tasks == life).any())
            and not ran > _PART_OF_AGE * ages[life]
            and np.isfinite(ages[life])
        )

    # Several workers that were lost at the same age probably have a maximum lifetime.
    lives = [life for life, ended in departures.items() if may_be(life, ended)]
    lives.sort(key=lambda life: ages[life])
    spread = max(_AGE_SECONDS, _AGE_FRACTION * ages[lives].max()) if lives else 0.0
    same = max(
        ([life for life in lives if 0 <= ages[life] - ages[first] <= spread] for first in lives),
        key=len,
        default=[],
    )
    keys = lost["key_id"][lost["life"].isin(same).to_numpy(dtype=bool)]
    again = lost["life"][keys.index[keys.duplicated(keep=False)]].nunique()
    last = np.where(np.isnan(left), workers["last_seen"].to_numpy(dtype=float), left) - started
    # Age is not the reason if some worker became older, or if the same tasks were running in more
    # than half of the losses.
    if (
        len(same) < max(_SAME_AGE, len(lives) / 2)
        or np.ptp(left[same]) <= 2 * spread
        or again > len(same) / 2
        or np.nanmax(last) > ages[same].max() + spread
    ):
        return departures
    bounds = float(ages[same].min()), float(ages[same].max())
    aged = {life: replace(departures[life], why=Why.AGE, ages=bounds) for life in same}
    return {**departures, **aged}


def departure_of(run: Run, life: int) -> Departure:
    """Return how one worker instance ended."""
    return departures_of(run).get(life) or departure(run, life)
