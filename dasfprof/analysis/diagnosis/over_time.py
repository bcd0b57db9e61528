"""Rules about the course of a run: times when the cluster waits, and functions that get slower."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.client import costs_of_carrying, line_of
from dasfprof.analysis.diagnosis.cores import idle_share
from dasfprof.analysis.diagnosis.registry import Finding, FindingLocations, rule
from dasfprof.analysis.diagnosis.run_figures import GAP, RunFigures
from dasfprof.analysis.model.attempts import WORKER_LOST
from dasfprof.analysis.model.client_time import ClientTime, find_calls, graph_costs, meanwhile
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.idle_time import spans_outside_tasks
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.numeric.intervals import open_spans, overlap, union
from dasfprof.analysis.stack_samples.places import client_fraction, client_meanwhile
from dasfprof.analysis.wording import Bytes, Count, Figures, Seconds, Share
from dasfprof.database.columns import Array

#: Thresholds of waits for the client: fraction of thread time, and fraction of the critical path.
_GAP_LANES = 0.1
_GAP_PATH = 0.05
#: Threshold (fraction of the time of these waits): the client itself waits for results.
_WAITS = 0.5
#: Thresholds of graphs of which little is computed. Per task: minimum seconds for which the
#: scheduler prepares the graph, and minimum bytes of the graph. As fractions of the waits for the
#: client: minimum of all these seconds, and maximum of the time of all tasks.
_PREPARED, _PICKLED = 0.02, 20_000
_PREPARES, _FEW_TASKS = 0.3, 0.5
#: Seconds between two checks of the scheduler whether enough workers have joined after a restart.
_RESTART_POLL = 0.2
#: Threshold (fraction of wall time): time without any worker.
_ABSENT = 0.05
#: Thresholds of sequential submission: fraction of wall time with fewer tasks than threads, number
#: of graphs that are submitted after the tasks of earlier graphs have finished, and the number of
#: these graphs as a fraction of all graphs.
_FEW, _ROUNDS, _MOSTLY = 0.3, 5, 0.8
#: Advice to submit more tasks at a time, for users of joblib and for users of Dask.
_BY_JOBLIB = (
    "Leave pre_dispatch out of GridSearchCV() or Parallel(), or set pre_dispatch='all'. It "
    "limits how many tasks joblib submits at a time; the default is '2*n_jobs'. If your script "
    "calls Parallel() several times, pass all of their work to one Parallel()."
)
_TOGETHER = (
    "Submit all independent work first, then wait for all of it: use client.map and "
    "client.gather on lists, dask.compute(a, b, c), or as_completed to process results as they "
    "finish. If each graph needs the result of the previous one, the run takes at least as long as "
    "all of them together."
)
#: Evidence if samples do not show what the client did during the gaps.
_NOT_CLEAR = "The samples do not show clearly what the client did meanwhile. "
_NOT_SAMPLED = (
    "What the client did meanwhile was not recorded: stack sampling was off, or the client could "
    "not write a file. "
)


@rule(
    "client-bound",
    explains="blocked-tasks load-imbalance too-few-tasks serial-chain",
    refutes="more-threads",
    because="the cluster waits for the client",
)
def client_bound(run: RunFigures) -> Iterator[Finding]:
    """Find times when the cluster had no tasks because the client had not yet submitted more."""
    idle, path = run.seconds_of(ThreadTime.NOTHING_SUBMITTED), run.path_segments
    gaps = np.flatnonzero((path.kind == SegmentKind.CLIENT) & (path.length >= GAP))
    gaps = gaps[_of_a_known_client(run, path.rows[gaps], path.begin[gaps])]
    begins, ends = path.begin[gaps], path.begin[gaps] + path.length[gaps]
    # If there are no workers, the client may be waiting for workers to join.
    others = _without_workers(run), _restarts(run), *spans_outside_tasks(run.trace)
    spans = union(*map(np.concatenate, zip(*others, strict=True)))
    lengths = path.length[gaps] - overlap(begins, ends, *spans)
    long = lengths >= GAP
    gaps, lengths, begins, ends = gaps[long], lengths[long], begins[long], ends[long]
    seconds = float(lengths.sum())
    if not len(gaps) or idle < _GAP_LANES * run.wall or seconds < _GAP_PATH * run.wall:
        return
    longest = gaps[lengths.argmax()]
    begin = float(path.begin[longest])
    spans = union(run.trace.begin + begins, run.trace.begin + ends)
    by_class = meanwhile(run.trace, *spans)
    waits = by_class.get(ClientTime.WAITING, 0.0) >= _WAITS * float((spans[1] - spans[0]).sum())
    client = client_meanwhile(run.trace, *spans)
    sampled = len(run.trace.client_samples) > 0
    prepared, size = graph_costs(run.trace)
    tasks, count = float(run.trace.graphs["tasks"].median()), len(run.trace.graphs)
    unused = prepared >= _PREPARED * tasks and size >= _PICKLED * tasks
    unused &= run.lasted.sum() <= _FEW_TASKS * seconds and count >= _ROUNDS
    unused &= prepared * count >= _PREPARES * seconds
    of_graphs = (
        "The scheduler takes {prepared} to prepare a graph of {pickled}, of which it runs only "
        "{_tasks:task}. The graph contains no large values, so it probably describes many "
        "chunks that are not needed. "
    )
    unknown = "" if client or waits else _NOT_CLEAR if sampled else _NOT_SAMPLED
    yield Finding.of(
        "Graphs reach the scheduler late: it had no tasks for {waited} ({share} of the run, in "
        "{gaps:gap}), although the client was already waiting for results."
        if waits
        else "The cluster waits for the client: for {waited} ({share} of the run, in "
        "{gaps:gap}), no task was submitted.",
        f"The longest gap, {{longest}}, is before a task of {{function}}. "
        f"{of_graphs if unused else ''}"
        f"{{client}}{unknown}See critical_path(), client_activity() and time_accounting().",
        "Make graphs that describe fewer chunks: compute many selections with one dask.compute(), "
        "open the data with larger chunks, or open it without Dask (in xarray with chunks=None), "
        "so that your program itself reads what you select, and nothing else."
        if unused
        else _BY_JOBLIB
        if _uses_joblib(run)
        else "Keep large objects out of graphs (client.scatter() them once, or load them in "
        "tasks), and make fewer, larger tasks. During the gaps, the graphs were in transit or the "
        "scheduler was unpacking them."
        if waits
        else "Submit more at once, with dask.compute(a, b, c) and persist(), if your program does "
        "not need results in between. If it processes results between computations, do that in "
        "tasks. If it builds and pickles graphs, keep large objects out of them: client.scatter() "
        "them once.",
        function=run.slots.functions[run.slots.function[path.rows[longest]]],
        waited=Seconds(seconds),
        share=Share(seconds / run.wall),
        gaps=Count(len(gaps)),
        longest=Seconds(lengths.max()),
        client=client,
        waits=waits,
        sampled=sampled,
        **({"prepared": Seconds(prepared), "pickled": Bytes(size)} if unused else {}),
        _tasks=Count(tasks if unused else 0),
        seconds=seconds,
        start=begin,
        stop=begin + float(path.length[longest]),
        places=_times(begins, ends),
    )


def _times(begins: Array, ends: Array) -> FindingLocations:
    return FindingLocations(tuple(zip(begins.tolist(), ends.tolist(), strict=True)))


def _of_a_known_client(run: RunFigures, rows: Array, begin: Array) -> Array:
    """Return a mask of the gaps that a client may have caused.

    A gap is not in the mask if it began before the first graph of its client. If the client is
    unknown, the gap is in the mask. `rows` are the task runs that ended the gaps, and `begin`
    contains the start of each gap.
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
    of_tasks = rows < len(trace.tasks)
    stimuli = trace.tasks["graph"].to_numpy()[rows[of_tasks]]
    since = [first.get(clients.get(stimulus), np.nan) for stimulus in stimuli.tolist()]
    # A client does not keep the cluster waiting before its first graph.
    known[of_tasks] = ~(np.array(since, dtype=float) > begin[of_tasks])
    return known


@rule(
    "sequential-submission",
    explains="client-bound blocked-tasks load-imbalance too-few-tasks serial-chain poor-placement "
    "scheduler-bound dominant-function",
    refutes="more-threads",
    because="the client submits fewer tasks at a time than there are threads",
)
def sequential_submission(run: RunFigures) -> Iterator[Finding]:
    """Find clients that submit a little work, wait for it, and only then submit more."""
    if run.threads < 2 or len(run.trace.graphs) < _ROUNDS:
        return
    times = run.trace.all_slots.times
    arrivals = np.unique(times.arrival)
    # If tasks of a graph wait for each other, they can use only one thread at a time.
    changes, runnable = open_spans(times.runnable, times.known, arrivals)
    of_change = np.maximum(np.searchsorted(arrivals, changes, "right") - 1, 0)
    widest = np.zeros(len(arrivals))
    np.maximum.at(widest, of_change, runnable)
    narrow = widest < run.threads
    since, alive = open_spans(times.arrival, times.known, arrivals)
    lengths, of_round = np.diff(since), np.searchsorted(arrivals, since[:-1], "right") - 1
    seconds = float(lengths[(alive[:-1] > 0) & narrow[of_round]].sum())
    if seconds < float(lengths[alive[:-1] == 0].sum()):
        return  # The client needs more time for other work, which client-bound reports.
    # Number of unfinished tasks at the time at which each graph arrived.
    ended = np.searchsorted(np.sort(times.known), arrivals, "right")
    rounds = int(np.count_nonzero(np.searchsorted(np.sort(times.arrival), arrivals) <= ended))
    if seconds < _FEW * run.wall or rounds < max(_ROUNDS, _MOSTLY * len(run.trace.graphs)):
        return
    called = _longest_calls(run)
    # If the run cannot be replayed, assume that the work of these tasks is spread over all threads.
    # If the client, the scheduler and workers share cores, only idle cores help.
    estimate = max(seconds - float(run.lasted.sum()) / run.threads, 0.0)
    saved = min(run.saved(estimate, together=True), idle_share(run) * run.wall)
    if called is None or called.call != "compute":  # Each graph still has its large objects.
        remains = saved - costs_of_carrying(run)[0]
        saved = remains if remains >= 0.5 * saved else float("nan")
    waits = "The client waits in {called.number:call} of {called.call}, at {called.line}. "
    yield Finding.of(
        "The client submits work piece by piece: {tasks:task} arrived in {graphs:round}, each "
        "after the previous one had finished. For {few} ({share} of the run), fewer tasks could "
        "run in parallel than there are threads ({threads}).",
        f"{waits if called else ''}Additional threads or workers would have no task to run. See "
        "critical_path() and client_activity().",
        _BY_JOBLIB if _uses_joblib(run) else _TOGETHER,
        graphs=Count(rounds),
        tasks=Count(len(times)),
        few=Seconds(seconds),
        share=Share(seconds / run.wall),
        threads=Count(round(run.threads)),
        called=called,
        seconds=saved,
        costs=seconds,
        at_most="low" if np.isnan(saved) else "high",
    )


def _uses_joblib(run: RunFigures) -> bool:
    """Return whether the client was in calls of joblib for most of the run."""
    begin = np.array([run.trace.begin + run.begin])
    return client_fraction(run.trace, begin, begin + run.wall, files=re.compile("/joblib/")) > 0.5


def _longest_calls(run: RunFigures) -> Figures | None:
    """Return figures about the line whose calls wait longest, or None if it makes too few calls."""
    calls = find_calls(run.trace).sort_values("waiting", ascending=False, kind="stable").head(1)
    if not len(calls) or calls["calls"].iloc[0] < _ROUNDS:
        return None
    number, call = Count(calls["calls"].iloc[0]), str(calls["call"].iloc[0])
    return Figures(number=number, call=call, line=line_of(run, calls))


@rule(
    "no-workers",
    explains="scheduler-bound blocked-tasks client-bound too-few-tasks load-imbalance",
    causes="serial-chain",
    refutes="more-threads",
    because="there were no workers, and threads were not the limit",
)
def no_workers(run: RunFigures) -> Iterator[Finding]:
    """Find times with tasks but without workers."""
    begins, ends = _without_workers(run)
    lost = run.attempts["life"][(run.attempts["category"] == WORKER_LOST).to_numpy(dtype=bool)]
    deaths = run.trace.left[lost.unique()]
    # The rule lost-workers reports times after a lost worker.
    others = ~np.isin(begins, deaths)
    begins, ends = begins[others], ends[others]
    lengths = run.alive_between(begins, ends)
    seconds = float(lengths.sum())
    if not seconds > 0 or seconds < _ABSENT * run.wall:
        return
    longest = int(lengths.argmax())
    yield Finding.of(
        "There were no workers for {waited} ({share} of the run) while tasks waited for one to "
        "join.",
        "This happened {times:time}. The longest wait took {longest} and began {longest_from} "
        'after the start of the trace. See time_accounting("worker").',
        "Wait for workers before you submit work: client.wait_for_workers(). Keep some of them "
        "between computations with cluster.adapt(minimum=1), a longer interval, or a higher "
        "wait_count.",
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


def _restarts(run: RunFigures) -> tuple[Array, Array]:
    """Return the starts and ends of restarts."""
    changes = run.trace.cluster_changes
    restarts = changes[(changes["action"] == "restart").to_numpy(dtype=bool)]
    joined = np.sort(run.trace.joined[run.accounts.lives.ids])
    begins = np.asarray(run.trace.since_begin(restarts["time"]), dtype=float)
    # A restart ends when as many workers have joined as were restarted.
    ends = [
        joined[joined > begin][: len(workers or ())].max(initial=begin) + _RESTART_POLL
        for begin, workers in zip(begins.tolist(), restarts["workers"], strict=True)
    ]
    return begins, np.array(ends, dtype=float)


def _without_workers(run: RunFigures) -> tuple[Array, Array]:
    """Return the starts and ends of the time ranges in which the run had no worker."""
    lives = run.accounts.lives
    joined = run.trace.joined[lives.ids]
    left = run.trace.left[lives.ids]
    # A worker whose end is unknown counts as present until the end of the run, even if silent.
    stayed = np.where(np.isnan(left), run.begin + run.wall, left)
    begins, ends = union(np.fmax(lives.begin, joined), stayed)
    first, last = np.append(run.begin, ends), np.append(begins, run.begin + run.wall)
    lasting = last > first
    return first[lasting], last[lasting]
