"""Refuters of findings about Dask's overhead: small tasks, the scheduler, and messages."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from refuters.attempts import is_most, most
from refuters.evidence import Evidence, Rows
from refuters.figures import Claim, differs, exceeds
from refuters.registry import refuter
from refuters.steps import Steps

#: Tolerance for advised chunk sizes: chunks at the edges are smaller, and advice may round up.
_SOME = 1.1
#: A function's tasks are small if half of them are shorter than the claimed duration times this.
_AS_SMALL = 10.0


@refuter("tasks-too-small")
def tasks_too_small(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with task runs, with the overhead around them, and with the bytes of layers."""
    done = evidence.runs.where(lambda row: row["state"] in ("memory", None))
    if claim["shuffling"]:  # Tasks of shuffles count as overhead.
        return
    yield from differs(claim["tasks"], len(done), "tasks")
    median = float(np.median(done.numbers("working")))
    yield from differs(claim["median"], median, "the median")
    handling = handling_seconds(evidence)
    yield from exceeds(claim["handling"], min(handling / evidence.thread_seconds, 1), "handling")
    if claim["overhead"]:
        held = np.fmin(done.numbers("stop"), done.numbers("held")) - done.numbers("timestamp")
        computed = float(np.maximum(held - done.numbers("waited"), 0.0).sum())
        yield from exceeds(claim["overhead"], handling / computed, "overhead by compute")
    own = evidence.of(claim.function)
    if len(own):
        lengths = own.numbers("working")
        yield from differs(claim["own"], float(lengths.mean()), "seconds of one of its tasks")
        if float(np.median(own.numbers("working"))) > _AS_SMALL * max(median, 1e-3):
            yield f"tasks of {claim.function} are not small: {np.median(lengths):.3g} s each"
    yield from _advice(claim["advice"], evidence)


def _largest_layer(rows: Rows) -> float:
    layers: dict[object, dict[str, float]] = defaultdict(dict)
    for row in rows:
        layer = row["key"][0] if isinstance(row["key"], tuple) else ""
        layers[layer][repr(row["key"])] = max(row["size"] or 0.0, row["input_size"] or 0.0)
    return max(sum(layer.values()) for layer in layers.values())


def _advice(advised: dict[str, Any], evidence: Evidence) -> Iterator[str]:
    """Yield a contradiction if an advised chunk is larger than the whole layer."""
    own = evidence.of(advised["function"])
    new, old = advised.get("new_size"), advised.get("size")
    made = evidence.runs.where(lambda row: not row["dependencies"] and row["shape"] is not None)
    if new and len(made):
        yield from exceeds(new, _SOME * _largest_layer(made), "bytes of a chunk, of all that comes")
    if new and len(own):
        yield from exceeds(new, _SOME * _largest_layer(own), "bytes of a chunk, of all that have")
        sizes = [max(row["size"] or 0.0, row["input_size"] or 0.0) for row in own]
        yield from exceeds(old, max(sizes), "bytes of a chunk")
    yield from exceeds(advised.get("width", 0), len(own), "tasks in a layer")


@refuter("scheduler-bound")
def scheduler_bound(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with idle thread time while runnable tasks or ends of tasks were on the scheduler."""
    unsent = _unsent(evidence, "not_sent") / evidence.thread_seconds
    yield from exceeds(claim["idle"], unsent, "threads that idle with unsent tasks")
    # The scheduler handles more tasks than workers recorded.
    most_tasks = len(evidence.runs) / evidence.wall + 0.5
    yield from exceeds(claim["tasks_a_second"], most_tasks, "tasks per second")
    yield from exceeds(claim["on_path"], evidence.wall, "seconds of the critical path")


@refuter("slow-dispatch")
def slow_dispatch(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the time between assignment and receipt, and with stalls of event loops."""
    late = evidence.idle_by_worker("sent", "received")
    yield from exceeds(claim["idle"], late / evidence.thread_seconds, "idle threads")
    stolen = np.array([row["noted"].get("stolen") or np.nan for row in evidence.runs])
    way = evidence.runs.numbers("received") - np.fmax(evidence.runs.numbers("sent"), stolen)
    yield from differs(claim["longest"], float(np.nanmax(way)), "the longest way")
    yield from exceeds(claim["on_path"], evidence.wall, "seconds of the critical path")
    sums = most(evidence.runs.values("function"), np.nan_to_num(way))
    if not is_most(str(claim.function), sums):
        yield f"most of it are not tasks of {claim.function}"
    lags = evidence.rows("Managed Memory").values("loop_lag")
    blocked = len(evidence.rows("Loop Sample")) or any(lag is None or lag > 0 for lag in lags)
    if claim["blocked"] > 0 and not blocked:
        yield "no loop was late"


def handling_seconds(evidence: Evidence) -> float:
    """Return an upper bound of the thread time that is overhead of tasks, in seconds."""
    latency = evidence.idle_by_worker("ready", "executing") + _unsent(evidence, "known_before")
    return _around(evidence) + latency


def _around(evidence: Evidence) -> float:
    """Return the seconds for which tasks held a thread while their function did not run."""
    runs = evidence.runs
    before = runs.numbers("timestamp") - runs.numbers("executing")
    after = np.minimum(runs.numbers("done"), runs.numbers("held")) - runs.numbers("stop")
    return float(np.nansum(np.maximum(before, 0.0)) + np.nansum(np.maximum(after, 0.0)))


def _unsent(evidence: Evidence, until: str) -> float:
    """Return the idle thread time while tasks were runnable and not assigned, or in transit.

    ``not_sent`` counts until tasks were assigned, and for finished tasks until the scheduler knew.
    ``known_before`` counts until workers received the tasks, and so includes all message delays.
    """
    runs = evidence.runs
    spans = evidence.between("queued", "sent", runs)
    waited = evidence.between("waiting", "sent", runs)
    # `queued` is recorded only if Dask queues a task. Other tasks are assigned when they are
    # runnable.
    ends: dict[str, float] = {repr(row["key"]): row["known"] or row["stop"] for row in runs}
    runnable = []
    for row in runs:
        inputs = map(repr, row["dependencies"] or ())
        runnable.append(
            max([row["waiting"] or np.nan, *(ends[key] for key in inputs if key in ends)])
        )
    spans = spans + Steps.of(runnable, runs.numbers("sent"))
    unheard, out = evidence.between("done", "known", runs), evidence.between("sent", "done", runs)
    spans = spans + unheard
    # After all assigned tasks have ended, all idle threads wait until the scheduler learns of it.
    spans = spans + unheard.with_(out, lambda ended, going: np.where(going > 0, 0.0, ended * 1e9))
    if until == "known_before":
        spans = spans + evidence.between("sent", "received", runs)
        spans = spans + waited
        graphs = evidence.rows("Graph")
        stimuli = map(str, graphs.values("stimulus"))
        submitted = [float(stimulus.rpartition("-")[2] or "nan") for stimulus in stimuli]
        spans = spans + Steps.of(submitted, graphs.numbers("timestamp"), 1e9)
    unsent = evidence.rows("Unsent Tasks")
    if len(unsent):
        ends = np.full(len(unsent), evidence.end)
        spans = spans + Steps.of(unsent.numbers("timestamp"), ends, unsent.numbers("tasks"))
    return evidence.idle.least(spans).integral()
