"""Calls between workers: of actors, which a worker answers, and P2P messages, which it sends."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from time import perf_counter, time
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Entries, Hook, Patch, SharedPatches
from dasfprof.recording.guard import HookGuard

# --- Calls of actors' methods: observing each call that a worker answers --------------------------
#
# They are no tasks: a worker gets them by messages of their own, which its `handlers` give to
# `Worker.actor_execute`, and runs them on its event loop or in one thread of their own. A call that
# an actor makes of another one on its own worker is no message: it is a part of the call around it.

#: Start, seconds, the actor's key, the method, and ``success``, ``failed`` or ``unanswered``: it
#: had no answer at the end, which is then that of its seconds.
Call = tuple[float, float, Any, str, str]


def can_observe(worker: Any) -> bool:
    """Return whether calls of this worker's actors can be observed."""
    handlers = getattr(worker, "handlers", None)
    return isinstance(handlers, dict) and "actor_execute" in handlers


class ActorCalls:
    """Calls an observer with each call of an actor of a worker, from now on until `stop`.

    Made where `can_observe` says so.

    Parameters
    ----------
    worker, observer, guard
        The worker; who gets the calls, as they end; what handles errors.
    """

    def __init__(self, worker: Any, observer: Callable[[Call], None], guard: HookGuard) -> None:
        self._observer, self._guard = observer, guard
        #: Calls that have no answer yet: start, begin by the clock of durations, actor, method.
        self._open: dict[object, tuple[float, float, Any, str]] = {}
        self._patch = Patch(Entries(worker.handlers), "actor_execute", self._wrap)

    def stop(self) -> None:
        """Observe no more; the observer gets the calls that have no answer. Idempotent."""
        self._patch.remove()
        for call in list(self._open):
            self._ended(call, "unanswered")

    def _wrap(self, original: Any, patch: Patch) -> Any:
        def observed(*args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            if not patch.active or not inspect.iscoroutine(answer):
                return answer
            return self._awaited(answer, (*args, *kwargs.values()), kwargs)

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
            state = _state(result)
            return result
        finally:
            self._ended(call, state)

    def _ended(self, call: object, state: str) -> None:
        try:
            known = self._open.pop(call, None)
            if known is not None:
                start, begin, actor, method = known
                self._observer((start, perf_counter() - begin, actor, method, state))
        except Exception:
            self._guard.caught("a call of an actor")


def _state(result: Any) -> str:
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

#: By the address of the worker that sends: of each run that is recorded there.
_observers: dict[str, tuple[tuple[Observer, HookGuard], ...]] = {}


def observe(worker: Any, observer: Observer, guard: HookGuard) -> Callable[[], None]:
    """Call an observer with each message of a P2P shuffle from this worker to another one.

    It is never called if this Dask lacks a name that is needed.

    Returns
    -------
    Callable
        Removes the observer.
    """
    address = worker.address
    if not names.P2P.exist():
        return lambda: None
    added = observer, guard
    _observers[address] = (*_observers.get(address, ()), added)
    _patches.enter()

    def leave() -> None:
        left = _observers.get(address, ())
        if added in left:
            _observers[address] = tuple(other for other in left if other is not added)
            _patches.leave()

    return leave


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
    guards = [guard for observers in _observers.values() for _, guard in observers]
    try:
        shuffle = buffer.send.__self__
        sender = shuffle.local_address
        target, _, size = (*args, *kwargs.values())
        if target == sender:
            return
        error = getattr(buffer, "_exception", None)
        for observer, _ in _observers.get(sender, ()):
            observer((start, seconds, target, size, "failed" if error else "success"))
    except Exception:
        for guard in guards:
            guard.caught("a message of a P2P shuffle")


_patches = SharedPatches(_hooks, _observers.clear)
