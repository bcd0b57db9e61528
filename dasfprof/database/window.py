"""A window of time: which events and blocks of a file it needs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple, TypeAlias

import numpy as np

from dasfprof.database import columns
from dasfprof.database.block_codec import Batch
from dasfprof.errors import InvalidArgumentError

#: Unix seconds; or a date and time, as text as of ISO 8601. Without a zone these are UTC.
Time: TypeAlias = float | datetime | str

#: Kinds of events that hold beyond their time: what there is, what was built, what changed. They
#: are few, and what they tell of a window may have been recorded long before it.
LASTING = frozenset(
    (
        *("Step", "Step End", "Step Layer", "Stack", "Graph", "Graph Sent", "Function Code"),
        *("GPU Devices", "GPU Failure", "Worker Added", "Worker Removed", "Worker Exit", "Clock"),
        *("Call Profile", "Traced Function"),
    )
)


class Window(NamedTuple):
    """Events that overlap it are read, whole; it includes both ends. Unix seconds."""

    begin: float
    end: float

    def overlaps(self, name: str, first: float, last: float) -> bool:
        """Return whether events of a name within a span of time may be needed."""
        return name in LASTING or (first <= self.end and last >= self.begin)

    def part_of(self, batch: Batch) -> Batch:
        """Return the events of a batch that are needed."""
        if "name" not in batch.fields and batch.name in LASTING:
            return batch
        starts = _floats(batch.fields["timestamp"])
        ends = starts
        if "duration" in batch.fields:
            ends = np.fmax(starts, starts + _floats(batch.fields["duration"]))
        rows = np.flatnonzero((starts <= self.end) & (ends >= self.begin))
        return batch if len(rows) == batch.rows else batch.take(rows)


def make_window(between: Sequence[Time] | None) -> Window | None:
    """Return the window between two times; None for None.

    Parameters
    ----------
    between
        Two times.

    Raises
    ------
    InvalidArgumentError
        If it is none, or ends before it begins.
    """
    if between is None or isinstance(between, Window):
        return between
    try:
        begin, end = map(_seconds, between)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"between={between!r} must be two times: Unix seconds, datetimes, or texts such as "
            f"'2026-03-01 12:00' (UTC unless they name a zone): {error}."
        ) from error
    if not begin <= end:
        raise InvalidArgumentError(f"between={between!r}: the second time is before the first.")
    return Window(begin, end)


def _seconds(time: Time) -> float:
    if isinstance(time, str):
        time = datetime.fromisoformat(time.strip().replace("Z", "+00:00"))
    if isinstance(time, datetime):
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    return float(time)


def _floats(column: columns.Column) -> columns.Array:
    """Return a column as floats; what is no number is NaN, which is in no window."""
    if isinstance(column, columns.NumberColumn):
        return column.array.astype(float)
    items = column.to_list()
    return np.array([item if type(item) in (int, float) else np.nan for item in items], dtype=float)
