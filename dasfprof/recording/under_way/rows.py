"""`UnderWayRows`: the rows of one file that tell what is under way, and their stacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import time
from typing import Any

from dasfprof.database.losses import Losses
from dasfprof.database.writer import Source, TraceWriter
from dasfprof.recording.dask_internals.inspection.stacks import Stack
from dasfprof.recording.notes.rows import SchemaRow, fold_rows
from dasfprof.recording.notes.stacks import StackRows
from dasfprof.schema.declaration import Schema


class UnderWayRows:
    """Writes rows into a file, and each distinct stack once before the first row that has it.

    Parameters
    ----------
    append
        Takes a row with its schema.
    losses
        Counts in the file what is missing from it.
    """

    def __init__(self, append: Callable[[SchemaRow], object], losses: Losses) -> None:
        self.append = append
        #: Counts what is missing from the file.
        self.losses = losses
        #: The file's stacks.
        self.stacks = StackRows(append, losses)

    @classmethod
    def into(cls, writer: TraceWriter, constants: dict[str, Any]) -> UnderWayRows:
        """Return rows that go into the file of a plugin.

        Parameters
        ----------
        writer
            The file's.
        constants
            Fields with the same value in every event.
        """
        source = Source(fold_rows, constants)
        writer.add_source(source)
        return cls(partial(writer.append, source), writer.losses)

    def write(self, kind: Schema, facts: dict[str, Any], stack: Stack = ()) -> None:
        """Write a row of now.

        Parameters
        ----------
        kind
            The kind of event.
        facts
            Values of its columns; others are None.
        stack
            What its column ``stack`` refers to, if it has one; empty: unknown.
        """
        values = {"timestamp": time(), "stack": self.stacks.number(stack), **facts}
        self.append((kind, tuple(values.get(name) for name, _ in kind.fields + kind.args)))
