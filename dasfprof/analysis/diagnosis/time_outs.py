"""What to do about time-outs: how long a function takes is held against how long it was given."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.wording import Figures, Seconds
from dasfprof.database.columns import Array

#: The ends of the names of errors that say that a limit of time was reached.
_TIME_OUTS = ("TimeoutError", "Timeout", "TimeoutExpired")
#: The limit is far from what a function takes if it is so many times the longest of its tasks.
_FAR = 2.0


def is_time_out(category: object) -> bool:
    """Return whether errors of a category say that a limit of time was reached."""
    return str(category).endswith(_TIME_OUTS)


def find_limit(run: RunFigures, name: str, category: object) -> Figures | None:
    """Return what tells the limit of a function whose tasks timed out; None of other errors.

    That is how long they had run, and those that ended well (NaN: none did), in the median and at
    most.
    """
    if not is_time_out(category):
        return None
    own = run.attempts[(run.attempts["function"] == name).to_numpy(dtype=bool)]
    seconds = own["run"].to_numpy(dtype=float)
    late = np.array([is_time_out(category) for category in own["category"]], dtype=bool)
    ran, took = seconds[late], seconds[own["succeeded"].to_numpy(dtype=bool)]
    most = Seconds(np.fmax.reduce(took, initial=np.nan))
    return Figures(ran=_median(ran), took=_median(took), most=most)


def limit_or_cause(function: str, limit: Figures) -> str:
    """Say whether the limit of a function whose tasks timed out is too low, or they hung."""
    given = f"those that timed out had run for {limit.ran} (the median)"
    begin = f"Hold what {function} takes against its limit:"
    if np.isnan(limit.most):
        return (
            f"{begin} none of its tasks ended well, so that nothing tells how long they take; "
            f"{given}. Run one without the limit."
        )
    told = (
        f"{begin} those that ended well took {limit.took} (the median), {limit.most} at most; "
        f"{given}. "
    )
    if limit.ran >= _FAR * limit.most:
        return told + "So the limit is not too low: look at what they waited for, and retry that."
    return told + "Set the limit well above what they take, or give each task less to do."


def _median(seconds: Array) -> Seconds:
    seconds = seconds[np.isfinite(seconds)]
    return Seconds(np.median(seconds) if len(seconds) else "nan")
