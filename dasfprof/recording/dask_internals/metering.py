"""The worker's own metering: observing the outcomes of task runs and transfers.

After each task run and each transfer the worker calls its private `_finalize_metrics` with the
outcome, an object of one of the classes here, and a ledger of metrics.

A ledger's metrics are labels with a value and a unit; a label may occur more than once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.names import Names
from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.guard import HookGuard


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


def listen(worker: Any, observe: Callable[[Any, Any], None], guard: HookGuard) -> Patch | None:
    """Call `observe` with each outcome and its ledger, before the worker's own metering.

    The method is replaced on this worker only. The guard handles what `observe` raises.

    Returns
    -------
    Patch or None
        To be removed at the end. None if this Dask lacks the method or a class of outcomes of task
        runs: use the public `transition` hook then.
    """
    if not names.METERING.exist():
        return None

    def wrap(original: Any, patch: Patch) -> Any:
        signature = _signature(original)

        def observed(*args: Any, **kwargs: Any) -> Any:
            if patch.active:
                try:
                    if len(args) > 1:
                        observe(args[0], args[1])
                    else:  # passed by name: the first two are the outcome and the ledger
                        event, ledger, *_ = signature.bind(*args, **kwargs).arguments.values()
                        observe(event, ledger)
                except Exception:
                    guard.caught("the outcome of a task run or transfer")
            return original(*args, **kwargs)

        return observed

    return Patch(worker, "_finalize_metrics", wrap)


def _signature(function: Any) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # a wrapper without a signature
        return inspect.Signature(
            [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        )


Metrics = Iterable[tuple[Any, float, str]]


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
