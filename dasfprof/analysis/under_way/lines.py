"""Which line of a stack is the user's, and how it is written."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence

from dasfprof.analysis.under_way.state import Frame, Stack, TaskUnderWay
from dasfprof.text import clean, elide, format_duration

#: Seconds of the same stack from which it is said since when that is so.
_LOOKED_AT = 3.0
#: Files of installed packages and of Python itself.
_OF_LIBRARIES = re.compile(
    r"/(site|dist)-packages/|/lib/python\d+\.\d+/|^<frozen |/dasfprof/recording/"
)


def is_of_user(frame: Frame) -> bool:
    """Return whether a frame runs code of neither Python nor an installed package."""
    return not _OF_LIBRARIES.search(frame.file.replace("\\", "/"))


def user_frame(stack: Stack) -> Frame | None:
    """Return the innermost frame of the user's code; without one, the outermost of all."""
    for frame in reversed(stack):
        if is_of_user(frame):
            return frame
    return stack[0] if stack else None


def write_frame(frame: Frame) -> str:
    """Write a frame as ``file:line function``."""
    return f"{clean(frame.file)}:{frame.line} {clean(frame.function)}"


def user_line(stack: Stack) -> str | None:
    """Write the user's line of a stack; None of an empty one."""
    frame = user_frame(stack)
    return None if frame is None else write_frame(frame)


def describe_stack(stack: Stack) -> str:
    """Say where a thread is: the user's line first, its text, then the library's innermost line."""
    frame = user_frame(stack)
    if frame is None:
        return "its stack is unknown"
    text = source_of(frame)
    words = write_frame(frame) + (f" (`{text}`)" if text else "")
    inner = stack[-1]
    return words if inner == frame else f"{words}, in it {write_frame(inner)}"


def source_of(frame: Frame) -> str:
    """Return the text of a line as the file on this machine has it; empty without the file."""
    return elide(linecache.getline(frame.file, frame.line).strip(), 80)


def since(tasks: Sequence[TaskUnderWay]) -> str:
    """Say for how long tasks have been where they are, or how long before they began.

    Who has looked for a moment alone does not know what a task did before.
    """
    known = [task for task in tasks if task.seconds is not None]
    if not known:
        return ""
    shortest = min(known, key=lambda task: task.seconds or 0.0)
    seconds = shortest.seconds or 0.0
    if shortest.unchanged is not None and shortest.unchanged >= min(seconds, _LOOKED_AT):
        return f" since {format_duration(min(seconds, shortest.unchanged))}"
    more, who = ("", "it") if len(tasks) == 1 else (" or more", "they")
    return f", {format_duration(seconds)}{more} after {who} began"


def name_some(names: Sequence[str], most: int = 3, number: int | None = None) -> str:
    """Name the first of some keys, functions, ..., of which there are `number`: so many names."""
    shown = ", ".join(elide(name, 60) for name in names[:most])
    more = (len(names) if number is None else number) - most
    return f"{shown} and {more:,} more" if more > 0 else shown
