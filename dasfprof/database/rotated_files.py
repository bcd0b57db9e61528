"""`Segments`: finds out which segments of a long run are missing, and how many events were lost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from dasfprof.database.multi import identity_of, seconds_or_none
from dasfprof.database.reader import TimeRange, TraceFile
from dasfprof.text import count_of, format_date


@dataclass
class Segment:
    """The part of a process's recording that follows one header, usually a complete file."""

    number: int
    name: str
    #: Time of creation, and time of the closing frame (Unix seconds, or None if unknown). The end
    #: is only known if another segment follows.
    begin: float | None
    end: float | None
    #: Whether another segment follows.
    continues: bool
    #: Id of the worker, or None for other processes.
    owner: int | None
    #: Number of events that the process had written to earlier segments, or None if unknown.
    before: int | None
    #: Whether this segment was created because the previous segment was removed or truncated.
    is_anew: bool
    #: Number of events in this segment.
    events: int


#: Placeholder for the segment before the first one.
_NOTHING = Segment(0, "", None, None, True, None, 0, False, 0)


def segment_number(header: dict[str, Any]) -> int:
    """Return the number of a file among the segments of its process. The first number is 1."""
    number = header.get("segment")
    return number if type(number) is int and number > 0 else 1


def writer_identity(header: dict[str, Any]) -> str:
    """Return an identifier that all segments of a process share, from the header of a segment.

    Return an empty text if the header lacks the necessary facts.
    """
    return identity_of({**header, "created": header.get("first_created", header.get("created"))})


class Missing(NamedTuple):
    """Missing segments, or missing events of a segment."""

    #: Name of an existing segment of the same process.
    file: str
    #: Description of the missing segments or events.
    text: str
    #: Id of the worker, or None for other processes.
    owner: int | None
    #: Number of missing events, or None if unknown.
    events: int | None


class Segments:
    """The segments of all processes whose files were read."""

    def __init__(self) -> None:
        #: Segments by identity of the process and the plugin, and then by number.
        self._by_writer: dict[str, dict[int, Segment]] = {}

    def add(self, file: TraceFile, owner: int | None = None) -> None:
        """Add a file that was read. `owner` is the id of its worker, or None without a worker."""
        # A file of user code has no such identity, so it is identified by its path.
        writer = writer_identity(file.header) or str(file.path)
        segments = self._by_writer.setdefault(writer, {})
        segments |= {segment.number: segment for segment in _segments_of(file, owner)}

    def followed(self) -> set[str]:
        """Return the names of files that were read and are not the last one of their process."""
        names: set[str] = set()
        for segments in self._by_writer.values():
            last = segments[max(segments)].name
            names |= {segment.name for segment in segments.values()} - {last}
        return names

    def missing(self, window: TimeRange | None = None) -> Iterator[Missing]:
        """Yield missing segments of each process, and segments that lack events.

        Parameters
        ----------
        window
            Time range of the segments to report, or None to report all segments.
        """
        for segments in self._by_writer.values():
            ordered = [segments[number] for number in sorted(segments)]
            for before, after in pairwise([_NOTHING, *ordered]):
                # If only a time range was read, the events cannot be compared with the counts.
                events = None
                if window is None and before.before is not None and after.before is not None:
                    events = max(after.before - before.before - before.events, 0)
                if after.number == before.number + 1:
                    if events:
                        text = _describe_part(before, after, events)
                        yield Missing(before.name, text, before.owner, events)
                elif events != 0 and _matters(window, before.end, after.begin):
                    text = _describe(before, after, events)
                    yield Missing(ordered[0].name, text, ordered[0].owner, events)
            last = ordered[-1]
            if last.continues and _matters(window, last.end, None):
                yield Missing(last.name, _describe(last, None, None), last.owner, None)


def _segments_of(file: TraceFile, owner: int | None) -> Iterator[Segment]:
    """Yield the segments that a file contains, usually a single one."""
    closing_frame = file.end or {}
    continues, clock = closing_frame.get("continues") is True, closing_frame.get("clock")
    end = clock[0] if continues and isinstance(clock, list) and clock else None
    # A file that was truncated during recording may contain several segments.
    headers = file.headers or [({}, 0)]
    # A header may be repeated with the same number, because the disk was full while the first was
    # written.
    parts = {segment_number(header): (header, events) for header, events in reversed(headers)}
    bounds = [*sorted(events for _, events in parts.values()), file.events]
    for (number, (header, first)), until in zip(sorted(parts.items()), bounds[1:], strict=True):
        before = header.get("before")
        before = before if isinstance(before, dict) else {}
        count = before.get("events", 0 if number == 1 else None)
        yield Segment(
            number,
            file.path.name,
            seconds_or_none(header.get("created")),
            seconds_or_none(end),
            continues,
            owner,
            count if type(count) is int and count >= 0 else None,
            before.get("gone") is True,
            max(until - first, 0),
        )


def _matters(window: TimeRange | None, begin: float | None, end: float | None) -> bool:
    first, last = -math.inf if begin is None else begin, math.inf if end is None else end
    return window is None or window.overlaps("", first, last)


def _describe(before: Segment, after: Segment | None, events: int | None) -> str:
    first = before.number + 1
    if after is None:
        what = f"segment {first} and its successors are"
    elif after.number == first + 1:
        what = f"segment {first} is"
    else:
        what = f"segments {first} to {after.number - 1} are"
    end = None if after is None else after.begin
    since = "the begin" if before.end is None else format_date(before.end)
    until = "on" if end is None else f"to {format_date(end)}"
    count = f", {count_of(events, 'event')}," if events else ""
    was_removed = after is not None and after.is_anew
    cause = " It was removed, moved or unmounted while the run was recorded." * was_removed
    return (
        f"{what} missing: what its process recorded from {since} {until} (UTC){count} is "
        f"lost.{cause} The other segments are used."
    )


def _describe_part(before: Segment, after: Segment, events: int) -> str:
    cause = "it is damaged or was truncated"
    if after.is_anew:
        at = "" if after.begin is None else f" before {format_date(after.begin)} (UTC)"
        cause = f"it was truncated{at} during recording"
    return f"{count_of(events, 'event')} that had been written to it are lost: {cause}."


def absent_files(headers: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the missing files of workers: for each, the label of the worker and the plugin."""
    present: set[tuple[str, str]] = set()
    # Labels of workers, by process and plugin.
    mentioned: dict[tuple[str, str], str] = {}
    for header in headers:
        # The header of a worker's file lists the plugins of the worker, each of which should have a
        # file. Headers of earlier versions contain no such list.
        worker, plugins = header.get("worker"), header.get("plugins")
        if not isinstance(worker, dict):
            continue
        facts = ("run_uuid", "host", "boot_id", "pid", "process_started")
        process = str([*(header.get(fact) for fact in facts), worker])
        present.add((process, str(header.get("plugin"))))
        for plugin in map(str, plugins if isinstance(plugins, list | tuple) else ()):
            mentioned[process, plugin] = str(worker.get("label", ""))
    return [(label, key[1]) for key, label in mentioned.items() if key not in present]
