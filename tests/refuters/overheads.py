"""Refuters of what is said about Dask's own work: small tasks, the scheduler, messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from refuters.attempts import is_most, most
from refuters.evidence import Evidence, Rows
from refuters.figures import Said, differs, exceeds
from refuters.registry import refuter
from refuters.steps import Steps

#: A layer's chunks are equal but for those at its edges; advice may round up.
_SOME = 1.1
#: A function's tasks are small if half of them are shorter than so many times what is said of all.
_AS_SMALL = 10.0


@refuter("tasks-too-small")
def tasks_too_small(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with task runs, what goes on around them, and the bytes there are to be cut up."""
    done = evidence.runs.where(lambda row: row["state"] in ("memory", None))
    if said["shuffling"]:  # Tasks of shuffles count as handling.
        return
    yield from differs(said["tasks"], len(done), "tasks")
    median = float(np.median(done.numbers("working")))
    yield from differs(said["median"], median, "the median")
    handling = handling_seconds(evidence)
    yield from exceeds(said["handling"], min(handling / evidence.thread_seconds, 1), "handling")
    if said["overhead"]:
        held = np.fmin(done.numbers("stop"), done.numbers("held")) - done.numbers("timestamp")
        computed = float(np.maximum(held - done.numbers("waited"), 0.0).sum())
        yield from exceeds(said["overhead"], handling / computed, "overhead by compute")
    own = evidence.of(said.function)
    if len(own):
        lengths = own.numbers("working")
        yield from differs(said["own"], float(lengths.mean()), "seconds of one of its tasks")
        if float(np.median(own.numbers("working"))) > _AS_SMALL * max(median, 1e-3):
            yield f"tasks of {said.function} are not small: {np.median(lengths):.3g} s each"
    yield from _advice(said["advice"], evidence)


def _largest_layer(rows: Rows) -> float:
    """Return the most bytes that the tasks of a layer have together."""
    layers: dict[object, dict[str, float]] = defaultdict(dict)
    for row in rows:
        layer = row["key"][0] if isinstance(row["key"], tuple) else ""
        layers[layer][repr(row["key"])] = max(row["size"] or 0.0, row["input_size"] or 0.0)
    return max(sum(layer.values()) for layer in layers.values())


def _advice(advised: dict[str, Any], evidence: Evidence) -> Iterator[str]:
    """Yield it if chunks are advised that are larger than all there is of them."""
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
def scheduler_bound(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the time of idle threads before tasks were sent or known to have ended."""
    unsent = _unsent(evidence, "not_sent") / evidence.thread_seconds
    yield from exceeds(said["idle"], unsent, "threads that idle with unsent tasks")
    # The scheduler handles more than workers tell of.
    most_tasks = len(evidence.runs) / evidence.wall + 0.5
    yield from exceeds(said["tasks_a_second"], most_tasks, "tasks a second")
    yield from exceeds(said["on_path"], evidence.wall, "seconds of the critical path")


@refuter("slow-dispatch")
def slow_dispatch(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the time between being sent and being received, and with lags of loops."""
    late = evidence.idle_by_worker("sent", "received")
    yield from exceeds(said["idle"], late / evidence.thread_seconds, "idle threads")
    stolen = np.array([row["noted"].get("stolen") or np.nan for row in evidence.runs])
    way = evidence.runs.numbers("received") - np.fmax(evidence.runs.numbers("sent"), stolen)
    yield from differs(said["longest"], float(np.nanmax(way)), "the longest way")
    yield from exceeds(said["on_path"], evidence.wall, "seconds of the critical path")
    sums = most(evidence.runs.values("function"), np.nan_to_num(way))
    if not is_most(str(said.function), sums):
        yield f"most of it are not tasks of {said.function}"
    lags = evidence.rows("Managed Memory").values("loop_lag")
    blocked = len(evidence.rows("Loop Sample")) or any(lag is None or lag > 0 for lag in lags)
    if said["blocked"] > 0 and not blocked:
        yield "no loop was late"


def handling_seconds(evidence: Evidence) -> float:
    """Sum, at most, the thread time in which tasks were handled and no function ran."""
    latency = evidence.idle_by_worker("ready", "executing") + _unsent(evidence, "known_before")
    return _around(evidence) + latency


def _around(evidence: Evidence) -> float:
    """Sum the time for which tasks held a thread and their function did not run."""
    runs = evidence.runs
    before = runs.numbers("timestamp") - runs.numbers("executing")
    after = np.minimum(runs.numbers("done"), runs.numbers("held")) - runs.numbers("stop")
    return float(np.nansum(np.maximum(before, 0.0)) + np.nansum(np.maximum(after, 0.0)))


def _unsent(evidence: Evidence, until: str) -> float:
    """Sum the time in which threads idled while tasks were runnable and not sent, or on their way.

    Until tasks were sent, and of ended ones until the scheduler knew, for ``not_sent``; until
    workers knew of them, which is all that has to do with messages, for ``known_before``.
    """
    runs = evidence.runs
    spans = evidence.between("queued", "sent", runs)
    waited = evidence.between("waiting", "sent", runs)
    # Dask notes `queued` only where it holds a task back: else it is sent as it becomes runnable.
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
    # Once all that were sent have ended, every idle thread waits until the scheduler hears of it.
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
