"""Event classes in the terms of the Chrome Trace Event Format, and declarations of event kinds.

The four event classes have the names and fields that users of DASF know. Times are seconds. A
`timestamp` is the Unix time at which the event starts. As in DASF, `process_id` is the host and
`thread_id` the worker. Phases and scopes are those of the `Trace Event Format
<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>`_.

Any thread may create events.
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
    """The extent of an instant event in a viewer."""

    GLOBAL = "g"
    PROCESS = "p"
    THREAD = "t"


@dataclass(slots=True)
class InstantEvent:
    """An event at `timestamp` without a duration."""

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
    """An event that started at `timestamp` and took `duration` seconds."""

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
    """The start of a duration, which a `DurationEndEvent` of the same name and thread ends."""

    name: str
    timestamp: float
    phase: str = EventPhases.DURATION_BEGIN
    process_id: Any = 0
    thread_id: Any = 0
    args: dict[str, Any] = field(default_factory=dict)

    FIELDS: ClassVar[tuple[str, ...]] = ("timestamp", "process_id", "thread_id")


@dataclass(slots=True)
class DurationEndEvent:
    """The end of a duration, which a `DurationBeginEvent` of the same name and thread started."""

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


# --- Declarations of event kinds ------------------------------------------------------------------
#
# Encoders (`EventKind.fields` and `args`), recorders, the reader of traces (`Column.form`), and the
# Parquet files with their documentation (`Column.kind`, `Column.about`) use these declarations.

#: How a value is stored, see `dasfprof.database.encoders`.
Codec = Literal["float", "float32", "time", "int", "text", "key", "keys", "value"]

#: How the analysis stores a column: times and other floats (NaN if unknown), int64 (-1 if unknown),
#: codes of categories, objects that equal rows share, numbers of keys, or lists of these.
Form = Literal["time", "float", "int", "category", "object", "key", "keys"]

#: Kinds of columns, each with its form. Times are Unix seconds of the recording host's clock. An
#: ``object`` is a value of any type, such as a tuple or a dict.
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
    """The columns of a batch of events.

    Parameters
    ----------
    phase, name
        As in the events.
    fields
        Name and codec of each field of the event (`timestamp`, `duration`, ...).
    args
        Name and codec of each of its args.
    """

    phase: str
    name: str
    fields: tuple[tuple[str, str], ...]
    args: tuple[tuple[str, str], ...]

    @property
    def codecs(self) -> list[str]:
        """The codec of each column, first of the fields, then of the args."""
        return [codec for _, codec in self.fields + self.args]


@dataclass(frozen=True)
class Column:
    """An arg of an event kind.

    Parameters
    ----------
    name
        As in the event's args.
    codec
        How it is stored.
    kind
        A key of `KINDS_OF_VALUES`.
    about
        Its meaning, in a few words.
    title
        Label of a counter in tables of resource usage, without a unit, or empty.
    chart
        Title of the chart that shows a counter over time, or empty.
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
        """How the analysis stores it."""
        return KINDS_OF_VALUES[self.kind]


@dataclass(frozen=True)
class EventKind(Schema):
    """A kind of event that dasfprof records.

    Parameters
    ----------
    about
        Description of an event.
    recorder
        The plugin that writes it, by its name in the headers of files.
    columns
        The args.
    """

    about: str = field(default="", compare=False)
    recorder: str = field(default="", compare=False)
    columns: tuple[Column, ...] = field(default=(), compare=False)

    # `dataclass` would hash all fields at each call.
    def __hash__(self) -> int:
        return hash((self.phase, self.name))

    def forms(self, *, stimuli: bool = False) -> dict[str, Form]:
        """Return the forms of columns in tables, by name: of stimulus ids, or of all others."""
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
        One line per column: name, codec, kind and meaning. Indented lines continue the line before.
        Columns whose names start with a minus are in no table. The meaning may be followed by the
        title of a counter in brackets, which starts with a capital letter or #, and after a bar the
        title of its chart.
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
        match = _LINE.fullmatch(line)
        assert match is not None, line
        hidden, name, codec, kind, about, title, chart = match.groups(default="")
        facts = cast(Codec, codec), kind, about, title, chart
        yield Column(name, *facts, in_tables=not hidden)
