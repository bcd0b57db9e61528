"""What a worker does: calls of actors, P2P messages, outcomes of task runs and transfers."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable
from time import perf_counter, time
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.names import Names
from dasfprof.recording.dask_internals.patch import Entries, Hook, Patch, SharedListeners
from dasfprof.recording.guard import HookGuard

# --- Calls of actors' methods: observing each call that a worker answers --------------------------
#
# They are no tasks: a worker gets them by messages of their own, which its `handlers` give to
# `Worker.actor_execute`, and runs them on its event loop or in one thread of their own. A call that
# an actor makes of another one on its own worker is no message: it is a part of the call around it.

#: Start, seconds, the actor's key, the method, and ``success``, ``failed`` or ``unanswered``: it
#: had no answer at the end, which is then that of its seconds.
Call = tuple[float, float, Any, str, str]


def can_observe(worker: Any, request: str = "actor_execute") -> bool:
    """Return whether requests to this worker can be observed: calls of actors, or functions."""
    handlers = getattr(worker, "handlers", None)
    return isinstance(handlers, dict) and request in handlers


class ActorCalls:
    """Calls an observer with each call of an actor of a worker, from now on until `stop`.

    Made where `can_observe` says so.

    Parameters
    ----------
    worker, observer, guard
        The worker; who gets the calls, as they end; what handles errors.
    """

    #: The message that asks for a call.
    _request = "actor_execute"

    def __init__(self, worker: Any, observer: Callable[[Any], None], guard: HookGuard) -> None:
        self._observer, self._guard = observer, guard
        #: Calls that have no answer yet: start, begin by the clock of durations, actor, method.
        self._open: dict[object, tuple[float, float, Any, str]] = {}
        self._patch = Patch(Entries(worker.handlers), self._request, self._wrap)

    def stop(self) -> None:
        """Observe no more; the observer gets the calls that have no answer. Idempotent."""
        self._patch.remove()
        for call in list(self._open):
            self._ended(call, "unanswered")

    def _wrap(self, original: Any, patch: Patch) -> Any:
        # Dask's connections keep the last handler that they called, and what it refers to.
        reference = weakref.ref(self)

        def observed(*args: Any, **kwargs: Any) -> Any:
            answer, calls = original(*args, **kwargs), reference()
            if calls is None or not patch.active or not inspect.iscoroutine(answer):
                return answer
            return calls._awaited(answer, (*args, *kwargs.values()), kwargs)

        return observed

    async def _awaited(self, answer: Any, given: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call, state = object(), "failed"
        try:
            actor, method = kwargs.get("actor", given[0]), kwargs.get("function", given[1])
            self._open[call] = time(), perf_counter(), actor, str(method)
        except Exception:
            self._guard.caught("a call of an actor")
        try:
            result = await answer
            state = outcome_of(result)
            return result
        finally:
            self._ended(call, state)

    def _ended(self, call: object, state: str) -> None:
        try:
            known = self._open.pop(call, None)
            if known is not None:
                start, begin, *named = known
                self._note(call, start, perf_counter() - begin, named, state)
        except Exception:
            self._guard.caught("a call outside of tasks")

    def _note(self, call: Any, start: float, seconds: float, named: list[Any], state: str) -> None:
        self._observer((start, seconds, *named, state))


def outcome_of(result: Any) -> str:
    """Return whether the method gave a result: what it raises is an answer too."""
    ended_well = isinstance(result, dict) and result.get("status") == "OK"
    return "success" if ended_well else "failed"


# --- Messages of P2P shuffles: observing what a worker sends to other workers ---------------------
#
# P2P shuffles move rows and blocks between workers by messages of their own: they are no results of
# tasks, and no transfers. Dask's private `CommShardsBuffer.process` sends one. All workers of a
# process share it, so it is wrapped once, for the first worker, and restored after the last.

#: Start, seconds, the receiver's address, bytes, and ``success`` or ``failed``.
Message = tuple[float, float, str, int, str]
Observer = Callable[[Message], None]


def observe(worker: Any, observer: Observer, guard: HookGuard) -> Callable[[], None]:
    """Call an observer with each message of a P2P shuffle from this worker to another one.

    It is never called if this Dask lacks a name that is needed.

    Returns
    -------
    Callable
        Removes the observer.
    """
    if not names.P2P.exist():
        return lambda: None
    return _listeners.add((worker.address, observer, guard))


def _hooks() -> list[Hook]:
    return [(names.P2P.find("CommShardsBuffer"), "process", _wrap)]


def _wrap(original: Any, patch: Patch) -> Any:
    async def observed(buffer: Any, *args: Any, **kwargs: Any) -> Any:
        if not patch.active:
            return await original(buffer, *args, **kwargs)
        start, begin = time(), perf_counter()
        sent = await original(buffer, *args, **kwargs)
        _tell(buffer, args, kwargs, start, perf_counter() - begin)
        return sent

    return observed


def _tell(
    buffer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], start: float, seconds: float
) -> None:
    listeners = _listeners.all
    try:
        shuffle = buffer.send.__self__
        sender = shuffle.local_address
        target, _, size = (*args, *kwargs.values())
        if target == sender:
            return
        error = getattr(buffer, "_exception", None)
        for address, observer, _ in listeners:
            if address == sender:
                observer((start, seconds, target, size, "failed" if error else "success"))
    except Exception:
        for *_, guard in listeners:
            guard.caught("a message of a P2P shuffle")


#: Of each run that is recorded on a worker: the address of that one, and who is told.
_listeners: SharedListeners[tuple[str, Observer, HookGuard]] = SharedListeners(_hooks)


# --- The worker's own metering: observing the outcomes of task runs and transfers -----------------
#
# After each task run and each transfer the worker calls its private `_finalize_metrics` with the
# outcome, an object of one of the classes here, and a ledger of metrics.
#
# A ledger's metrics are labels with a value and a unit; a label may occur more than once.


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

    The method is replaced on this worker only. The guard handles errors that `observe` raises.

    Returns
    -------
    Patch or None
        To be removed at the end. None if this Dask lacks the method or a class of outcomes of task
        runs: use the public `transition` hook then.
    """
    if not names.METERING.exist():
        return None

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
                    guard.caught("the outcome of a task run or transfer")
            return original(*args, **kwargs)

        return observed

    return Patch(worker, "_finalize_metrics", wrap)


def fetch_seconds(metrics: Iterable[tuple[Any, float, str]]) -> tuple[float, float]:
    """Return a transfer's seconds on the network and of deserialising, from its ledger."""
    network = deserialize = 0.0
    for label, value, unit in metrics:
        if unit == "seconds":
            if label == "network":
                network += value
            elif label == "deserialize":
                deserialize += value
    return network, deserialize
