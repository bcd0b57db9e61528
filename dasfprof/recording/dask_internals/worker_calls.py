"""Observers of a worker's actor calls, P2P messages, and outcomes of task runs and transfers."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from time import perf_counter, time
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Entries, Patch, SharedListeners
from dasfprof.recording.guard import HookGuard

#
# Actor calls are not tasks. A worker receives actor calls as messages, and its `handlers` pass the
# messages to `Worker.actor_execute`. The worker runs the calls on its event loop or in a thread for
# actors. If an actor calls another actor on the same worker, the inner call is not a message, but a
# part of the outer call.


def can_observe(worker: Any, request: str = "actor_execute") -> bool:
    """Return whether one kind of request to this worker can be observed.

    `request` is the kind: ``actor_execute`` (actor calls), ``run`` (functions outside of tasks) or
    ``get_data`` (requests for results).
    """
    handlers = getattr(worker, "handlers", None)
    return isinstance(handlers, dict) and request in handlers


class ActorCalls:
    """Passes each actor call of a worker to an observer until `stop` is called.

    `can_observe` must have returned True.

    Parameters
    ----------
    observer
        Called when an actor call has ended, with a tuple: start, seconds, the actor's key, the
        method, and the outcome ``success``, ``failed`` or ``unanswered``. A call is ``unanswered``
        if the observation stopped before the worker answered.
    """

    #: The kind of request that is observed.
    _request = "actor_execute"

    def __init__(self, worker: Any, observer: Callable[[Any], None], guard: HookGuard) -> None:
        self._observer, self._guard = observer, guard
        #: Calls in progress: the start, the start by the clock for durations, the actor and the
        #: method.
        self._open: dict[object, tuple[float, float, Any, str]] = {}
        self._patch = Patch(Entries(worker.handlers), self._request, self._wrap)

    def stop(self) -> None:
        """Stop observing, and pass on the calls in progress as ``unanswered``. Idempotent."""
        self._patch.remove()
        for call in list(self._open):
            self._ended(call, "unanswered")

    def _wrap(self, original: Any, patch: Patch) -> Any:
        # Dask's connections keep a reference to the last handler that they called.
        reference = weakref.ref(self)

        def observed(*args: Any, **kwargs: Any) -> Any:
            answer, calls = original(*args, **kwargs), reference()
            if calls is None or not patch.active or not inspect.iscoroutine(answer):
                return answer
            return calls._awaited(answer, (*args, *kwargs.values()), kwargs)

        return observed

    async def _awaited(self, answer: Any, given: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call, state = answer, "failed"
        with self._guard.catching("a call outside of tasks"):
            call, named = self._begin(answer, given, kwargs)
            self._open[call] = time(), perf_counter(), *named
        try:
            result = await call
            ended_well = isinstance(result, dict) and result.get("status") == "OK"
            state = "success" if ended_well else "failed"
            return result
        finally:
            self._ended(call, state)

    def _begin(
        self, answer: Any, given: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, str]]:
        """Return an awaitable that runs the call, and the actor and the method."""
        return answer, (kwargs.get("actor", given[0]), str(kwargs.get("function", given[1])))

    def _ended(self, call: object, state: str) -> None:
        with self._guard.catching("a call outside of tasks"):
            known = self._open.pop(call, None)
            if known is not None:
                start, begin, *named = known
                self._note(call, start, perf_counter() - begin, named, state)

    def _note(self, call: Any, start: float, seconds: float, named: list[Any], state: str) -> None:
        self._observer((start, seconds, *named, state))


#
# P2P shuffles move rows and blocks between workers in messages. These messages are neither results
# of tasks nor transfers. Dask's private `CommShardsBuffer.process` sends the messages. All workers
# of a process share this method, so it is wrapped once.

#: A message: start, seconds, the receiver's address, bytes, and ``success`` or ``failed``.
Message = tuple[float, float, str, int, str]
Observer = Callable[[Message], None]


def observe(worker: Any, observer: Observer, guard: HookGuard) -> Callable[[], None]:
    """Call an observer with each message of a P2P shuffle from this worker to another worker.

    Return the function that removes the observer.
    """
    if not names.P2P.exist():
        return lambda: None
    return _listeners.add((worker.address, observer, guard))


def _wrap(original: Any, patch: Patch) -> Any:
    async def observed(buffer: Any, *args: Any, **kwargs: Any) -> Any:
        if not patch.active:
            return await original(buffer, *args, **kwargs)
        start, begin = time(), perf_counter()
        sent = await original(buffer, *args, **kwargs)
        _report(buffer, args, kwargs, start, perf_counter() - begin)
        return sent

    return observed


def _report(
    buffer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], start: float, seconds: float
) -> None:
    listeners = _listeners.all
    try:
        shuffle = buffer.send.__self__
        sender = shuffle.local_address
        target, _, size = (*args, *kwargs.values())
        if target == sender:
            return
        state = "failed" if buffer._exception else "success"
        for address, observer, _ in listeners:
            if address == sender:
                observer((start, seconds, target, size, state))
    except Exception:
        for *_, guard in listeners:
            guard.caught("a message of a P2P shuffle")


#: The addresses of the recorded workers, each with its observer and guard.
_listeners: SharedListeners[tuple[str, Observer, HookGuard]] = SharedListeners(
    lambda: [(names.P2P.find("CommShardsBuffer"), "process", _wrap)]
)


#
# After each task run and each transfer, the worker calls its private `_finalize_metrics` with the
# outcome and a ledger of metrics. The outcome is an instance of one of the classes below. A metric
# has a label, a value and a unit. A label may occur more than once.


def _outcome(name: str) -> Any:
    """Return Dask's class with this name, or `NoneType` if Dask lacks it."""
    kind = names.METERING.find(name)
    return kind if isinstance(kind, type) else type(None)


ExecuteSuccessEvent = _outcome("ExecuteSuccessEvent")
ExecuteFailureEvent = _outcome("ExecuteFailureEvent")
RescheduleEvent = _outcome("RescheduleEvent")
GatherDepDoneEvent = _outcome("GatherDepDoneEvent")
GatherDepSuccessEvent = _outcome("GatherDepSuccessEvent")
GatherDepBusyEvent = _outcome("GatherDepBusyEvent")


def listen(worker: Any, observe: Callable[[Any, Any], None], guard: HookGuard) -> Patch | None:
    """Call `observe` with the outcome of each task run and transfer, and with Dask's metrics of it.

    `observe` is called before the worker handles the metrics.

    Returns
    -------
    Patch or None
        The patch, which the caller removes at the end. None if this version of Dask does not have
        the private names.
    """
    if not names.METERING.exist():
        return None

    def wrap(original: Any, patch: Patch) -> Any:
        def observed(*args: Any, **kwargs: Any) -> Any:
            if patch.active:
                try:
                    observe(*(*args, *kwargs.values())[:2])
                except Exception:
                    guard.caught("the outcome of a task run or transfer")
            return original(*args, **kwargs)

        return observed

    return Patch(worker, "_finalize_metrics", wrap)
