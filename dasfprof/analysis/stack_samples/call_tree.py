"""`CallTree`: stacks merged into one tree of calls, with the time of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dasfprof.analysis.under_way.state import Stack
from dasfprof.database.columns import Array


@dataclass
class Call:
    """A function, called from the same functions."""

    function: str
    file: str
    depth: int
    #: Of it and of what it calls, and of it alone.
    seconds: float = 0.0
    own_seconds: float = 0.0
    samples: int = 0
    calls: dict[tuple[str, str], Call] = field(default_factory=dict)


class CallTree:
    """The calls of stacks.

    Parameters
    ----------
    stacks
        The stacks.
    seconds, samples
        Of each.
    """

    def __init__(self, stacks: list[Stack], seconds: Array, samples: Array) -> None:
        self._roots: dict[tuple[str, str], Call] = {}
        for stack, spent, number in zip(stacks, seconds.tolist(), samples.tolist(), strict=True):
            calls, call = self._roots, None
            for depth, frame in enumerate(stack if number else ()):
                name = frame.function, frame.file
                call = calls.get(name)
                if call is None:
                    call = calls[name] = Call(*name, depth)
                call.seconds += spent
                call.samples += number
                calls = call.calls
            if call is not None:
                call.own_seconds += spent

    def calls(self) -> Iterator[Call]:
        """Return the calls, each followed by those that it makes, the longest first."""
        pending = _by_time(self._roots)
        while pending:
            call = pending.pop()
            yield call
            pending += _by_time(call.calls)


def _by_time(calls: dict[tuple[str, str], Call]) -> list[Call]:
    return sorted(calls.values(), key=lambda call: call.seconds)
