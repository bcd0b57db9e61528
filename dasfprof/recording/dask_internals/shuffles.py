"""Messages of P2P shuffles: observing what a worker sends to other workers.

P2P shuffles move rows and blocks between workers by messages of their own: they are no results of
tasks, and no transfers. Dask's private `CommShardsBuffer.process` sends one. All workers of a
process share it, so it is wrapped once, for the first worker, and restored after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter, time
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Patch, SharedPatches
from dasfprof.recording.guard import HookGuard

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


def _place() -> Iterator[Patch]:
    yield Patch(names.P2P.find("CommShardsBuffer"), "process", _wrap)


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


_patches = SharedPatches(_place, _observers.clear)
