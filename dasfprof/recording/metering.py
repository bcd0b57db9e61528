"""Listening to a method of one object: how the worker's own metering is overheard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dasfprof.recording.guard import HookGuard


def listen(
    target: Any, name: str, observe: Callable[[Any, Any], None], guard: HookGuard
) -> Callable[[], None]:
    """Call `observe` with the first two arguments of each call of a method, before the method.

    The method is replaced on the instance alone. What `observe` raises goes to the guard.

    Returns
    -------
    Callable
        Puts the method back. Where somebody else wrapped it since, theirs stays, and ours stays
        below it and only passes the call on.
    """
    original = getattr(target, name)
    was_replaced = name in vars(target)
    active = True

    def overheard(first: Any, second: Any, *args: Any, **kwargs: Any) -> Any:
        if active:
            try:
                observe(first, second)
            except Exception:
                guard.caught(name)
        return original(first, second, *args, **kwargs)

    setattr(target, name, overheard)

    def stop() -> None:
        nonlocal active
        active = False
        if vars(target).get(name) is overheard:
            if was_replaced:
                setattr(target, name, original)
            else:
                delattr(target, name)

    return stop
