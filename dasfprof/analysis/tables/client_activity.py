"""What the client's program did, line by line, and for how long the cluster had nothing to do."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.stack_samples.places import UNKNOWN, all_stacks, import_of, places
from dasfprof.analysis.stack_samples.spent import spent
from dasfprof.analysis.stack_samples.task_samples import Samples
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text, whole
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.under_way.state import Frame
from dasfprof.database.columns import Array


def has_client_samples(trace: Trace) -> bool:
    """Return whether stacks of the client were sampled."""
    return len(trace.client_samples) > 0


@question(
    "What the client did",
    "lines",
    short="client",
    expendable=("Code", "Margin (points)", "Samples"),
    needs=has_client_samples,
)
def client_activity(run: Run) -> pd.DataFrame:
    """Sum up the samples of the client's main thread by phase and line.

    Returns
    -------
    DataFrame
        A row a phase and line of the program, the longest first:

        - ``Phase``: waiting (for the cluster), pickling, optimising, hashing (names for tasks),
          sending (a graph), building (a graph, or another call of Dask's); program: in none
        - ``File``, ``Line``, ``Code`` (the function that it is in): the innermost line of the
          user's own code
        - ``Importing``: the library that was imported there, if one was
        - ``Time (s)``, ``Share (%)``, ``Margin (points)``, ``Computing (s)``, ``Samples``: see
          `hot_lines`
        - ``Cluster Idle (s)``: of this time, that in which no task ran
    """
    table = run.trace.client_samples
    samples = Samples.of(table)
    named = places(run, "line")
    lines = named.of(samples.stack)
    phases = table["phase"].astype("category").cat if len(table) else None
    phase = phases.codes.to_numpy(dtype=np.int64) if phases is not None else lines
    pairs, groups = np.unique(phase * len(named.names) + lines, return_inverse=True)
    groups = groups.reshape(-1)
    found = spent(samples, groups, len(pairs), np.zeros(len(samples), dtype=np.int64))
    idle = Groups(groups, len(pairs)).sum(samples.interval * _is_idle(run, samples.time))
    order = np.argsort(-found.seconds, kind="stable")
    names = [named.names[row] for row in (pairs[order] % max(len(named.names), 1)).tolist()]
    frames = [name if isinstance(name, Frame) else Frame(UNKNOWN, UNKNOWN, -1) for name in names]
    known = [*(map(str, phases.categories) if phases is not None else ()), UNKNOWN]
    imports = _imports(run, samples.stack, groups, len(pairs))
    return pd.DataFrame(
        {
            "Phase": _texts(known[row] for row in (pairs[order] // max(len(named.names), 1))),
            "File": _texts(frame.file for frame in frames),
            "Line": whole(np.array([f.line if f.line >= 0 else np.nan for f in frames], float)),
            "Code": _texts(frame.function for frame in frames),
            "Importing": _texts(imports[row] for row in order.tolist()),
            "Time (s)": found.seconds[order],
            "Share (%)": found.share[order] * 100,
            "Margin (points)": found.margin[order] * 100,
            "Computing (s)": found.computing[order],
            "Cluster Idle (s)": idle[order],
            "Samples": found.samples[order],
        }
    )


def _texts(items: object) -> pd.Series:
    return text(np.array([*items], dtype=object))  # type: ignore[misc]


def _is_idle(run: Run, times: Array) -> Array:
    """Return whether no task ran at each time."""
    tasks = run.all.tasks
    if not len(tasks):
        return np.ones(len(times), dtype=bool)
    start = tasks["start"].to_numpy(dtype=float)
    stop = start + tasks["duration"].to_numpy(dtype=float)
    known = np.isfinite(stop)
    begins, ends = union(start[known], stop[known])
    places = np.searchsorted(begins, times, "right") - 1
    found: Array = (places < 0) | (times > np.r_[ends, -np.inf][places])
    return found


def _imports(run: Run, stacks: Array, groups: Array, count: int) -> list[str]:
    """Return the library that each group imported: that of most of its stacks, or none."""
    frames = all_stacks(run)
    found = [""] * count
    for group, stack in sorted(set(zip(groups.tolist(), stacks.tolist(), strict=True))):
        library = import_of(frames[stack]) if stack >= 0 else None
        found[group] = found[group] or library or ""
    return found
