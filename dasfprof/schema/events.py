"""Events in the vocabulary of the Chrome Trace Event Format.

Four event classes, with the names and fields that users of DASF know. Seconds in float: a
`timestamp` is the start of what the event describes, as Unix time. `process_id` is the host and
`thread_id` the worker, as DASF has it. Phases and scopes are those of the `Trace Event Format
<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>`_.

Any thread may create events; they hold no resources.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


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
