"""Rules about the course of a run: gaps of the client, and functions that get slower."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.units import count, duration, percent, times
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.degradation import LAST_BY_FIRST
from dasfprof.database.columns import Array

#: Shares of the threads' time and of the critical path for which nothing was submitted.
_GAP_LANES = 0.1
_GAP_PATH = 0.05
#: A gap counts if it is as long.
_GAP = 0.01
_DEGRADES = 0.05


@rule(
    "client-gaps",
    symptoms=(
        "too-few-tasks",
        "serial-chain",
        "imbalance",
    ),
)
def client_gaps(run: RunFigures) -> Iterator[Finding]:
    """Find times for which the cluster had nothing to do, as the client had not submitted more."""
    idle, path = run.unsubmitted, run.path_segments
    gaps = np.flatnonzero((path.kind == SegmentKind.CLIENT) & (path.length >= _GAP))
    seconds = float(path.length[gaps].sum())
    if not len(gaps) or idle < _GAP_LANES * run.wall or seconds < _GAP_PATH * run.wall:
        return
    longest = gaps[path.length[gaps].argmax()]
    begin, length = float(path.begin[longest]), float(path.length[longest])
    function = run.slots.functions[run.slots.function[path.rows[longest]]]
    yield Finding(
        f"The cluster waits for the client: for {duration(seconds)} ({percent(seconds / run.wall)} "
        f"of the run) nothing was submitted, in {count(len(gaps), 'gap')}.",
        f"The longest, {duration(length)}, is before {function}. See "
        "critical_path() and time_accounting().",
        "Submit the whole computation at once: dask.compute(a, b, c) or delayed graphs in place of "
        "a compute() each; leave intermediate results on the cluster (persist()) and do the "
        "client's own work between them as tasks.",
        seconds=seconds,
        function=function,
        start=begin,
        stop=begin + length,
    )


@rule(
    "degrading-functions",
    symptoms=(
        "straggling-tasks",
        "dominating-function",
        "blocked-tasks",
        "imbalance",
        "too-few-tasks",
    ),
)
def degrading_functions(run: RunFigures) -> Iterator[Finding]:
    """Find functions whose tasks take longer and longer."""
    trends = run.trends
    rising = trends.rises["run"] & ~trends.rises["input_size"]
    for place in trends.order[rising[trends.order]].tolist():
        change, name = float(trends.change["run"][place]), str(trends.functions[place])
        attempts = count(int(trends.attempts[place]), "attempt")
        code = int(np.flatnonzero(run.function_names == name)[0])
        own = run.functions.codes == code
        # In other steps of the graph the same function may do other work.
        in_one_step = run.width(name) == run.functions.sizes[code]
        if not in_one_step and not trends.count_falls[place]:
            continue
        first, excess = _excess(run, own)
        if excess <= 0:
            continue
        seconds = run.saved(excess * run.path_seconds_of(code), caps={name: first})
        if seconds < _DEGRADES * run.wall:
            continue
        yield Finding(
            f"{name} gets slower as the run goes on: its last tasks take {times(change)} times as "
            "long as its first.",
            f"{trends.verdicts[place]} {attempts}. See degradation().",
            f"Look in {name} for what grows from call to call: caches, lists and files that are "
            "appended to, connections and memory that are not given back. Restarting workers "
            "(client.restart(), or --lifetime) shows whether the state is theirs.",
            seconds=seconds,
            function=name,
        )


def _excess(run: RunFigures, own: Array) -> tuple[float, float]:
    """Return the seconds of a function's first runs, and the share of all that is beyond them.

    Its first third counts as the first. Waits for a core are left out: a host that gets busier is
    no fault of the function. If without them it does not get slower, the share is 0.
    """
    rows = np.flatnonzero(own & run.succeeded)
    rows = rows[np.argsort(run.slots.times.start[rows], kind="stable")]
    seconds, third = run.working[rows], max(len(rows) // 3, 1)
    first, last = float(seconds[:third].mean()), float(seconds[-third:].mean())
    if last < LAST_BY_FIRST * first:
        return first, 0.0
    return first, max(1 - first / float(seconds.mean()), 0.0)
