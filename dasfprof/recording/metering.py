"""The worker's own metering: how it is overheard, and what its ledgers hold.

A ledger's metrics are labels with a value and a unit; a label may stand in it more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
