"""Rules about the course of a run: gaps of the client, and functions that get slower."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.client import line_of
from dasfprof.analysis.diagnosis.cores import idle_share
from dasfprof.analysis.diagnosis.registry import Finding, Places, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.attempts import WORKER_LOST
from dasfprof.analysis.model.call_spans import call_spans, function_spans
from dasfprof.analysis.model.client_time import ClientTime, find_calls, meanwhile
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.degradation import FEWEST, LAST_BY_FIRST, find_trends
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.numeric.intervals import open_spans, overlap, union
from dasfprof.analysis.stack_samples.places import client_meanwhile, hottest_line, library_of
from dasfprof.analysis.wording import Count, Factor, Figures, Seconds, Share
from dasfprof.database.columns import Array

#: Thresholds (fractions of thread time, and of the critical path) of gaps of the client.
_GAP_LANES = 0.1
_GAP_PATH = 0.05
#: Threshold (fraction of the gaps): the client waits for results, so that its graphs are late.
_WAITS = 0.5
#: Minimum seconds of a gap.
_GAP = 0.01
#: Threshold (fraction of wall time) of functions that get slower.
_DEGRADES = 0.05
#: Minimum number of task runs that count as a function's first.
_FIRST = 5
#: Threshold (fraction of wall time) without any worker.
_ABSENT = 0.05
#: Thresholds of sequential submission: fraction of wall time with fewer tasks than threads, minimum
#: number of graphs that wait for those before, and their fraction of all graphs.
_FEW, _ROUNDS, _MOSTLY = 0.3, 5, 0.8
#: How to submit more at a time, from joblib and from a program of Dask's own calls.
_BY_JOBLIB = (
    "joblib submits as many tasks at a time as pre_dispatch= says. Leave it out of GridSearchCV() "
    "or Parallel(), whose default is '2*n_jobs', or set pre_dispatch='all'."
)
_TOGETHER = (
    "Submit all that does not need the results before, and wait for it together: client.map and "
    "client.gather of lists, dask.compute(a, b, c), or as_completed to go on with what is ready. "
    "Where each needs the one before, the run is as long as their sum."
)
#: Evidence if it is unknown what the client did.
_NOT_CLEAR = "What the client did meanwhile is not clear from its samples. "
_NOT_SAMPLED = (
    "What the client did meanwhile was not recorded: samples of stacks were off, or its process "
    "could not write a file. "
)


@rule(
    "client-bound",
    explains="blocked-tasks load-imbalance too-few-tasks serial-chain",
    refutes="more-threads",
    because="the cluster waits for the client",
)
def client_gaps(run: RunFigures) -> Iterator[Finding]:
    """Find times for which the cluster had nothing to do, as the client had not submitted more."""
    idle, path = run.seconds_of(ThreadTime.NOTHING_SUBMITTED), run.path_segments
    gaps = np.flatnonzero((path.kind == SegmentKind.CLIENT) & (path.length >= _GAP))
    gaps = gaps[_of_a_known_client(run, path.rows[gaps], path.begin[gaps])]
    begins, ends = path.begin[gaps], path.begin[gaps] + path.length[gaps]
    # Without workers a client may wait for these; or for what it calls.
    lengths = path.length[gaps] - overlap(begins, ends, *_without_workers(run))
    outside = zip(call_spans(run.trace), function_spans(run.trace), strict=True)
    lengths = lengths - overlap(begins, ends, *union(*map(np.concatenate, outside)))
    gaps, lengths = gaps[lengths >= _GAP], lengths[lengths >= _GAP]
    seconds = float(lengths.sum())
    if not len(gaps) or idle < _GAP_LANES * run.wall or seconds < _GAP_PATH * run.wall:
        return
    longest = gaps[lengths.argmax()]
    begin, begins = float(path.begin[longest]), path.begin[gaps]
    ends = begins + path.length[gaps]
    spans = union(run.trace.begin + begins, run.trace.begin + ends)
    by_class = meanwhile(run.trace, *spans)
    waits = by_class.get(ClientTime.WAITING, 0.0) >= _WAITS * float((spans[1] - spans[0]).sum())
    client, actors = client_meanwhile(run.trace, *spans), _calls_meanwhile(run, begins, ends)
    calls = (
        ""
        if run.trace.knows_actor_calls
        else ("Calls of actors are not recorded: they may have run then. ")
    )
    if actors["calls"]:
        calls = (
            "{calls:call} of actors took {called} then, which does not count; the way there and "
            "back does: see actor_calls(). "
        )
    sampled = len(run.trace.client_samples) > 0
    unknown = "" if client else _NOT_CLEAR if sampled else _NOT_SAMPLED
    yield Finding.of(
        "client-bound",
        "Graphs come late: for {waited} ({share} of the run) the scheduler had no task, in "
        "{gaps:gap}, though the client waited for results."
        if waits
        else "The cluster waits for the client: for {waited} ({share} of the run) no task was "
        "submitted, in {gaps:gap}.",
        f"The longest, {{longest}}, is before {{function}}. {{client}}{calls}See critical_path(), "
        "client_activity() and time_accounting().",
        "Keep large objects out of graphs (client.scatter() them once, or load them in tasks), and "
        "make fewer, larger tasks. The graphs were in transit, or the scheduler was unpacking them."
        if waits
        else f"{unknown}Submit more at once, with dask.compute(a, b, c) and persist(), if your "
        "program does not need results in between. If it processes results between computations, "
        "do that in tasks. If it builds and pickles graphs, keep large objects out of them: "
        "client.scatter() them once.",
        function=run.slots.functions[run.slots.function[path.rows[longest]]],
        waited=Seconds(seconds),
        share=Share(seconds / run.wall),
        gaps=Count(len(gaps)),
        longest=Seconds(lengths.max()),
        client=client,
        waits=waits,
        sampled=sampled,
        **actors,
        seconds=seconds,
        start=begin,
        stop=begin + float(path.length[longest]),
        places=_times(begins, ends),
    )


def _times(begins: Array, ends: Array) -> Places:
    return Places(tuple(zip(begins.tolist(), ends.tolist(), strict=True)))


def _calls_meanwhile(run: RunFigures, begins: Array, ends: Array) -> dict[str, Any]:
    """Return figures of the calls of actors in gaps, and whether these were recorded."""
    start, stop = call_spans(run.trace)
    spans = union(begins, ends)
    return {
        "calls": Count(np.count_nonzero(overlap(start, stop, *spans))),
        "called": Seconds(overlap(*union(start, stop), *spans).sum()),
        "knows_calls": run.trace.knows_actor_calls,
    }


def _of_a_known_client(run: RunFigures, rows: Array, begin: Array) -> Array:
    """Return which gaps are of clients that had submitted a graph before, or of unknown clients.

    Before its first graph a client does not keep the cluster waiting.
    """
    trace = run.trace
    known = np.ones(len(rows), dtype=bool)
    if "graph" not in trace.tasks:
        return known
    columns = (trace.graphs[name].astype(object) for name in ("stimulus", "client", "time"))
    first: dict[object, float] = {}
    clients: dict[object, object] = {}
    for stimulus, client, time in sorted(zip(*columns, strict=True), key=lambda graph: graph[2]):
        first.setdefault(client, trace.seconds_at(time))
        clients.setdefault(stimulus, client)
    own = rows < len(trace.tasks)
    stimuli = trace.tasks["graph"].to_numpy()[rows[own]]
    since = np.array([first.get(clients.get(one), np.nan) for one in stimuli.tolist()], dtype=float)
    known[own] = ~(since > begin[own])
    return known


@rule(
    "sequential-submission",
    explains="client-bound blocked-tasks load-imbalance too-few-tasks serial-chain poor-placement "
    "scheduler-bound dominant-function",
    refutes="more-threads",
    because="the client submits fewer tasks at a time than there are threads",
)
def one_at_a_time(run: RunFigures) -> Iterator[Finding]:
    """Find clients that submit little, wait for it, and only then submit more."""
    if run.threads < 2 or len(run.trace.graphs) < _ROUNDS:
        return
    times = run.trace.whole.slots.times
    arrivals = np.unique(times.arrival)
    # The tasks of a graph that wait for each other need no more threads than one.
    changes, runnable = open_spans(times.runnable, times.known, arrivals)
    of_change = np.maximum(np.searchsorted(arrivals, changes, "right") - 1, 0)
    widest = np.zeros(len(arrivals))
    np.maximum.at(widest, of_change, runnable)
    narrow = widest < run.threads
    since, alive = open_spans(times.arrival, times.known, arrivals)
    lengths, of_round = np.diff(since), np.searchsorted(arrivals, since[:-1], "right") - 1
    seconds = float(lengths[(alive[:-1] > 0) & narrow[of_round]].sum())
    if seconds < float(lengths[alive[:-1] == 0].sum()):
        return  # what the client does meanwhile takes longer: its gaps are told of
    # Tasks there were before each graph, less those that had ended.
    ended = np.searchsorted(np.sort(times.known), arrivals, "right")
    rounds = int(np.count_nonzero(np.searchsorted(np.sort(times.arrival), arrivals) <= ended))
    if seconds < _FEW * run.wall or rounds < max(_ROUNDS, _MOSTLY * len(run.trace.graphs)):
        return
    called = _longest_calls(run)
    waits = "It waits in {called.number:call} of {called.call}, at {called.line}. "
    yield Finding.of(
        "sequential-submission",
        "The client submits little at a time: {tasks:task} came in {graphs:part}, each once those "
        "before had ended; for {few} ({share} of the run) no part had as many that could run at a "
        "time as there are threads, {threads}.",
        f"{waits if called else ''}More threads or workers find no task to run. See "
        "critical_path() and client_activity().",
        _BY_JOBLIB if called is not None and called.library == "joblib" else _TOGETHER,
        graphs=Count(rounds),
        tasks=Count(len(times)),
        few=Seconds(seconds),
        share=Share(seconds / run.wall),
        threads=Count(round(run.threads)),
        called=called,
        # Without a replay, their work as if it were spread over all threads. Client, scheduler and
        # workers that share cores take these in any case.
        seconds=min(
            run.saved(max(seconds - float(run.working.sum()) / run.threads, 0.0), together=True),
            idle_share(run) * run.wall,
        ),
    )


def _longest_calls(run: RunFigures) -> Figures | None:
    """Return figures of the line whose calls wait longest; None if it has too few calls."""
    calls = find_calls(run.trace).sort_values("waiting", ascending=False, kind="stable").head(1)
    if not len(calls) or calls["calls"].iloc[0] < _ROUNDS:
        return None
    number, call = Count(calls["calls"].iloc[0]), str(calls["call"].iloc[0])
    library = library_of(str(calls["file"].iloc[0]))
    return Figures(number=number, call=call, line=line_of(run, calls), library=library)


@rule(
    "no-workers",
    explains="scheduler-bound blocked-tasks client-bound too-few-tasks load-imbalance",
    causes="serial-chain",
    refutes="more-threads",
    because="workers were missing, not threads",
)
def no_workers(run: RunFigures) -> Iterator[Finding]:
    """Find times for which there were tasks and no worker, but for those after a worker was lost.

    What these cost is told with the loss.
    """
    begins, ends = _without_workers(run)
    lost = run.attempts["life"][(run.attempts["category"] == WORKER_LOST).to_numpy(dtype=bool)]
    deaths = run.trace.left[lost.unique()]
    others = ~np.isin(begins, deaths)
    begins, ends = begins[others], ends[others]
    lengths = run.alive_between(begins, ends)
    seconds = float(lengths.sum())
    if not seconds > 0 or seconds < _ABSENT * run.wall:
        return
    longest = int(lengths.argmax())
    yield Finding.of(
        "no-workers",
        "There was no worker: for {waited} ({share} of the run) tasks waited for one to join.",
        "{times:time}, the longest from {longest_from} into the trace on, for {longest}. See "
        'time_accounting("worker").',
        "Let workers join before there is work: client.wait_for_workers(); keep some between "
        "computations: cluster.adapt(minimum=1), a longer interval or wait_count.",
        waited=Seconds(seconds),
        share=Share(seconds / run.wall),
        times=Count(np.count_nonzero(lengths)),
        longest_from=Seconds(begins[longest]),
        longest=Seconds(lengths[longest]),
        seconds=seconds,
        at_most="medium",
        start=float(begins[longest]),
        stop=float(ends[longest]),
        places=_times(begins[lengths > 0], ends[lengths > 0]),
    )


def _without_workers(run: RunFigures) -> tuple[Array, Array]:
    """Return the time ranges of the run without a worker: starts and ends."""
    lives = run.accounts.lives
    joined = run.trace.joined[lives.ids]
    left = run.trace.left[lives.ids]
    # One of which nothing says that it left was there to the end, silent or not.
    stayed = np.where(np.isnan(left), run.begin + run.wall, left)
    begins, ends = union(np.fmax(lives.begin, joined), stayed)
    first, last = np.append(run.begin, ends), np.append(begins, run.begin + run.wall)
    kept = last > first
    return first[kept], last[kept]


@rule(
    "slowing-functions",
    causes="stragglers dominant-function blocked-tasks load-imbalance too-few-tasks",
)
def degrading_functions(run: RunFigures) -> Iterator[Finding]:
    """Find functions whose tasks take longer and longer."""
    trends = find_trends(run.attempts)
    rising = trends.rises["run"] & ~trends.rises["input_size"]
    for place in trends.order[rising[trends.order]].tolist():
        name = str(trends.functions[place])
        code = int(np.flatnonzero(run.function_names == name)[0])
        own = run.functions.codes == code
        # In other layers of the graph the same function may do other work: few are no trend.
        layers = int(run.layers_of_functions[code])
        if layers > 1 and not (layers >= FEWEST and trends.count_falls[place]):
            continue
        first, excess = _excess(run, own)
        if excess <= 0:
            continue
        durations = np.where(own, np.minimum(run.task_column("duration"), first), np.nan)
        seconds = run.saved(excess * run.path_seconds_of(code), running=durations)
        if seconds < _DEGRADES * run.wall:
            continue
        named = {
            "seconds of the function": trends.change["run"],
            "CPU seconds": trends.change["cpu"],
            "input bytes": trends.change["input_size"],
            "starts": trends.count_change,
        }
        changes = {n: Factor(by[place]) for n, by in named.items() if np.isfinite(by[place])}
        alike = _are_called_alike(run, own)
        by_name = ", ".join(f"{quantity} {times}" for quantity, times in changes.items())
        why = (
            "All were called with arguments of the same types and sizes. "
            if alike
            else "Either later tasks have more to do, or something grows from call to call. Their "
            "arguments were not recorded, or differ. "
        )
        state = (
            "ook in {function} for what grows from call to call: caches, lists and files that are "
            "appended to, connections and memory that are not given back. Restarting workers "
            "(client.restart(), or --lifetime) shows whether the state is theirs."
        )
        yield Finding.of(
            "slowing-functions",
            "{function} gets slower during the run: its last tasks take {times} times as long "
            "as its first.",
            f"{{attempts:attempt}}, the last third by the first: {by_name}. {why}{{hottest}}See "
            "degradation().",
            f"L{state}"
            if alike
            else "Run some of the last tasks first: if they take as long as they did, it is what "
            f"they are called with, and nothing degrades. If they are fast: l{state}",
            function=name,
            times=Factor(trends.change["run"][place]),
            attempts=Count(trends.attempts[place]),
            changes=changes,
            alike=alike,
            hottest=hottest_line(run.trace, name),
            # Who restarts workers whose later tasks have more to do gains nothing.
            seconds=seconds if alike else float("nan"),
            costs=seconds,
            at_most="high" if alike else "low",
        )


#: An argument that says how much a task has to do: an array or a table, by its shape, or a value.
#: Types alone do not, nor lists and objects, in which there may be anything.
_TELLING = re.compile(
    r"""(\w+: )?(.*\([\d, ]*\)|None|NoneType|True|False|-?\d[\d.e+-]*|'.*'|".*")"""
)


def _are_called_alike(run: RunFigures, own: Array) -> bool:
    """Return whether all task runs of a function had equal arguments, as far as recorded."""
    table, rows = run.trace.arguments, np.flatnonzero(own & run.succeeded)
    if not len(table):
        return False
    tasks = run.trace.tasks[["key_id", "run_id"]].iloc[rows]
    called = tasks.merge(table[["key_id", "run_id", "arguments"]], on=["key_id", "run_id"])
    texts = set(called["arguments"].astype(str))
    alike = len(called) >= len(rows) and len(texts) == 1
    return alike and all(_TELLING.fullmatch(part) for part in texts.pop().split("; "))


def _excess(run: RunFigures, own: Array) -> tuple[float, float]:
    """Return the seconds of a function's first runs, and the share of all that is beyond them.

    Its first third has to be faster than its last; what it takes at first is that of its first
    tenth, as it gets slower within the third. Waits for a core are left out: a host that gets
    busier is no fault of the function. If without them it does not get slower, the share is 0.
    """
    rows = np.flatnonzero(own & run.succeeded)
    rows = rows[np.argsort(run.slots.times.start[rows], kind="stable")]
    seconds, third = run.working[rows], max(len(rows) // 3, 1)
    first, last = float(seconds[:third].mean()), float(seconds[-third:].mean())
    if last < LAST_BY_FIRST * first:
        return first, 0.0
    first = min(first, float(seconds[: max(len(rows) // 10, _FIRST)].mean()))
    return first, max(1 - first / float(seconds.mean()), 0.0)
