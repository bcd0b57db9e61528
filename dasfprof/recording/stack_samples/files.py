"""`SampleFile`: the file of a plugin into which samples of stacks go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dasfprof.database.writer import Source, TraceWriter
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.notes.stacks import StackRows
from dasfprof.recording.stack_samples.sampler import sample
from dasfprof.recording.stack_samples.subjects import Subject, Write
from dasfprof.schema.declaration import Schema


@dataclass(frozen=True)
class SampleFile:
    """Starts samplings whose rows go into one file."""

    writer: TraceWriter
    #: Fields with the same value in every event.
    constants: dict[str, Any]
    #: The file's stacks.
    stacks: StackRows
    guard: HookGuard
    #: Looks a second; 0: nothing is sampled.
    frequency: float

    def sample(
        self, schema: Schema, make: Callable[[StackRows, Write], Subject]
    ) -> Callable[[], object]:
        """Sample a subject from now on.

        Parameters
        ----------
        schema
            Of its rows.
        make
            Makes the subject, given the file's stacks and what takes its rows.

        Returns
        -------
        Callable
            Stops it.
        """
        if not self.frequency:
            return lambda: None
        source, writer = Source.of(schema, self.constants), self.writer
        writer.add_source(source)
        write = partial(writer.append, source)
        return sample(make(self.stacks, write), self.frequency, self.guard)
