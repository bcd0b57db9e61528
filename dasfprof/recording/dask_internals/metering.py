"""The worker's own metering: how each outcome is observed, and what its ledgers hold.

After each task run and each transfer the worker calls its private `_finalize_metrics` with the
outcome, an object of one of the classes here, and a ledger of seconds.

A ledger's metrics are labels with a value and a unit; a label may stand in it more than once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.names import DaskName
from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.guard import HookGuard


class _Unknown:
    """Stands for a class that this Dask does not have: nothing is of it."""


def _outcome(*needed: DaskName) -> Any:
    """Return the class that is named first, if all of these exist."""
    classes = [name.find() for name in needed]
    return classes[0] if all(isinstance(found, type) for found in classes) else _Unknown


ExecuteSuccessEvent: Any = _outcome(names.EXECUTE_SUCCESS)
ExecuteFailureEvent: Any = _outcome(names.EXECUTE_FAILURE)
RescheduleEvent: Any = _outcome(names.RESCHEDULE)
# Without the classes of how it went, a transfer would be told wrong: then none is told.
GatherDepDoneEvent: Any = _outcome(names.GATHER_DONE, names.GATHER_SUCCESS, names.GATHER_BUSY)
GatherDepSuccessEvent: Any = _outcome(names.GATHER_SUCCESS)
GatherDepBusyEvent: Any = _outcome(names.GATHER_BUSY)


def listen(worker: Any, observe: Callable[[Any, Any], None], guard: HookGuard) -> Patch | None:
    """Call `observe` with each outcome and its ledger, before the worker's own metering.

    The method is replaced on the worker alone. What `observe` raises goes to the guard.

    Returns
    -------
    Patch or None
        To be removed at the end. None if this Dask has no such method, or not all the classes of
        task runs: their outcomes are then to be taken from the public `transition` hook.
    """
    method = names.FINALIZE_METRICS.attribute
    runs = (ExecuteSuccessEvent, ExecuteFailureEvent, RescheduleEvent)
    if _Unknown in runs or not hasattr(worker, method):
        return None

    def wrap(original: Any, patch: Patch) -> Any:
        signature = _signature(original)

        def observed(*args: Any, **kwargs: Any) -> Any:
            if patch.active:
                try:
                    if len(args) > 1:
                        observe(args[0], args[1])
                    else:  # by name: the first two are the outcome and the ledger
                        event, ledger, *_ = signature.bind(*args, **kwargs).arguments.values()
                        observe(event, ledger)
                except Exception:
                    guard.caught(method)
            return original(*args, **kwargs)

        return observed

    return Patch(worker, method, wrap)


def _signature(function: Any) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # of a wrapper that tells none
        return inspect.Signature(
            [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        )


Metrics = Iterable[tuple[Any, float, str]]


def fetch_seconds(metrics: Metrics) -> tuple[float, float]:
    """Sum up a transfer's ledger: seconds on the network and of deserialising."""
    network = deserialize = 0.0
    for label, value, unit in metrics:
        if unit == "seconds":
            if label == "network":
                network += value
            elif label == "deserialize":
                deserialize += value
    return network, deserialize
