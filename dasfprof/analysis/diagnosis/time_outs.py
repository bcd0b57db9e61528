"""What to do about time-outs: how long a function takes is held against how long it was given."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.database.columns import Array
from dasfprof.text import format_duration

#: The ends of the names of errors that say that a limit of time was reached.
_TIME_OUTS = ("TimeoutError", "Timeout", "TimeoutExpired")
#: The limit is far from what a function takes if it is so many times the longest of its tasks.
_FAR = 2.0


def is_time_out(category: object) -> bool:
    """Return whether errors of a category say that a limit of time was reached."""
    return str(category).endswith(_TIME_OUTS)


def limit_or_cause(run: RunFigures, name: str) -> str:
    """Say whether the limit of a function whose tasks timed out is too low, or they hung."""
    own = run.attempts[(run.attempts["function"] == name).to_numpy(dtype=bool)]
    seconds = own["run"].to_numpy(dtype=float)
    late = np.array([is_time_out(category) for category in own["category"]], dtype=bool)
    ran, took = seconds[late], seconds[own["succeeded"].to_numpy(dtype=bool)]
    ran, took = ran[np.isfinite(ran)], took[np.isfinite(took)]
    given = f"those that timed out had run for {format_duration(_median(ran))} (the median)"
    begin = f"Hold what {name} takes against its limit:"
    if not len(took):
        return (
            f"{begin} none of its tasks ended well, so that nothing tells how long they take; "
            f"{given}. Run one without the limit."
        )
    most = float(took.max())
    told = (
        f"{begin} those that ended well took {format_duration(_median(took))} (the median), "
        f"{format_duration(most)} at most; {given}. "
    )
    if _median(ran) >= _FAR * most:
        return told + "So the limit is not too low: look at what they waited for, and retry that."
    return told + "Set the limit well above what they take, or give each task less to do."


def _median(seconds: Array) -> float:
    return float(np.median(seconds)) if len(seconds) else float("nan")
