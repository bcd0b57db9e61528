"""What samples say of a function and of the client, in sentences for the evidence of findings."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.client_time import meanwhile
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import hot_places, places
from dasfprof.analysis.stack_samples.task_samples import Samples
from dasfprof.analysis.under_way.state import Frame, write_frame
from dasfprof.database.columns import Array
from dasfprof.text import clean, count_of, format_share

#: The fewest samples, and the least share of its time, of a line that is named.
_FEWEST, _LEAST = 20, 0.2
#: The share of its time from which a function waits so long for cores that its lines are uncertain.
_STARVED = 0.3
#: The share of a line's time from which it all counts as spent in one call.
_ALL = 0.95
#: The least share of a line's time that is told of.
_WORTH_TELLING = 0.05
#: The least share of the client's time of what is told of it.
_MOSTLY = 0.5

#: What is said of a client that makes graphs.
BUILDS = "builds graphs"
#: What the client was doing in a phase, see the schema's `CLIENT_SAMPLE`.
_DOING = {
    "program": "runs the program's own code",
    "waiting": "waits for the cluster",
    "pickling": "pickles what it sends",
    "optimising": "optimises graphs",
    "hashing": "hashes values to name their tasks",
    "sending": "sends graphs",
    "building": BUILDS,
}


def hottest_line(run: Run, function: str) -> str:
    """Say at which line a function's tasks spend most of their time, and how; empty: unknown.

    A line is named if its share is certain to be a fifth at least, and if the threads had cores
    most of the time: the sampler is on the same host.
    """
    found = hot_places(run, function)
    samples = int(found.spent.samples.sum())
    if samples < _FEWEST or not isinstance(found.names[0], Frame):
        return ""
    share, margin = float(found.spent.share[0]), float(found.spent.margin[0])
    starved = np.nansum(found.spent.core_wait) > _STARVED * found.spent.seconds.sum()
    if share - margin < _LEAST or starved:
        return ""
    inside, part = clean(found.inside[0]), found.inside_share[0]
    if inside:
        inside = f", in {inside}" if part >= _ALL else f", {format_share(part)} of that in {inside}"
    more = f" ({count_of(samples, 'sample')}, ± {margin * 100:.0f} points)"
    spent = _split(found.spent.parts(0))
    return (
        f"{format_share(share)} of its time{more} is spent at "
        f"{write_frame(found.names[0])}{inside}{f': {spent}' if spent else ''}. "
    )


def client_meanwhile(run: Run, begins: Array, ends: Array) -> str:
    """Say what the client's main thread mostly did in some spans of time; empty: unknown.

    Parameters
    ----------
    run
        The run.
    begins, ends
        Unix seconds, in order and apart.
    """
    table = run.client_samples
    if not len(begins):
        return ""
    if not len(table):
        return _by_calls(run, begins, ends)
    time = table["time"].to_numpy(dtype=float)
    span = np.searchsorted(begins, time, "right") - 1
    table = table[(span >= 0) & (time <= ends[np.maximum(span, 0)])]
    samples = Samples.of(table)
    total = float(samples.interval.sum())
    if len(samples) < _FEWEST or not total > 0:
        return _by_calls(run, begins, ends)
    phases = table["phase"].astype(object).to_numpy()
    by_phase = {phase: float(samples.interval[phases == phase].sum()) for phase in _DOING}
    phase = max(by_phase, key=lambda each: by_phase[each])
    if by_phase[phase] < _MOSTLY * total:
        return _by_calls(run, begins, ends)
    share = format_share(by_phase[phase] / total)
    line = _longest_line(run, samples.take(phases == phase), total)
    return f"Meanwhile the client {_DOING[phase]} for {share} of the time{line}. "


def _by_calls(run: Run, begins: Array, ends: Array) -> str:
    """Say what it did by what it called, where samples of its stacks do not tell."""
    if not len(run.client_calls):
        return ""
    found, total = meanwhile(run, begins, ends), float((ends - begins).sum())
    parts = [
        f"{one.value[0].lower()}{one.value[1:]} {format_share(seconds / total)}"
        for one, seconds in sorted(found.items(), key=lambda item: -item[1])
        if seconds >= _WORTH_TELLING * total
    ]
    return f"Meanwhile, by what the client called: {', '.join(parts)}. " if parts else ""


def _longest_line(run: Run, samples: Samples, total: float) -> str:
    named = places(run, "line")
    seconds = np.bincount(named.of(samples.stack), samples.interval, len(named.names))
    longest = int(seconds.argmax())
    name = named.names[longest]
    if not isinstance(name, Frame) or seconds[longest] < _LEAST * total:
        return ""
    return f", {format_share(float(seconds[longest]) / total)} at {write_frame(name)}"


def _split(parts: dict[str, float]) -> str:
    known = {name: share for name, share in parts.items() if np.isfinite(share)}
    told = sorted((item for item in known.items() if item[1] >= _WORTH_TELLING), key=_by_share)
    return ", ".join(f"{format_share(share)} {name}" for name, share in told)


def _by_share(item: tuple[str, float]) -> float:
    return -item[1]
