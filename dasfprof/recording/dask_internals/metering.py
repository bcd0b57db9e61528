"""The worker's own metering: observing the outcomes of task runs and transfers.

After each task run and each transfer the worker calls its private `_finalize_metrics` with the
outcome, an object of one of the classes here, and a ledger of metrics. A Dask that tells plugins
itself (``docs/upstream/``) calls their method `outcome`, and nothing is replaced.

A ledger's metrics are labels with a value and a unit; a label may occur more than once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from threading import Event
from typing import Any, NamedTuple

from distributed.diagnostics.plugin import WorkerPlugin

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.names import Names
from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.guard import HookGuard

#: What failed, in the log.
_WHAT = "the outcome of a task run or transfer"


class _Unknown:
    """Stands for a class that this Dask does not have, so that no object is of it."""


def _outcome(of: Names, name: str) -> Any:
    found = of.find(name) if of.exist() else None
    return found if isinstance(found, type) else _Unknown


ExecuteSuccessEvent = _outcome(names.METERING, "ExecuteSuccessEvent")
ExecuteFailureEvent = _outcome(names.METERING, "ExecuteFailureEvent")
RescheduleEvent = _outcome(names.METERING, "RescheduleEvent")
GatherDepDoneEvent = _outcome(names.TRANSFERS, "GatherDepDoneEvent")
GatherDepSuccessEvent = _outcome(names.TRANSFERS, "GatherDepSuccessEvent")
GatherDepBusyEvent = _outcome(names.TRANSFERS, "GatherDepBusyEvent")


Metrics = Iterable[tuple[Any, float, str]]


class Metered(NamedTuple):
    """What a Dask with the public hook tells of an instruction, as its ledger has it."""

    metrics: Metrics
    #: By `time.perf_counter`.
    start: float


class Listening(NamedTuple):
    """How outcomes are heard of."""

    #: Ends it.
    remove: Callable[[], object]
    #: The plugin's method `outcome`, in a Dask that calls it; None: a wrapper hears of them.
    outcome: Callable[[Any, Metrics, float], None] | None


def listen(worker: Any, observe: Callable[[Any, Any], None], guard: HookGuard) -> Listening | None:
    """Call `observe` with each outcome and its ledger, before the worker's own metering.

    Where plugins are not told, the worker's method is replaced, on this worker only. The guard
    handles what `observe` raises.

    Returns
    -------
    Listening or None
        To be removed at the end. None if this Dask lacks the method or a class of outcomes of task
        runs: use the public `transition` hook then.
    """
    if not names.METERING.exist():
        return None
    if hasattr(WorkerPlugin, "outcome"):
        return _told(observe, guard)

    def wrap(original: Any, patch: Patch) -> Any:
        def observed(*args: Any, **kwargs: Any) -> Any:
            if patch.active:
                try:
                    given = args
                    if len(args) < 2:  # passed by name
                        bound = inspect.signature(original).bind(*args, **kwargs)
                        given = tuple(bound.arguments.values())
                    observe(given[0], given[1])
                except Exception:
                    guard.caught(_WHAT)
            return original(*args, **kwargs)

        return observed

    return Listening(Patch(worker, "_finalize_metrics", wrap).remove, None)


def _told(observe: Callable[[Any, Any], None], guard: HookGuard) -> Listening:
    ended = Event()

    def outcome(event: Any, metrics: Metrics, start: float) -> None:
        if not ended.is_set():
            try:
                observe(event, Metered(metrics, start))
            except Exception:
                guard.caught(_WHAT)

    return Listening(ended.set, outcome)


def fetch_seconds(metrics: Metrics) -> tuple[float, float]:
    """Return a transfer's seconds on the network and of deserialising, from its ledger."""
    network = deserialize = 0.0
    for label, value, unit in metrics:
        if unit == "seconds":
            if label == "network":
                network += value
            elif label == "deserialize":
                deserialize += value
    return network, deserialize
