"""Calls of actors' methods: observing each call that a worker answers.

They are no tasks: a worker gets them by messages of their own, which its `handlers` give to
`Worker.actor_execute`, and runs them on its event loop or in one thread of their own. A call that
an actor makes of another one on its own worker is no message: it is a part of the call around it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from time import perf_counter, time
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Entries, Patch
from dasfprof.recording.guard import HookGuard

#: Start, seconds, the actor's key, the method, and ``success`` or ``failed``.
Call = tuple[float, float, Any, str, str]

_NEEDED = (names.HANDLERS, names.ACTOR_EXECUTE)


def can_observe(worker: Any) -> bool:
    """Return whether calls of this worker's actors can be observed."""
    handlers = getattr(worker, names.HANDLERS.attribute, None)
    return (
        all(name.exists() for name in _NEEDED)
        and isinstance(handlers, dict)
        and names.ACTOR_EXECUTE.attribute in handlers
    )


def observe(worker: Any, observer: Callable[[Call], None], guard: HookGuard) -> Patch | None:
    """Call an observer with each call of an actor of this worker that has ended.

    Returns
    -------
    Patch or None
        To be removed at the end. None if this Dask lacks what is needed.
    """
    if not can_observe(worker):
        return None
    operation = names.ACTOR_EXECUTE.attribute

    def wrap(original: Any, patch: Patch) -> Any:
        def observed(*args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            if not patch.active or not inspect.iscoroutine(answer):
                return answer
            return awaited(answer, (*args, *kwargs.values()), kwargs)

        async def awaited(answer: Any, given: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            start, begin, state = time(), perf_counter(), "failed"
            try:
                result = await answer
                state = _state(result)
                return result
            finally:
                try:
                    actor = kwargs.get("actor", given[0])
                    method = kwargs.get("function", given[1])
                    observer((start, perf_counter() - begin, actor, str(method), state))
                except Exception:
                    guard.caught(operation)

        return observed

    handlers = getattr(worker, names.HANDLERS.attribute)
    return Patch(Entries(handlers), operation, wrap)


def _state(result: Any) -> str:
    """Return whether the method gave a result: what it raises is an answer too."""
    ended_well = isinstance(result, dict) and result.get("status") == "OK"
    return "success" if ended_well else "failed"
