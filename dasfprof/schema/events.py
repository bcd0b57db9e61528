"""Events in the vocabulary of the Chrome Trace Event Format, and how their kinds are declared.

Four event classes, with the names and fields that users of DASF know. Seconds in float: a
`timestamp` is the start of what the event describes, as Unix time. `process_id` is the host and
`thread_id` the worker, as DASF has it. Phases and scopes are those of the `Trace Event Format
<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>`_.

Any thread may create events; they hold no resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast


class EventPhases:
    """Phases of the Trace Event Format."""

    COMPLETE = "X"
    DURATION_BEGIN = "B"
    DURATION_END = "E"
    INSTANT = "I"


class InstantEventScope:
    """How far an instant event reaches in a viewer."""

    GLOBAL = "g"
    PROCESS = "p"
    THREAD = "t"


@dataclass(slots=True)
class InstantEvent:
    """Something that happened at `timestamp` and took no time."""

    name: str
    timestamp: float
    phase: str = EventPhases.INSTANT
    scope: str = InstantEventScope.GLOBAL
    process_id: Any = 0
    thread_id: Any = 0
    args: dict[str, Any] = field(default_factory=dict)

    FIELDS: ClassVar[tuple[str, ...]] = ("timestamp", "scope", "process_id", "thread_id")


@dataclass(slots=True)
class CompleteEvent:
    """Something that began at `timestamp` and took `duration` seconds."""

    name: str
    timestamp: float
    duration: float
    phase: str = EventPhases.COMPLETE
    process_id: Any = 0
    thread_id: Any = 0
    args: dict[str, Any] = field(default_factory=dict)

    FIELDS: ClassVar[tuple[str, ...]] = ("timestamp", "duration", "process_id", "thread_id")


@dataclass(slots=True)
class DurationBeginEvent:
    """The start of something that a `DurationEndEvent` of the same name and thread ends."""

    name: str
    timestamp: float
    phase: str = EventPhases.DURATION_BEGIN
    process_id: Any = 0
    thread_id: Any = 0
    args: dict[str, Any] = field(default_factory=dict)

    FIELDS: ClassVar[tuple[str, ...]] = ("timestamp", "process_id", "thread_id")


@dataclass(slots=True)
class DurationEndEvent:
    """The end of what a `DurationBeginEvent` of the same name and thread began."""

    name: str
    timestamp: float
    phase: str = EventPhases.DURATION_END
    process_id: Any = 0
    thread_id: Any = 0
    args: dict[str, Any] = field(default_factory=dict)

    FIELDS: ClassVar[tuple[str, ...]] = ("timestamp", "process_id", "thread_id")


Event = InstantEvent | CompleteEvent | DurationBeginEvent | DurationEndEvent

#: The event class of each phase, for readers.
EVENT_CLASSES: dict[str, type[Event]] = {
    EventPhases.INSTANT: InstantEvent,
    EventPhases.COMPLETE: CompleteEvent,
    EventPhases.DURATION_BEGIN: DurationBeginEvent,
    EventPhases.DURATION_END: DurationEndEvent,
}


# --- How an event kind is declared: its name, its columns, and what each of them means ------------
#
# Everything that stores or reads what is recorded derives from these declarations: the encoders
# (`EventKind.fields` and `args`), the recorder's layouts, the reader of traces (`Column.form`), the
# Parquet files and their documentation (`Column.kind`, `Column.about`).

#: How a value is stored, see `dasfprof.database.encoders`.
Codec = Literal["float", "float32", "time", "int", "text", "key", "keys", "value"]

#: How the analysis keeps a column: times and other floats (NaN where unknown), int64 (-1 where
#: unknown), codes of categories, objects that equal rows share, numbers of keys, lists of those.
Form = Literal["time", "float", "int", "category", "object", "key", "keys"]

#: What a column holds, and its unit. Times are Unix seconds of the recording host's clock. An
#: ``object`` is a value of any type, such as a tuple or a dict. Behind it is its form.
KINDS_OF_VALUES: dict[str, Form] = {
    "time": "time",
    "seconds": "float",
    "bytes": "float",
    "count": "float",
    "number": "float",
    "flag": "float",
    "id": "int",
    "text": "category",
    "object": "object",
    "key": "key",
    "stimulus": "key",
    "keys": "keys",
}


@dataclass(frozen=True)
class Schema:
    """What a batch of like events holds.

    Parameters
    ----------
    phase, name
        As in the events.
    fields
        Name and codec of each of the event's own fields (`timestamp`, `duration`, ...).
    args
        Name and codec of each of its args.
    """

    phase: str
    name: str
    fields: tuple[tuple[str, str], ...]
    args: tuple[tuple[str, str], ...]

    @property
    def codecs(self) -> list[str]:
        """One codec a column: the fields, then the args."""
        return [codec for _, codec in self.fields + self.args]


@dataclass(frozen=True)
class Column:
    """One arg of an event kind.

    Parameters
    ----------
    name
        As in the event's args.
    codec
        How it is stored.
    kind
        What it holds.
    about
        Its meaning, in a few words.
    title
        Of a counter that tables of resource usage show: its label there, without a unit.
    chart
        Of a counter that is drawn over time: the title of its chart.
    in_tables
        Whether the tables of a `Trace` have it. Readers of events always get it.
    """

    name: str
    codec: Codec
    kind: str
    about: str
    title: str = ""
    chart: str = ""
    in_tables: bool = True

    @property
    def form(self) -> Form:
        """How the analysis keeps it."""
        return KINDS_OF_VALUES[self.kind]


@dataclass(frozen=True)
class EventKind(Schema):
    """A kind of event that dasfprof records.

    Parameters
    ----------
    about
        What one event of it is, in a sentence.
    recorder
        The plugin whose files hold it, as their headers name it.
    columns
        The args.
    """

    about: str = field(default="", compare=False)
    recorder: str = field(default="", compare=False)
    columns: tuple[Column, ...] = field(default=(), compare=False)

    # The hash of the schema's fields: `dataclass` would make one of all of them anew at each call.
    def __hash__(self) -> int:
        return hash((self.phase, self.name))

    def forms(self, *, stimuli: bool = False) -> dict[str, Form]:
        """Return the forms of the columns in tables, by name: of stimulus ids, or of the rest."""
        return {
            column.name: column.form
            for column in self.columns
            if column.in_tables and (column.kind == "stimulus") == stimuli
        }


def event_kind(
    name: str,
    about: str,
    *,
    recorder: str,
    columns: str,
    phase: str = EventPhases.INSTANT,
) -> EventKind:
    """Declare an event kind.

    Parameters
    ----------
    name, about, recorder, phase
        See `EventKind`.
    columns
        A line a column: name, codec, kind, and its meaning. A line may go on, indented. A name
        behind a minus is in no table. Behind the meaning may stand, in brackets, the title of a
        counter, with a capital or #, and behind a bar that of its chart.
    """
    declared = tuple(_columns(columns))
    fields: tuple[tuple[str, str], ...] = (("timestamp", "float"),)
    if phase == EventPhases.COMPLETE:
        fields += (("duration", "float"),)
    args = tuple((column.name, column.codec) for column in declared)
    return EventKind(phase, name, fields, args, about, recorder, declared)


#: A line of `event_kind`.
_LINE = re.compile(r"(-?)(\S+)\s+(\S+)\s+(\S+)\s+(.+?)(?:\s+\[([A-Z#][^|]*?)(?: \| (.+))?\])?")


def _columns(text: str) -> Iterator[Column]:
    for line in filter(str.strip, text.replace("\n    ", " ").splitlines()):
        found = _LINE.fullmatch(line)
        assert found is not None, line
        hidden, name, codec, kind, about, title, chart = found.groups(default="")
        facts = cast(Codec, codec), kind, about, title, chart
        yield Column(name, *facts, in_tables=not hidden)
