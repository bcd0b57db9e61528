"""`Moment`: what was live at a moment, by the stacks that allocated it."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

from dasfprof.recording.dask_internals.inspection.stacks import Stack
from dasfprof.recording.task_runs.tracebacks import of_library

#: The stacks of a moment that are kept.
MOST_STACKS = 10
#: Bytes that tracemalloc itself may hold at a look: some million blocks, of 0.3 s.
MOST_HELD = 50_000_000

#: What calls tasks' functions, and what is no task's at all.
_CALLERS = re.compile(r"/(distributed/worker|dask/_task_spec)\.py$|/dasfprof/recording/")
_OF_OTHERS = re.compile(r"/(asyncio|tornado|distributed|dasfprof/recording)/")


@dataclass
class Moment:
    """What was live, and allocated since a task run began."""

    size: int = 0
    #: Bytes and blocks of the stacks with most.
    stacks: list[tuple[Stack, int, int]] = field(default_factory=list)


def look() -> Moment | None:
    """Return this moment; None if there are too many blocks for a look."""
    if tracemalloc.get_tracemalloc_memory() > MOST_HELD:
        return None
    # `take_snapshot` would make objects of each; of equal stacks there is one tuple.
    traces: Any = tracemalloc._get_traces()  # type: ignore[attr-defined]
    sums: dict[int, list[Any]] = {}
    for _, size, frames, calls in traces:
        found = sums.get(id(frames))
        if found is None:
            sums[id(frames)] = [size, 1, frames, calls]
        else:
            found[0] += size
            found[1] += 1
    moment = Moment(sum(found[0] for found in sums.values()))
    for size, blocks, frames, calls in sorted(sums.values(), key=lambda found: -found[0]):
        stack = _stack_of_task(frames, calls)
        if stack:
            moment.stacks.append((stack, size, blocks))
            if len(moment.stacks) == MOST_STACKS:
                break
    return moment


def _stack_of_task(frames: tuple[tuple[str, int], ...], calls: int) -> Stack:
    """Return the frames of a task's function, the outermost first; empty if it is none of a task.

    Where the outer calls are missing, it is taken for a task's if code of the user's is in it:
    other threads of a worker run libraries.

    Parameters
    ----------
    frames
        File and line of each, the innermost first, as many as tracemalloc keeps.
    calls
        How many there were.
    """
    stack: list[tuple[str, str, int]] = []
    for file, line in frames:
        if _CALLERS.search(file):
            break
        stack.append(("", file, line))
    files = [file for _, file, _ in stack]
    if any(_OF_OTHERS.search(file) for file in files):
        return ()
    if len(stack) == len(frames) and (calls <= len(frames) or all(map(of_library, files))):
        return ()
    return tuple(stack[::-1])
