"""DASF's own trace files: for each event 8 bytes of big-endian length and a msgpack map.

DASF stored the *end* of a task as the timestamp of its `Compute` event, on the host's monotonic
clock. The reader replaces it with the start. It keeps the clock: the analysis converts to Unix
time where `Resource Usage` events, which hold both times, give the offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dasfprof.database import values
from dasfprof.database.file import EventDatabase
from dasfprof.database.reader import DASF_LENGTH_BYTES
from dasfprof.schema.events import EVENT_CLASSES, CompleteEvent, Event, EventPhases


class DasfDatabase(EventDatabase):
    """A file that DASF wrote, opened to read.

    Parameters
    ----------
    path
        The file.

    Attributes
    ----------
    lost_bytes
        Bytes that hold no whole event, known once `get_traces` is exhausted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost_bytes = 0

    def get_traces(self) -> Iterator[Event]:
        """Yield the events in the order of the file.

        Events that cannot be understood are left out. Reading ends at an impossible length, as
        nothing in the file marks where the next event begins.
        """
        size = self.path.stat().st_size
        position = lost = 0
        with self.path.open("rb") as file:
            while head := file.read(DASF_LENGTH_BYTES):
                length = int.from_bytes(head, "big")
                if len(head) < DASF_LENGTH_BYTES or length > size - position - DASF_LENGTH_BYTES:
                    break
                event = _event(file.read(length))
                if event is None:
                    lost += DASF_LENGTH_BYTES + length
                else:
                    yield event
                position += DASF_LENGTH_BYTES + length
        self.lost_bytes = lost + size - position

    def __repr__(self) -> str:
        return f"DasfDatabase at {self.path}"


def _event(data: bytes) -> Event | None:
    try:
        fields: dict[str, Any] = values.unpack(data)
        # DASF gives an end of a duration the phase of a begin, but records neither.
        kind = EVENT_CLASSES[fields.get("phase", EventPhases.INSTANT)]
        event = kind(**fields)
        if isinstance(event, CompleteEvent):
            event.timestamp -= event.duration
    except values.DAMAGE_ERRORS:
        return None
    valid = isinstance(event.name, str) and isinstance(event.args, dict)
    return event if valid and isinstance(event.timestamp, int | float) else None
