"""Rules about the course of a run: gaps of the client, and functions that get slower."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding, Places
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.actor_calls import call_spans
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.degradation import FEWEST, LAST_BY_FIRST, Trends
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.numeric.intervals import overlap, union
from dasfprof.analysis.stack_samples.sentences import client_meanwhile
from dasfprof.database.columns import Array
from dasfprof.text import count_of, format_duration, format_factor, format_share

#: Shares of the threads' time and of the critical path for which nothing was submitted.
_GAP_LANES = 0.1
_GAP_PATH = 0.05
#: A gap counts if it is as long.
_GAP = 0.01
_DEGRADES = 0.05
#: The share of the run without any worker.
_ABSENT = 0.05
#: What is said where nothing tells what the client did, and what would the next time.
_NOT_CLEAR = "What the client did meanwhile is not clear from its samples. "
_NOT_SAMPLED = (
    "What the client did meanwhile was not recorded: with stack_frequency=20 (in profile() or "
    "register_default_profiler()) the next run tells its lines. "
)


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
    idle, path = run.seconds_of(ThreadTime.NOTHING_SUBMITTED), run.path_segments
    gaps = np.flatnonzero((path.kind == SegmentKind.CLIENT) & (path.length >= _GAP))
    gaps = gaps[_of_a_known_client(run, path.rows[gaps], path.begin[gaps])]
    begins, ends = path.begin[gaps], path.begin[gaps] + path.length[gaps]
    # Without workers a client may wait for these; or for what it calls.
    lengths = path.length[gaps] - overlap(begins, ends, *_without_workers(run))
    lengths = lengths - overlap(begins, ends, *union(*call_spans(run.trace)))
    gaps, lengths = gaps[lengths >= _GAP], lengths[lengths >= _GAP]
    seconds = float(lengths.sum())
    if not len(gaps) or idle < _GAP_LANES * run.wall or seconds < _GAP_PATH * run.wall:
        return
    longest = gaps[lengths.argmax()]
    begin, length = float(path.begin[longest]), float(lengths.max())
    function = run.slots.functions[run.slots.function[path.rows[longest]]]
    begins = run.trace.begin + path.begin[gaps]
    doing = client_meanwhile(run.trace, *union(begins, begins + path.length[gaps]))
    calls = _calls_meanwhile(run, path.begin[gaps], path.begin[gaps] + path.length[gaps])
    yield Finding(
        f"The cluster waits for the client: for {format_duration(seconds)} "
        f"({format_share(seconds / run.wall)} of the run) no task was submitted, in "
        f"{count_of(len(gaps), 'gap')}.",
        f"The longest, {format_duration(length)}, is before {function}. {doing}{calls}See "
        "critical_path(), client_activity() and time_accounting().",
        ("" if doing else _NOT_CLEAR if len(run.trace.client_samples) else _NOT_SAMPLED)
        + "If it works on results, do that as tasks; if it needs none of them yet, submit more in "
        "one go: dask.compute(a, b, c), with intermediate results on the cluster (persist()). If "
        "it builds and pickles graphs, keep large objects out of them: client.scatter() them once.",
        seconds=seconds,
        function=function,
        start=begin,
        stop=begin + float(path.length[longest]),
        places=_times(path.begin[gaps], path.begin[gaps] + path.length[gaps]),
    )


def _times(begins: Array, ends: Array) -> Places:
    return Places(tuple(zip(begins.tolist(), ends.tolist(), strict=True)))


def _calls_meanwhile(run: RunFigures, begins: Array, ends: Array) -> str:
    """Say how actors were called in gaps; empty if for certain they were not."""
    start, stop = call_spans(run.trace)
    spans = union(begins, ends)
    calls = int(np.count_nonzero(overlap(start, stop, *spans)))
    if calls:
        seconds = float(overlap(*union(start, stop), *spans).sum())
        return (
            f"{count_of(calls, 'call')} of actors took {format_duration(seconds)} then, which does "
            "not count; the way there and back does: see actor_calls(). "
        )
    if run.trace.knows_actor_calls:
        return ""
    return "Calls of actors are not recorded: they may have run then. "


def _of_a_known_client(run: RunFigures, rows: Array, begin: Array) -> Array:
    """Return which gaps are of clients that had submitted something before; those of unknown too.

    Before its first graph a client keeps nobody waiting.
    """
    trace = run.trace
    known = np.ones(len(rows), dtype=bool)
    if "graph" not in trace.tasks or not {"stimulus", "client"} <= set(trace.graphs.columns):
        return known
    columns = (trace.graphs[name].astype(object) for name in ("stimulus", "client", "time"))
    first: dict[object, float] = {}
    clients: dict[object, object] = {}
    for stimulus, client, time in sorted(zip(*columns, strict=True), key=lambda graph: graph[2]):
        first.setdefault(client, time - trace.begin)
        clients.setdefault(stimulus, client)
    own = rows < len(trace.tasks)
    stimuli = trace.tasks["graph"].to_numpy()[rows[own]]
    since = np.array([first.get(clients.get(one), np.nan) for one in stimuli.tolist()], dtype=float)
    known[own] = ~(since > begin[own])
    return known


@rule("no-workers", symptoms=("client-gaps", "too-few-tasks", "serial-chain", "imbalance"))
def no_workers(run: RunFigures) -> Iterator[Finding]:
    """Find times for which there were tasks and no worker."""
    begins, ends = _without_workers(run)
    lengths = run.alive_between(begins, ends)
    seconds = float(lengths.sum())
    if not seconds > 0 or seconds < _ABSENT * run.wall:
        return
    longest = int(lengths.argmax())
    yield Finding(
        f"There was no worker: for {format_duration(seconds)} ({format_share(seconds / run.wall)} "
        "of the run) tasks waited for one to join.",
        f"{count_of(int(np.count_nonzero(lengths)), 'time')}, the longest from "
        f"{format_duration(float(begins[longest]))} into the trace on, for "
        f'{format_duration(float(lengths[longest]))}. See time_accounting("worker").',
        "Let workers join before there is work: client.wait_for_workers(); keep some between "
        "computations: cluster.adapt(minimum=1), a longer interval or wait_count.",
        seconds=seconds,
        at_most="medium",
        start=float(begins[longest]),
        stop=float(ends[longest]),
        places=_times(begins[lengths > 0], ends[lengths > 0]),
    )


def _without_workers(run: RunFigures) -> tuple[Array, Array]:
    """Return the spans of the run in which no worker had joined the cluster."""
    lives = run.accounts.lives
    joined = run.trace.workers["joined"].to_numpy(dtype=float)[lives.ids] - run.trace.begin
    left = run.trace.workers["left"].to_numpy(dtype=float)[lives.ids] - run.trace.begin
    # One of which nothing says that it left was there to the end, silent or not.
    stayed = np.where(np.isnan(left), run.begin + run.wall, left)
    begins, ends = union(np.fmax(lives.begin, joined), stayed)
    first, last = np.append(run.begin, ends), np.append(begins, run.begin + run.wall)
    kept = last > first
    return first[kept], last[kept]


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
        attempts = count_of(int(trends.attempts[place]), "attempt")
        code = int(np.flatnonzero(run.function_names == name)[0])
        own = run.functions.codes == code
        # In other layers of the graph the same function may do other work: few are no trend.
        layers = int(run.layers_of_functions[code])
        if layers > 1 and not (layers >= FEWEST and trends.count_falls[place]):
            continue
        first, excess = _excess(run, own)
        if excess <= 0:
            continue
        seconds = run.saved(excess * run.path_seconds_of(code), caps={name: first})
        if seconds < _DEGRADES * run.wall:
            continue
        yield Finding(
            f"{name} gets slower as the run goes on: its last tasks take {format_factor(change)} "
            "times as long as its first.",
            f"{attempts}, the last third by the first: {_changes(trends, place)}. See "
            "degradation().",
            f"Look in {name} for what grows from call to call: caches, lists and files that are "
            "appended to, connections and memory that are not given back. Restarting workers "
            "(client.restart(), or --lifetime) shows whether the state is theirs.",
            seconds=seconds,
            function=name,
        )


def _changes(trends: Trends, place: int) -> str:
    """Write how the quantities of a function changed, as far as they are known."""
    named = {"seconds of the function": trends.change["run"], "CPU seconds": trends.change["cpu"]}
    named |= {"input bytes": trends.change["input_size"], "starts": trends.count_change}
    known = [(name, float(values[place])) for name, values in named.items()]
    return ", ".join(f"{name} {format_factor(by)}" for name, by in known if np.isfinite(by))


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
