"""The rows of a file that say what is under way, and when each is due."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import time
from typing import Any

from dasfprof.database.losses import Losses
from dasfprof.database.writer import Source, TraceWriter
from dasfprof.recording.dask_internals.inspection.stacks import Stack
from dasfprof.recording.notes.layout import SchemaRow, fold_rows
from dasfprof.recording.stack_samples.stacks import StackRows
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


#: Seconds until the first repetition, and the most until the next.
FIRST, LONGEST = 1.0, 60.0

#: Seconds by which a look may come early.
_TOLERANCE = 0.2


class Repeats:
    """Decides when a row is due: at the first look, 1, 2, 4 ... 60 s later, and after changes.

    Parameters
    ----------
    now
        Monotonic seconds of the first look.
    """

    __slots__ = ("_due", "_facts", "_gap", "_seen", "_state", "_steady")

    def __init__(self, now: float) -> None:
        self._gap = FIRST / 2
        self._due = now
        self._facts: Any = None
        #: The thread's state as it was last seen, as it was at two looks on end, and as written.
        self._seen: str | None = None
        self._steady: str | None = None
        self._state: str | None = None

    def is_due(self, now: float, facts: Any, state: str | None) -> bool:
        """Return whether a row is due, which is then taken to be written.

        Parameters
        ----------
        now
            Monotonic seconds.
        facts
            What makes a row due when it is another than the last one that was written.
        state
            The thread's. A change counts when it was seen at two looks: a thread that sleeps most
            of the time is seen running now and then, and the reverse.
        """
        if state == self._seen:
            self._steady = state
        self._seen = state
        if now >= self._due - _TOLERANCE:
            self._gap = min(LONGEST, 2 * self._gap)
            self._due = now + self._gap
        elif facts == self._facts and self._steady == self._state:
            return False
        self._facts, self._state = facts, state
        return True


#: The share of a core from which a thread counts as running, and the seconds between two looks from
#: which that tells: for less than that any thread may have had to wait.
_BUSY, _TELLS = 0.05, 0.5


class Busy:
    """Distinguishes a thread that waits for the interpreter's lock from a sleeping one.

    To the kernel both sleep, and while another thread of the process looks at it, a thread that
    runs Python code has to wait. So one that used a core since the last look counts as running,
    and after one look alone nothing says that a thread sleeps.
    """

    __slots__ = ("_cpu", "_looked", "_state")

    def __init__(self) -> None:
        self._cpu: float | None = None
        self._looked: float | None = None
        self._state: str | None = None

    def state(self, state: str | None, cpu: float | None, now: float) -> str | None:
        """Return the state of a thread; None: unknown.

        Parameters
        ----------
        state
            By the kernel.
        cpu
            CPU seconds that the thread has used until now.
        now
            Monotonic seconds. So soon after the last look that nothing can be told, the answer is
            that of the last look.
        """
        if self._looked is not None and now - self._looked < _TELLS:
            return self._state
        self._state = self._since_last_look(state, cpu, now)
        self._cpu, self._looked = cpu, now
        return self._state

    def _since_last_look(self, state: str | None, cpu: float | None, now: float) -> str | None:
        if self._looked is None or self._cpu is None or cpu is None:
            return None if state == "sleeping" else state
        return state if cpu - self._cpu < _BUSY * (now - self._looked) else "running"
