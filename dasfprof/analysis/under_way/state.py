"""`ClusterState`: what a cluster has under way at one time. Keys and names are texts."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from dasfprof.schema.steps import DYNAMIC
from dasfprof.text import clean, elide, format_duration

#: States of tasks that have not ended, as the scheduler calls them.
UNFINISHED = ("waiting", "no-worker", "queued", "processing")


#: stopped; gone; busy: one thread computes and no other turns; idle: all its threads sleep.
ProcessState = Literal["stopped", "gone", "busy", "idle"]


class Frame(NamedTuple):
    """A frame of a stack."""

    function: str
    file: str
    line: int


#: The outermost frame first.
Stack = tuple[Frame, ...]


@dataclass(frozen=True)
class Activity:
    """What a thread does."""

    #: running (or runnable), sleeping, disk, stopped; None: unknown.
    thread_state: str | None = None
    stack: Stack = ()
    #: The call of Dask's that it waits in, see `dasfprof.schema.under_way`; None: in none.
    waits_in: str | None = None
    #: The names of what it waits for: one, or those of a MultiLock; empty for futures.
    waits_for: tuple[str, ...] = ()
    #: The keys of the futures that it waits for, the first 100.
    waits_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskUnderWay:
    """A task that a worker has begun and not ended."""

    key: str
    #: Dask's prefix.
    function: str
    #: The worker's label.
    worker: str
    #: executing, long-running, fetching, cancelled.
    state: str
    #: Seconds since it was given its thread, until the state's time; None: unknown.
    seconds: float | None
    #: Identity of the thread; None: a coroutine, or no thread.
    thread: str | None = None
    #: CPU seconds of its thread in that time; None: unknown.
    cpu: float | None = None
    #: Seconds that `activity` has been the same, as far as it was looked at; None: unknown.
    unchanged: float | None = None
    activity: Activity = Activity()
    #: Dask's locks and semaphores that it holds: kind and name.
    holds: tuple[tuple[str, str], ...] = ()
    #: Whether `holds` is certain. Else it is what its process holds.
    holds_certain: bool = True


@dataclass(frozen=True)
class WorkerNow:
    """A worker."""

    #: Its label.
    worker: str
    address: str
    threads: int
    #: running, paused, closing_gracefully, ...; "lost" once it has left unasked.
    status: str
    #: Seconds since the scheduler heard of it.
    silent: float = 0.0
    #: Tasks that the scheduler has sent to it and not heard the end of: how many, the first ones.
    processing: int = 0
    processing_keys: tuple[str, ...] = ()
    #: The tasks that the worker itself knows, and their states; None: it was not asked, or did not
    #: answer.
    known: Mapping[str, str] | None = None
    memory: float | None = None
    memory_limit: float | None = None
    #: Bytes of Dask's results that it has in memory; None: unknown.
    results: float | None = None
    #: How its process ended, in words and in a clause, and what to do about that; empty: unknown,
    #: or it runs.
    exit: str = ""
    exit_clause: str = ""
    exit_advice: str = ""
    #: Of a lost one: seconds since it left, and its tasks that held Dask's locks and semaphores:
    #: key, and the lock's name.
    gone: float | None = None
    held: tuple[tuple[str, str], ...] = ()
    #: Whether the process answered when it was asked; None: it was not asked.
    answered: bool | None = None
    #: What its operating system says of the process; None: unknown.
    process_state: ProcessState | None = None
    #: Seconds for which its event loop has not turned (0: it turns), and its stack meanwhile.
    loop_blocked: float = 0.0
    loop_stack: Stack = ()


@dataclass(frozen=True)
class ClientNow:
    """A client."""

    client: str
    #: Results that it wants, and how many of them are unfinished; None: unknown.
    wanted: int = 0
    unfinished: int | None = None
    #: The first unfinished ones.
    keys: tuple[str, ...] = ()
    #: What its main thread does; None: unknown.
    activity: Activity | None = None
    #: Seconds that this has been the same.
    unchanged: float | None = None
    #: Whether it has waited for long for results of which the scheduler never kept one for it.
    wants_nothing: bool = False

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ClientNow:
        """Return what the scheduler told of a client."""
        keys = tuple(map(str, row.get("keys") or ()))
        return cls(str(row["client"]), int(row.get("wanted") or 0), row.get("unfinished"), keys)


@dataclass(frozen=True)
class HeldBackTask:
    """A task that no worker may run."""

    key: str
    function: str
    seconds: float | None
    #: workers, hosts, resources.
    restrictions: Mapping[str, object] = field(default_factory=dict)
    #: Which of them no worker meets, in words; empty: none of them.
    unmet: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any], time: float) -> HeldBackTask:
        """Return what the scheduler told of a task until a time."""
        since = row.get("since")
        return cls(
            key=str(row.get("key")),
            function=str(row.get("function")),
            seconds=None if since is None else max(time - float(since), 0.0),
            restrictions=row.get("restrictions") or {},
            unmet=str(row.get("unmet") or ""),
        )


@dataclass(frozen=True)
class Primitive:
    """One of Dask's locks, events, queues, ... that something waits for or holds."""

    #: Lock, Semaphore, MultiLock, Event, Queue.get, Queue.put, Variable.
    kind: str
    name: str
    waiting: int = 0
    #: Leases of a semaphore or lock.
    holders: tuple[str, ...] = ()
    limit: int | None = None
    is_set: bool | None = None
    items: int | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Primitive:
        """Return what the scheduler told of one."""
        return cls(
            kind=str(row.get("kind")),
            name=str(row.get("name")),
            waiting=int(row.get("waiting") or 0),
            holders=tuple(map(str, row.get("holders") or ())),
            limit=row.get("limit"),
            is_set=row.get("set"),
            items=row.get("items"),
        )


@dataclass(frozen=True)
class FailedTask:
    """A task that ended in an error for good."""

    key: str
    function: str
    #: The exception's representation.
    message: str
    worker: str | None = None
    #: How many tasks depend on it and therefore never run; None: unknown.
    dependents: int | None = None
    #: Of one whose workers died: of what, in a clause, and what to do about that; empty: unknown.
    died_of: str = ""
    advice: str = ""
    #: The function that is suspected of all that the workers had, and why; empty: its own.
    suspect: str = ""
    suspicion: str = ""


@dataclass(frozen=True)
class ClusterState:
    """What a cluster has under way at one time."""

    #: Unix seconds.
    time: float
    #: Number of unfinished tasks, by the scheduler; None: unknown.
    unfinished: int | None
    #: Number of tasks by function and state.
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tasks: tuple[TaskUnderWay, ...] = ()
    held_back: tuple[HeldBackTask, ...] = ()
    workers: tuple[WorkerNow, ...] = ()
    clients: tuple[ClientNow, ...] = ()
    primitives: tuple[Primitive, ...] = ()
    failed: tuple[FailedTask, ...] = ()
    #: Seconds since the last task ended or began; None: unknown.
    quiet: float | None = None
    #: Whether the scheduler answered; None: it was not asked.
    scheduler_answered: bool | None = None
    scheduler_process: ProcessState | None = None
    scheduler_blocked: float = 0.0
    scheduler_stack: Stack = ()


# --- Which line of a stack is the user's, and how it is written -----------------------------------

#: Seconds of the same stack from which it is said since when that is so.
_LOOKED_AT = 3.0
#: Files of installed packages and of Python itself.
_OF_LIBRARIES = re.compile(
    r"/(site|dist)-packages/|/lib/python\d+\.\d+/|^<frozen |/dasfprof/recording/"
)
_WHERE_INSTALLED = re.compile(r"^.*/((site|dist)-packages|lib/python\d+\.\d+)/")


def is_of_user(frame: Frame) -> bool:
    """Return whether a frame runs code of neither Python nor an installed package."""
    return _is_of_user(frame.file)


@lru_cache(maxsize=4096)
def _is_of_user(file: str) -> bool:
    return not _OF_LIBRARIES.search(file.replace("\\", "/"))


def user_frame(stack: Stack) -> Frame | None:
    """Return the innermost frame of the user's code; without one, the outermost of all."""
    for frame in reversed(stack):
        if is_of_user(frame):
            return frame
    return stack[0] if stack else None


def write_frame(frame: Frame) -> str:
    """Write a frame as ``file:line function``; without its file where that is unknown."""
    if frame.file == DYNAMIC:
        return f"{clean(frame.function)}, line {frame.line} of code that the client sent"
    return f"{clean(frame.file)}:{frame.line} {clean(frame.function)}"


def user_line(stack: Stack) -> str | None:
    """Write the user's line of a stack; None of an empty one."""
    frame = user_frame(stack)
    return None if frame is None else write_frame(frame)


def describe_stack(stack: Stack) -> str:
    """Say where a thread is: the user's line first, its text, then the library's innermost line.

    What is between them is left out, as is where libraries are installed.
    """
    frame = user_frame(stack)
    if frame is None:
        return "its stack is unknown"
    text = source_of(frame)
    words = write_frame(frame) + (f" (`{text}`)" if text else "")
    if stack[-1] == frame:
        return words
    # With its path from the library on, such as ``pandas/core/frame.py``.
    file = _WHERE_INSTALLED.sub("", stack[-1].file.replace("\\", "/"))
    return f"{words}, in it {write_frame(stack[-1]._replace(file=file))}"


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


#: Names that are told of many.
_MOST_NAMES = 3


def name_some(names: Sequence[str], *, number: int | None = None) -> str:
    """Name the first of some keys, functions, ..., of which there are `number`: so many names."""
    shown = ", ".join(elide(name, 60) for name in names[:_MOST_NAMES])
    more = (len(names) if number is None else number) - _MOST_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown


# --- `Cause`: why work does not end, and how certain that is --------------------------------------

#: certain: the evidence proves it. likely: it fits, and little else does. open: what is seen, which
#: a healthy run may show as well.
Certainty = Literal["certain", "likely", "open"]

CERTAINTIES: tuple[Certainty, ...] = ("certain", "likely", "open")


@dataclass(frozen=True)
class Cause:
    """One reason for which tasks do not end."""

    #: A name that stays, such as ``lock-cycle``.
    kind: str
    certainty: Certainty
    #: One plain sentence that names the cause.
    text: str
    #: The facts: tasks, seconds, lines.
    evidence: str
    #: What to do.
    suggestion: str
    #: The tasks that the cause itself holds up, the first ones by key.
    keys: tuple[str, ...] = ()
    #: Number of unfinished tasks that wait for it.
    waiting: int = 0
    function: str | None = None
    worker: str | None = None
    #: The user's line that waits or runs, as ``file:line function``.
    line: str | None = None
    #: Seconds for which it has been so, or at least for which its tasks have been under way; None:
    #: unknown.
    seconds: float | None = None

    @classmethod
    def of_tasks(cls, tasks: Sequence[TaskUnderWay], *said: Any, **others: Any) -> Cause:
        """Return a cause that holds up tasks: place, line and time are of these, unless given.

        `said`: the fields from `kind` to `suggestion`.
        """
        first = tasks[0] if tasks else None
        known = {
            "keys": tuple(task.key for task in tasks),
            "waiting": len(tasks),
            "function": first and first.function,
            "worker": first and first.worker,
            "line": first and user_line(first.activity.stack),
            "seconds": min((one.seconds for one in tasks if one.seconds is not None), default=None),
        }
        return cls(*said, **{**known, **others})
