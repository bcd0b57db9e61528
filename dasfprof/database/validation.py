"""Checks of the arguments of recording, so that errors are raised at the call."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import numpy as np

from dasfprof.errors import InvalidArgumentError, SourceNotFoundError
from dasfprof.schema.events import EVENT_CLASSES, CompleteEvent

_EVENTS = tuple(EVENT_CLASSES.values())
_NUMBERS = (int, float, np.integer, np.floating)


def check_event(event: Any) -> None:
    """Check an event that user code records.

    Raises
    ------
    InvalidArgumentError
        If it is not an event, its name is not a str, its args are not a dict, its timestamp is not
        a number, or its duration is not a number of 0 or more.
    """
    if not isinstance(event, _EVENTS):
        raise InvalidArgumentError(
            f"got {type(event).__name__}; record an InstantEvent, a CompleteEvent, a "
            "DurationBeginEvent or a DurationEndEvent."
        )
    if not isinstance(event.name, str):
        raise InvalidArgumentError(f"name={event.name!r}: an event's name is a str.")
    about = f"event {event.name!r}: "
    if not isinstance(event.args, dict):
        raise InvalidArgumentError(
            f"{about}args={event.args!r}: args are a dict of names and values, such as "
            "{'loss': 0.5}."
        )
    if not _is_number(event.timestamp):
        raise InvalidArgumentError(
            f"{about}timestamp={event.timestamp!r}: a timestamp is a number in Unix seconds, "
            "such as time.time()."
        )
    if isinstance(event, CompleteEvent) and not (
        _is_number(event.duration) and event.duration >= 0
    ):
        raise InvalidArgumentError(
            f"{about}duration={event.duration!r}: the duration of a complete event is a number "
            "of seconds, 0 or more. Record an instant event for what took no time."
        )


def check_limits(commit_threshold: Any, flush_interval: Any, max_pending: Any) -> None:
    """Check the limits of a new file.

    Raises
    ------
    InvalidArgumentError
        If one is not a number or out of its range.
    """
    whole = all(
        isinstance(number, int | np.integer) and not isinstance(number, bool)
        for number in (commit_threshold, max_pending)
    )
    number = _is_number(flush_interval)
    if (
        not (whole and number and commit_threshold >= 1 and flush_interval > 0)
        or max_pending < commit_threshold
    ):
        raise InvalidArgumentError(
            f"commit_threshold={commit_threshold!r}, flush_interval={flush_interval!r}, "
            f"max_pending={max_pending!r}: the first is a whole number and at least 1, the second "
            "is in seconds and positive, the third is a whole number and no less than the first."
        )


def check_path(path: Any) -> Path:
    """Return the path of a file to read or to write.

    Raises
    ------
    InvalidArgumentError
        If it is not a path, or the path of a directory.
    """
    try:
        checked = Path(path)
    except TypeError as error:
        raise InvalidArgumentError(
            f"got {path!r} as a file's name; pass a str or a path, such as 'traces.msgpack'."
        ) from error
    if "\0" in str(checked):
        raise InvalidArgumentError(f"{path!r} holds a null, which no file's name can.")
    if checked.is_dir():
        raise InvalidArgumentError(
            f"{path!r} is a directory; pass a file in it, or open the run that it holds with "
            "dasfprof.open_run."
        )
    return checked


def missing_file(path: Path) -> SourceNotFoundError:
    """Return the error for a missing file; it names files with similar names."""
    try:
        others = [item.stem for item in path.parent.iterdir() if item.suffix == ".msgpack"]
    except OSError:
        others = []
    near = difflib.get_close_matches(path.name.removesuffix(".msgpack"), sorted(others), n=3)
    names = " or ".join(repr(stem + ".msgpack") for stem in near)
    there = f" Did you mean {names}?" if near else ""
    return SourceNotFoundError(
        f"there is no trace file {path}.{there} Pass a file, a directory, a glob or a run's name; "
        f"`dasfprof info {path.parent}` lists the runs there."
    )


def _is_number(number: Any) -> bool:
    return isinstance(number, _NUMBERS) and not isinstance(number, bool)
