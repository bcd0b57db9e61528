"""Stacks of threads and coroutines, and what the kernel says of a thread."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any

#: A stack: function, file and line of each frame, the outermost first.
Stack = tuple[tuple[str, str, int], ...]

#: The most frames of a stack: of deeper ones the middle is left out.
MOST_FRAMES = 100

#: Files that merely run a task's graph, or count its calls.
_PLUMBING = (
    "/dask/_task_spec.py",
    "/dasfprof/recording/task_runs/run_queue.py",
    "/dasfprof/recording/call_profiles/engines.py",
)

#: The kernel's states of a thread, by its letters in /proc/PID/stat.
THREAD_STATES = {
    "R": "running",
    "S": "sleeping",
    "I": "sleeping",
    "D": "disk",
    "T": "stopped",
    "t": "stopped",
}


def frames_of_thread(frame: FrameType | None, begin: CodeType | None) -> list[FrameType]:
    """Return the frames of a thread inside the last call of a function, the outermost first.

    Without `begin`, or if no frame runs it, all frames.
    """
    frames: list[FrameType] = []
    while frame is not None:
        if begin is not None and frame.f_code is begin:
            break
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def frames_of_coroutine(coroutine: Any) -> list[FrameType]:
    """Return the frames of a suspended coroutine, the outermost first."""
    frames: list[FrameType] = []
    while len(frames) < 10 * MOST_FRAMES:
        if type(coroutine) is CoroutineType:
            frame, inner = coroutine.cr_frame, coroutine.cr_await
        elif type(coroutine) is GeneratorType:
            frame, inner = coroutine.gi_frame, coroutine.gi_yieldfrom
        else:  # an object of the user's may run code when it is asked
            break
        if frame is not None:
            frames.append(frame)
        coroutine = inner
    return frames


def stack_of(frames: list[FrameType]) -> Stack:
    """Return function, file and line of frames, without those that merely run a task's graph."""
    kept = [frame for frame in frames if not _is_plumbing(frame.f_code.co_filename)]
    if len(kept) > MOST_FRAMES:
        half = MOST_FRAMES // 2
        kept = kept[:half] + kept[-half:]
    return tuple(
        (
            getattr(frame.f_code, "co_qualname", frame.f_code.co_name),
            frame.f_code.co_filename,
            frame.f_lineno or 0,
        )
        for frame in kept
    )


def _is_plumbing(file: str) -> bool:
    return file.endswith(_PLUMBING)


class Threads:
    """What the kernel says of this process's threads, at one time."""

    def __init__(self) -> None:
        self._native = {thread.ident: thread.native_id for thread in threading.enumerate()}

    def state(self, ident: int) -> str | None:
        """Return the state of a thread; None if it is unknown."""
        native = self._native.get(ident)
        if native is None:
            return None
        try:
            with open(f"/proc/self/task/{native}/stat") as file:
                letter = file.read().rpartition(") ")[2][:1]
        except OSError:
            return None
        return THREAD_STATES.get(letter)


def thread_cpu(ident: int) -> float | None:
    """Return the CPU seconds of a thread that is alive; None if they are unknown.

    The identity of a thread that has ended must not be passed: the call may crash.
    """
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except (AttributeError, OSError):
        return None


def current_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each other thread.

    The caller's own would refer to the frames that it looks at: a cycle, which would keep what the
    functions of all threads had in their variables until the garbage collector runs.
    """
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    return frames


def process_facts() -> dict[str, Any]:
    """Return the identity of this process."""
    return {"pid": os.getpid(), "python": sys.version.split()[0]}
