"""Which methods of actors were called, how often, and how long that took."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text
from dasfprof.analysis.trace import Trace
from dasfprof.errors import InvalidArgumentError

By = Literal["method", "actor"]

#: What is summed up of calls, and of what type.
_SUMS = {
    "Calls": "int64",
    "Failed": "int64",
    "Unanswered": "int64",
    "Time (s)": "float64",
    "Under Way (s)": "float64",
    "Mean (s)": "float64",
    "Median (s)": "float64",
    "Longest (s)": "float64",
}


def has_actor_calls(trace: Trace) -> bool:
    """Return whether calls of actors were recorded."""
    return len(trace.actor_calls) > 0


@question("Calls of actors", "balance", needs=has_actor_calls)
def actor_calls(run: Run, by: By = "method") -> pd.DataFrame:
    """Sum up the calls of methods of actors, which are no tasks and hold no thread of tasks.

    A call counts from its arrival at the worker that has the actor until its answer. One thread of
    a worker runs the methods of all its actors in turns, coroutines aside, and the wait for it
    counts. Calls that had no answer when recording ended count until then; those of a worker that
    was killed are not there. Neither are those that an actor makes of another one on its own
    worker: they are parts of the calls around them.

    Parameters
    ----------
    by
        ``"method"``, or ``"actor"``: each actor by itself, all of its methods together.

    Returns
    -------
    DataFrame
        A row a method or actor, the longest time first: ``Actor`` (its class, as Dask names its
        key; or its key), ``Method`` or ``Worker``, ``Calls``, ``Failed`` (that raised something,
        or were given up), ``Unanswered`` (when recording ended), ``Time (s)`` (summed over
        calls, side by side ones too), ``Under Way (s)`` (the time in which there was one at
        least), ``Mean (s)``, ``Median (s)``, ``Longest (s)``.
    """
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(By))}.")
    calls = run.trace.actor_calls
    if by == "method":
        codes, functions = run.trace.keys.functions()
        actor = np.array(functions, dtype=object)[codes[calls["key_id"].to_numpy()]]
        second, other = "Method", calls["method"].astype(object).to_numpy()
    else:
        actor = run.trace.keys.texts(calls["key_id"].to_numpy())
        labels = run.labels
        second, other = "Worker", labels[calls["worker_id"].to_numpy()]
    whose = pd.DataFrame({"Actor": text(actor), second: text(other)})
    named = ["Actor", second]
    found = whose.groupby(named).indices
    sums = [_sums(calls.iloc[places]) for places in found.values()]
    names = pd.DataFrame(list(found), columns=named, dtype=object)
    table = names.join(pd.DataFrame(sums, columns=list(_SUMS)).astype(_SUMS))
    return table.sort_values("Time (s)", ascending=False, kind="stable", ignore_index=True)


def _sums(calls: pd.DataFrame) -> tuple[float, ...]:
    start, seconds = (calls[name].to_numpy(dtype=float) for name in ("start", "duration"))
    begins, ends = union(start, start + seconds)
    return (
        len(calls),
        int((calls["state"] == "failed").sum()),
        int((calls["state"] == "unanswered").sum()),
        float(seconds.sum()),
        float((ends - begins).sum()),
        float(seconds.mean()),
        float(np.median(seconds)),
        float(seconds.max()),
    )
