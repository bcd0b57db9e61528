"""Whether workers were lost evenly in time: what ends them is then no fault of their tasks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.run.worker_exits import Departure, Why
from dasfprof.analysis.wording import Bytes, Count, Figures, Seconds

#: So many gaps between losses are even if such a share of them, of a few all, is near to the
#: median, by a factor.
_EVEN, _FEW, _MOSTLY, _NEAR = 2, 4, 0.75, 1.25


def find_rhythm(run: RunFigures, departures: Mapping[int, Departure]) -> Figures | None:
    """Return how evenly workers were lost to what the trace does not tell; None: they were not."""
    lives = [life for life, one in departures.items() if one.why is Why.UNKNOWN]
    gaps = np.diff(np.sort(run.trace.workers["left"].to_numpy(dtype=float)[lives]))
    if len(gaps) < _EVEN or not gaps.min() > 0:
        return None
    middle = np.median(gaps)
    even = (gaps >= middle / _NEAR) & (gaps <= middle * _NEAR)
    if even.mean() < (_MOSTLY if len(gaps) > _FEW else 1.0):
        return None
    shares = [departures[life].memory / departures[life].limit for life in lives]
    most = lives[int(np.argmax(np.nan_to_num(shares)))]
    memory, limit = departures[most].memory, departures[most].limit
    return Figures(
        workers=Count(len(lives)),
        shortest=Seconds(gaps[even].min()),
        longest=Seconds(gaps[even].max()),
        others=Count(np.count_nonzero(~even)),
        memory=Bytes(memory),
        limit=Bytes(limit),
    )


def rhythm_in_words(rhythm: Figures | None) -> str:
    """Say how evenly; empty: they were not."""
    if rhythm is None:
        return ""
    known = np.isfinite(rhythm.memory + rhythm.limit)
    memory = f", with {rhythm.memory} of {rhythm.limit} at most" if known else ""
    but = f", but for {rhythm.others:gap}" if rhythm.others else ""
    return (
        f"{rhythm.workers:worker} were lost one every {rhythm.shortest} to {rhythm.longest}{but}"
        f"{memory}: evenly, as by a clock, such as a probe, a time limit or a script. "
    )
