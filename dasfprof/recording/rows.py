"""`FileRows`: writes rows of several event kinds, and the stacks to which such rows refer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence
from time import time
from typing import Any

from dasfprof.database.writer import Folded, Source, TraceWriter
from dasfprof.recording.dask_internals.inspection.stacks import Stack
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.events import Schema
from dasfprof.schema.under_way import STACK

#: The schema of a row, and the row.
SchemaRow = tuple[Schema, tuple[Any, ...]]


def fold_rows(rows: Sequence[SchemaRow]) -> Folded:
    """Group rows by schema.

    For each schema, the result has the schema, its rows, and the positions of these rows in `rows`.
    """
    by_schema: dict[Schema, tuple[list[tuple[Any, ...]], list[int]]] = {}
    for position, (schema, row) in enumerate(rows):
        rows_of_schema, positions = by_schema.setdefault(schema, ([], []))
        rows_of_schema.append(row)
        positions.append(position)
    return [(schema, *folded) for schema, folded in by_schema.items()]


def discard(fact: Any) -> None:
    """Do nothing. Used instead of a function that records events if there is no file."""


#: Maximum number of stacks in a file, including stacks that are only the outer part of others.
#: Without this limit, the stacks of programs that generate code could fill the disk.
MOST_STACKS = 20_000

UNKNOWN_STACK = -1


class FileRows:
    """Writes rows into a file, and each distinct stack before the first row that refers to it.

    All methods are thread-safe.

    Parameters
    ----------
    writer
        The writer of the file.
    constants
        Fields with the same value in every event.
    guard
        Handles the errors of those who write rows.
    append
        A function that appends a row with its schema, or None to append it to the file.
    """

    def __init__(
        self,
        writer: TraceWriter,
        constants: dict[str, Any],
        guard: HookGuard,
        append: Callable[[SchemaRow], object] | None = None,
    ) -> None:
        self.writer, self.constants, self.guard = writer, constants, guard
        self.append = append or writer.appender(Source(fold_rows, constants))
        #: Keys of tasks for which no rows are written.
        self.hidden: Container[Any] = ()
        self._lock = threading.Lock()
        #: Numbers of stacks, by the number of the stack without its innermost frame and by that
        #: frame.
        self._numbers: dict[tuple[int, tuple[str, str, int]], int] = {}

    def write(self, kind: Schema, facts: dict[str, Any], stack: Stack = ()) -> None:
        """Write a row with the current time.

        Parameters
        ----------
        kind
            The kind of event.
        facts
            Values by name of the column. Columns that are missing here get None.
        stack
            The stack for the column ``stack``, or empty if the stack is unknown.
        """
        if facts.get("key") in self.hidden:
            return
        values = {"timestamp": time(), "stack": self.stack_number(stack), **facts}
        self.append((kind, tuple(values.get(name) for name, _ in kind.fields + kind.args)))

    def stack_number(self, stack: Stack) -> int:
        """Return the number of a stack, or -1 if it is empty or the file has too many stacks.

        A row is written for each new stack. It has the innermost frame, and the number of the stack
        without that frame. So stacks with the same outer frames share rows.
        """
        numbers, number = self._numbers, UNKNOWN_STACK
        now = int(time() * 1024) / 1024  # Times with few digits compress well.
        with self._lock:
            for frame in stack:
                parent, number = number, numbers.get((number, frame), UNKNOWN_STACK)
                if number == UNKNOWN_STACK:
                    number = len(numbers)
                    if number >= MOST_STACKS:
                        self.writer.losses.add("too many stacks")
                        return UNKNOWN_STACK
                    numbers[parent, frame] = number
                    self.append((STACK, (now, number, [list(frame)], parent)))
        return number
