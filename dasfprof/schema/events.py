"""Classes of events, in terms of the Chrome Trace Event Format, and declarations of event kinds.

The four event classes have the same names and fields as in DASF. Times are in seconds. A
`timestamp` is the Unix time at which the event starts. As in DASF, `process_id` is the host and
`thread_id` is the worker. Phases and scopes are those of the `Trace Event Format
<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>`_.

Any thread may create events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast


class EventPhases:
    """The phases of the Trace Event Format, which distinguish the types of events."""

    COMPLETE = "X"
    DURATION_BEGIN = "B"
    DURATION_END = "E"
    INSTANT = "I"


class InstantEventScope:
    """The part of a viewer's timeline over which an instant event is drawn."""

    GLOBAL = "g"
    PROCESS = "p"
    THREAD = "t"


@dataclass(slots=True)
class InstantEvent:
    """An event that happened at `timestamp` and has no duration."""

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
    """The start of a duration. A `DurationEndEvent` with the same name and thread marks its end."""

    name: str
    timestamp: float
    phase: str = EventPhases.DURATION_BEGIN
    process_id: Any = 0
    thread_id: Any = 0
    args: dict[str, Any] = field(default_factory=dict)

    FIELDS: ClassVar[tuple[str, ...]] = ("timestamp", "process_id", "thread_id")


@dataclass(slots=True)
class DurationEndEvent:
    """The end of a duration that a `DurationBeginEvent` with the same name and thread started."""

    name: str
    timestamp: float
    phase: str = EventPhases.DURATION_END
    process_id: Any = 0
    thread_id: Any = 0
    args: dict[str, Any] = field(default_factory=dict)

    FIELDS: ClassVar[tuple[str, ...]] = ("timestamp", "process_id", "thread_id")


Event = InstantEvent | CompleteEvent | DurationBeginEvent | DurationEndEvent

#: The event class by phase. Readers use it to create events.
EVENT_CLASSES: dict[str, type[Event]] = {
    EventPhases.INSTANT: InstantEvent,
    EventPhases.COMPLETE: CompleteEvent,
    EventPhases.DURATION_BEGIN: DurationBeginEvent,
    EventPhases.DURATION_END: DurationEndEvent,
}


#
# These declarations are used by encoders (`EventKind.fields` and `args`), by recorders, by the
# reader of traces (`Column.form`), and for Parquet files and their documentation (`Column.kind`,
# `Column.about`).

#: Name of the codec that stores a value in a file. See `dasfprof.database.columns`.
Codec = Literal["float", "float32", "time", "int", "text", "key", "keys", "value"]

#: How the analysis stores a column: as times or other floats (NaN if unknown), as int64 (-1 if
#: unknown), as codes of categories, as objects that rows with equal values share, as numbers of
#: keys, or as lists of numbers of keys.
Form = Literal["time", "float", "int", "category", "object", "key", "keys"]

#: Form of each kind of column. Times are Unix seconds of the recording host's clock. An ``object``
#: is a value of any type, such as a tuple or a dict.
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
        Phase and name of the events. `name` is empty if the names differ.
    fields
        Name and codec of each field of the events (`timestamp`, `duration`, ...).
    args
        Name and codec of each arg of the events.
    """

    phase: str
    name: str
    fields: tuple[tuple[str, str], ...]
    args: tuple[tuple[str, str], ...]

    @property
    def codecs(self) -> list[str]:
        """The codecs of all columns. The fields come first, followed by the args."""
        return [codec for _, codec in self.fields + self.args]


@dataclass(frozen=True)
class Column:
    """An arg of an event kind.

    Parameters
    ----------
    name
        Name of the arg.
    codec
        Name of the codec that stores the arg's values in files.
    kind
        Kind of the values: a key of `KINDS_OF_VALUES`.
    about
        Meaning of the arg, in a few words.
    title
        If the arg is a counter, its label in tables of resource usage, without a unit. Else empty.
    chart
        If a chart shows the counter over time, the title of the chart. Else empty.
    in_tables
        Whether the tables of a `Trace` contain the arg. Readers of events always get it.
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
        """The form in which the analysis stores the column."""
        return KINDS_OF_VALUES[self.kind]


@dataclass(frozen=True)
class EventKind(Schema):
    """A kind of event that dasfprof records.

    Parameters
    ----------
    about
        Description of an event of this kind.
    recorder
        Name of the plugin that records the events, as in the headers of files.
    columns
        The args of the events.
    """

    about: str = field(default="", compare=False)
    recorder: str = field(default="", compare=False)
    columns: tuple[Column, ...] = field(default=(), compare=False)

    # The hash that `dataclass` generates would hash all fields at each call.
    def __hash__(self) -> int:
        return hash((self.phase, self.name))

    def forms(self, *, stimuli: bool = False) -> dict[str, Form]:
        """Return the form of each column that tables contain, by name.

        If `stimuli` is true, return only columns of stimulus ids, otherwise all other columns.
        """
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
        One line per column: name, codec, kind and meaning. Indented lines continue the previous
        line. A minus before the name means that no table contains the column. The meaning of a
        counter ends in brackets, such as ``[Swap Used | Swap of hosts]``. They contain the
        counter's title, which starts with a capital letter or #. A bar and the title of the
        counter's chart may follow.
    """
    declared = tuple(_columns(columns))
    fields: tuple[tuple[str, str], ...] = (("timestamp", "float"),)
    if phase == EventPhases.COMPLETE:
        fields += (("duration", "float"),)
    args = tuple((column.name, column.codec) for column in declared)
    return EventKind(phase, name, fields, args, about, recorder, declared)


#: Pattern of a line in the argument `columns` of `event_kind`.
_LINE = re.compile(r"(-?)(\S+)\s+(\S+)\s+(\S+)\s+(.+?)(?:\s+\[([A-Z#][^|]*?)(?: \| (.+))?\])?")


def _columns(text: str) -> Iterator[Column]:
    for line in filter(str.strip, text.replace("\n    ", " ").splitlines()):
        match = _LINE.fullmatch(line)
        assert match is not None, line
        hidden, name, codec, kind, about, title, chart = match.groups(default="")
        facts = cast(Codec, codec), kind, about, title, chart
        yield Column(name, *facts, in_tables=not hidden)
