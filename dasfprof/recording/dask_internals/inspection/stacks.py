"""Functions that read stacks of threads and coroutines, states of threads, and causes of waits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import takewhile
from types import CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any

from dasfprof.system import PROC

#: A stack: the function, file and line of each frame, from the outermost to the innermost frame.
Stack = tuple[tuple[str, str, int], ...]

#: Maximum number of frames of a stack. If a stack has more frames, its middle is left out.
MOST_FRAMES = 100

#: Ends of the paths of files with functions that only run a task's graph or count its calls.
_PLUMBING = (
    "/dask/_task_spec.py",
    "/dasfprof/recording/task_runs/thread_time.py",
    "/dasfprof/recording/call_profiles.py",
)

#: By the kernel's letter in /proc/PID/stat: the state of a thread.
THREAD_STATES = {
    **{"R": "running", "S": "sleeping", "I": "sleeping"},
    **{"D": "disk", "T": "stopped", "t": "stopped"},
}


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and the frames of its callers, from the innermost to the outermost frame."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def frames_of_thread(frame: FrameType | None, begin: CodeType | None) -> list[FrameType]:
    """Return the frames of a thread inside the last call of `begin`, from the outermost frame on.

    Return all frames of the thread if `begin` is None, or if no frame runs `begin`.
    """
    return [*takewhile(lambda each: each.f_code is not begin, outward(frame))][::-1]


def frames_of_coroutine(coroutine: Any) -> list[FrameType]:
    """Return the frames of a suspended coroutine, from the outermost to the innermost frame."""
    frames: list[FrameType] = []
    while len(frames) < 10 * MOST_FRAMES:
        if type(coroutine) is CoroutineType:
            frame, inner = coroutine.cr_frame, coroutine.cr_await
        elif type(coroutine) is GeneratorType:
            frame, inner = coroutine.gi_frame, coroutine.gi_yieldfrom
        else:  # Reading attributes of other objects may run the user's code.
            break
        if frame is not None:
            frames.append(frame)
        coroutine = inner
    return frames


def stack_of(frames: list[FrameType]) -> Stack:
    """Return the `Stack` that describes the given frames.

    Frames that only run a task's graph are left out, and so are the middle frames of deep stacks.
    """
    shown = [frame for frame in frames if not frame.f_code.co_filename.endswith(_PLUMBING)]
    if len(shown) > MOST_FRAMES:
        half = MOST_FRAMES // 2
        shown = shown[:half] + shown[-half:]
    return tuple(
        (getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno or 0)
        for frame in shown
        if (code := frame.f_code)
    )


def thread_state(ident: int) -> str | None:
    """Return the kernel's state of a thread of this process, or None if it is unknown."""
    native = {thread.ident: thread.native_id for thread in threading.enumerate()}.get(ident)
    try:
        with open(f"{PROC}/self/task/{native}/stat") as file:
            letter = file.read().rpartition(") ")[2][:1]
    except OSError:
        return None
    return THREAD_STATES.get(letter)


def core_waits() -> dict[str, float]:
    """Return the seconds that each thread of this process has waited for a core, by identity.

    Threads are left out if the kernel does not report these seconds.
    """
    waits = {}
    for thread in threading.enumerate():
        try:
            with open(f"{PROC}/self/task/{thread.native_id}/schedstat") as file:
                waits[str(thread.ident)] = int(file.read().split()[1]) / 1e9
        except (OSError, IndexError):
            continue
    return waits


def current_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread except the calling thread."""
    frames = sys._current_frames()
    # The calling thread's frame would refer to the dict of frames. This cycle would keep the
    # variables of all threads' functions alive until the garbage collector runs.
    frames.pop(threading.get_ident(), None)
    return frames


#
# Local variables are read only from frames of distributed. Before Python 3.13, reading the local
# variables of a frame of user code would keep its objects alive and could overwrite its variables.

#: Maximum number of returned keys of futures.
MOST_KEYS = 100

#: By module and function of distributed: the name of the call, and the local variable that has the
#: primitive or the futures.
CALLS = {
    ("distributed.lock", "acquire"): ("Lock", "self"),
    ("distributed.semaphore", "acquire"): ("Semaphore", "self"),
    ("distributed.multi_lock", "acquire"): ("MultiLock", "self"),
    ("distributed.event", "wait"): ("Event", "self"),
    ("distributed.queues", "get"): ("Queue.get", "self"),
    ("distributed.queues", "put"): ("Queue.put", "self"),
    ("distributed.variable", "get"): ("Variable", "self"),
    ("distributed.client", "gather"): ("gather", "futures"),
    ("distributed.client", "result"): ("result", "self"),
    ("distributed.client", "exception"): ("result", "self"),
    ("distributed.client", "wait"): ("wait", "fs"),
    ("distributed.client", "__next__"): ("as_completed", "self"),
    ("distributed.actor", "result"): ("actor call", "self"),
}

#: A wait: the name of the call, the name of the primitive, and the keys of the futures.
Wait = tuple[str, Any, list[Any]]


def wait_in(frames: list[FrameType]) -> Wait | None:
    """Return the call of Dask in which a thread waits, or None if it is in no such call.

    If such calls are nested, the outermost is returned. The result includes what the call waits
    for.
    """
    for frame in frames:
        module = frame.f_globals.get("__name__")
        if not isinstance(module, str) or not module.startswith("distributed."):
            continue
        call = CALLS.get((module, frame.f_code.co_name))
        if call is None:
            continue
        kind, variable = call
        subject = frame.f_locals.get(variable)
        if kind == "Semaphore" and type(subject).__name__ == "Lock":
            kind = "Lock"
        try:
            return kind, _name(subject), _keys(subject)
        except Exception:  # The user's class may be derived from Dask's class.
            return kind, None, []
    return None


def _name(subject: Any) -> Any:
    """Return the name of a primitive, or None if the object has no name, such as a future."""
    names = getattr(subject, "names", None)
    if isinstance(names, list | tuple | set):  # A MultiLock has several names.
        return [str(name) for name in names]
    name = getattr(subject, "name", None)
    return None if name is None or callable(name) else str(name)


def _keys(subject: Any) -> list[Any]:
    """Return the keys of the futures in a future, an `as_completed`, or a nested container."""
    keys: list[Any] = []
    pending: list[Any] = [subject]
    seen = 0
    while pending and len(keys) < MOST_KEYS and seen < 10 * MOST_KEYS:
        item = pending.pop()
        seen += 1
        kind = type(item)  # `isinstance` may call code of the user's objects.
        if kind is dict:
            pending += list(item)[:MOST_KEYS] + list(item.values())[:MOST_KEYS]
        elif kind in (list, tuple, set, frozenset):
            pending += list(item)[:MOST_KEYS]
        elif str(kind.__module__).startswith("distributed."):
            if kind.__name__ == "as_completed":
                pending += list(getattr(item, "futures", ()))[:MOST_KEYS]
            elif hasattr(item, "key"):
                keys.append(item.key)
    return keys
