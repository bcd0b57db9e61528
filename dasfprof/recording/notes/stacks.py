"""`StackRows`: the distinct stacks of one file, each written once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import time

from dasfprof.database.losses import Losses
from dasfprof.recording.dask_internals.inspection.stacks import Stack
from dasfprof.recording.notes.layout import SchemaRow
from dasfprof.schema.under_way import STACK

#: The most stacks of a file, those that only lead to others among them. Those of endless new code
#: would fill the disk.
MOST_STACKS = 20_000

UNKNOWN_STACK = -1


class StackRows:
    """Numbers stacks and writes those that are new. Safe to use from any thread.

    A stack is written as its innermost frame and the number of the stack around that: stacks of
    one program begin alike.

    Parameters
    ----------
    append
        Takes a row with its schema.
    losses
        Counts in the file what is missing from it.
    """

    def __init__(self, append: Callable[[SchemaRow], object], losses: Losses) -> None:
        self._append = append
        self._losses = losses
        self._lock = threading.Lock()
        self._numbers: dict[tuple[int, tuple[str, str, int]], int] = {}

    def number(self, stack: Stack) -> int:
        """Return the number of a stack; -1 for an empty one, and where the file has too many."""
        numbers, number = self._numbers, UNKNOWN_STACK
        now = int(time() * 1024) / 1024  # one for all its frames, with few digits
        with self._lock:
            for frame in stack:
                parent, number = number, numbers.get((number, frame), UNKNOWN_STACK)
                if number == UNKNOWN_STACK:
                    number = len(numbers)
                    if number >= MOST_STACKS:
                        self._losses.add("too many stacks")
                        return UNKNOWN_STACK
                    numbers[parent, frame] = number
                    self._append((STACK, (now, number, [list(frame)], parent)))
        return number
