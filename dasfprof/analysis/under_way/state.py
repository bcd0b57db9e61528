"""`ClusterState`: the unfinished work of a cluster at one time. All keys and names are texts.

Whoever asks a live cluster, reads a trace or reads a dump provides rows with the columns of the
events in `dasfprof.schema.under_way`. The methods `from_row` of this module interpret them.
"""

from __future__ import annotations

import linecache
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dasfprof.analysis.wording import Certainty
from dasfprof.schema.steps import DYNAMIC
from dasfprof.text import clean, elide, format_duration

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from typing_extensions import Self

#: A recorded row: values by column.
Row = Mapping[Any, Any]

#: States of a process. stopped: by a signal. gone: the process ended. busy: one thread computes and
#: no other thread runs. idle: all threads sleep.
ProcessState = Literal["stopped", "gone", "busy", "idle"]


class Frame(NamedTuple):
    """A frame of a stack."""

    function: str
    file: str
    line: int


#: Frames of a stack, outermost first.
Stack = tuple[Frame, ...]


def stack_of(frames: Any) -> Stack:
    """Return the frames of a recorded stack, without damaged frames."""
    known = frames if isinstance(frames, list | tuple) else ()
    return tuple(
        [_frame(*each) for each in known if isinstance(each, list | tuple) and len(each) == 3]
    )


@lru_cache(maxsize=1 << 16)  # Stacks share most of their frames.
def _frame(function: Any, file: Any, line: Any) -> Frame:
    return Frame(str(function), str(file), line if isinstance(line, int) else 0)


@dataclass(frozen=True)
class Activity:
    """What a thread does: its state, its stack, and what it waits for."""

    #: State of the thread: running (or runnable), sleeping, disk, stopped, or None if unknown.
    thread_state: str | None = None
    stack: Stack = ()
    #: Dask's call in which the thread waits (see `dasfprof.schema.under_way`), or None.
    waits_in: str | None = None
    #: Names of the locks or other primitives for which the thread waits. Only a MultiLock has
    #: several names. Empty if the thread waits for futures.
    waits_for: tuple[str, ...] = ()
    #: Keys of the futures for which the thread waits, at most 100.
    waits_keys: tuple[str, ...] = ()

    @classmethod
    def from_row(cls, row: Row, stack: Stack) -> Activity:
        """Return the activity that a row about a task or a client describes, with a given stack."""
        names = row.get("waits_for")
        if not isinstance(names, list | tuple):
            names = () if _is_missing(names) else (names,)
        return cls(
            thread_state=_text(row.get("thread_state")),
            stack=stack,
            waits_in=_text(row.get("waits_in")),
            waits_for=tuple(map(str, names)),
            waits_keys=tuple(map(str, row.get("waits_keys") or ())),
        )

    @property
    def line(self) -> str | None:
        """The user's line of the stack, see `user_line`."""
        return user_line(self.stack)

    @property
    def call(self) -> str | None:
        """The call in which the thread waits, and for what, such as ``Event 'go'``, or None."""
        names = ", ".join(map(repr, self.waits_for))
        return self.waits_in and f"{self.waits_in} {names}".rstrip()


@dataclass(frozen=True)
class TaskUnderWay:
    """A task that a worker has started but not finished."""

    key: str
    #: Dask's task prefix.
    function: str
    #: Label of the worker.
    worker: str
    #: State of the task: executing, long-running, fetching, or cancelled.
    state: str
    #: Seconds since the task got its thread, or None if unknown.
    seconds: float | None
    #: Identity of the task's thread, or None for a coroutine or a task without a thread.
    thread: str | None = None
    #: CPU seconds of the task's thread during `seconds`, or None if unknown.
    cpu: float | None = None
    #: Seconds for which all samples have shown the same `activity`, or None if unknown.
    unchanged: float | None = None
    activity: Activity = Activity()
    #: Kind and name of each distributed lock or semaphore that the task holds.
    holds: tuple[tuple[str, str], ...] = ()
    #: Whether the task certainly holds the locks in `holds`. Otherwise another task of its process
    #: may.
    holds_certain: bool = True

    @classmethod
    def from_row(
        cls, row: Row, time: float, worker: str, stack: Stack = (), **others: Any
    ) -> TaskUnderWay:
        """Return the task that a recorded row describes at `time`, with `others` as fields."""
        from dask.utils import key_split  # Commands import this module, but need no Dask.

        values = {
            "key": str(row["key"]),
            "function": str(key_split(row["key"])),
            "state": str(row["state"]),
            "seconds": seconds_since(row.get("since"), time),
            "thread": _text(row.get("thread")),
            "activity": Activity.from_row(row, stack),
        }
        return cls(worker=worker, **{**values, **others})


@dataclass(frozen=True)
class WorkerNow:
    """The state of a worker of the cluster at one time."""

    #: Label of the worker.
    worker: str
    address: str
    threads: int = 0
    #: Status: running, paused, closing_gracefully and so on. "lost" if the worker left
    #: unexpectedly.
    status: str = "unknown"
    #: Seconds since the scheduler last received a message from the worker.
    silent: float = 0.0
    #: Number of unfinished tasks that the scheduler has assigned to the worker, and the first keys
    #: of these tasks.
    processing: int = 0
    processing_keys: tuple[str, ...] = ()
    #: States of the tasks that the worker itself knows, by key. None if the worker did not answer
    #: or was not asked.
    known: Mapping[str, str] | None = None
    memory: float | None = None
    memory_limit: float | None = None
    #: Bytes of results in the worker's memory, or None if unknown.
    results: float | None = None
    #: How the worker's process ended, as a sentence and as a clause, and advice. All three are
    #: empty if this is unknown or the process is running.
    exit: str = ""
    exit_clause: str = ""
    exit_advice: str = ""
    #: Seconds since a lost worker left. Keys of its tasks that held locks or semaphores, each with
    #: the name of the lock.
    gone: float | None = None
    held: tuple[tuple[str, str], ...] = ()
    #: Dask's name of the worker, and the name of its host. Empty if unknown.
    name: str = ""
    host: str = ""
    #: Number of threads that run a task, or None if unknown.
    busy: int | None = None
    #: Whether the worker's process answered, or None if it was not asked.
    answered: bool | None = None
    #: State of the process according to the operating system, or None if unknown.
    process_state: ProcessState | None = None
    #: Seconds for which the worker's event loop has been blocked (0 if it is not blocked), and the
    #: stack of the event loop.
    loop_blocked: float = 0.0
    loop_stack: Stack = ()

    @classmethod
    def from_row(cls, row: Row, time: float, **others: Any) -> WorkerNow:
        """Return the worker that a scheduler's row describes at `time`, with `others` as fields."""
        executing, address = row.get("executing"), str(row.get("worker"))
        values = {
            **_fields_in(row, cls),
            "worker": address,
            "address": address,
            "silent": seconds_since(row.get("last_seen") or time, time),
            "processing_keys": tuple(row.get("keys") or ()),
            "busy": None if executing is None else min(executing, row.get("threads") or 0),
        }
        return cls(**{**values, **others})


@dataclass(frozen=True)
class RecordedRow:
    """Base class of dataclasses whose fields are columns of recorded rows."""

    @classmethod
    def from_row(cls, row: Row, **others: Any) -> Self:
        """Return an object with the values of a row, except None, and with `others` as fields."""
        return cls(**{**_fields_in(row, cls), **others})


@dataclass(frozen=True)
class ClientNow(RecordedRow):
    """The state of a client of the cluster at one time."""

    client: str
    #: Number of results that the client requests, and the unfinished ones of these, or None if
    #: unknown.
    wanted: int = 0
    unfinished: int | None = None
    #: First keys of the unfinished results.
    keys: tuple[str, ...] = ()
    #: Activity of the client's main thread, or None if unknown.
    activity: Activity | None = None
    #: Seconds for which the activity has been the same.
    unchanged: float | None = None
    #: Whether the client has long been waiting for results that the scheduler never kept for it.
    wants_nothing: bool = False


@dataclass(frozen=True)
class HeldBackTask(RecordedRow):
    """A task that cannot run on any worker."""

    key: str
    function: str
    seconds: float | None
    #: Restrictions of the task: workers, hosts or resources.
    restrictions: Mapping[str, object] = field(default_factory=dict)
    #: Description of the restriction that no worker meets, or empty.
    unmet: str = ""


@dataclass(frozen=True)
class Primitive(RecordedRow):
    """A distributed lock, event, queue or variable that tasks or clients wait for or hold."""

    #: Kind: Lock, Semaphore, MultiLock, Event, Queue.get, Queue.put, or Variable.
    kind: str
    name: str
    waiting: int = 0
    #: Holders of the leases of a semaphore or lock.
    holders: tuple[str, ...] = ()
    limit: int | None = None
    is_set: bool | None = None
    items: int | None = None


@dataclass(frozen=True)
class FailedTask(RecordedRow):
    """A task that failed and is not retried again."""

    key: str
    function: str
    #: The `repr` of the exception.
    message: str
    worker: str | None = None
    #: Number of tasks that never run because they depend on this task, or None if unknown.
    dependents: int | None = None
    #: How the workers of the task died, as a clause, and advice. Both are empty if they did not
    #: die.
    died_of: str = ""
    advice: str = ""
    #: Function that may have caused the workers' deaths, and the evidence. Both may be empty.
    suspect: str = ""
    suspicion: str = ""


@dataclass(frozen=True)
class ClusterState:
    """The unfinished work of a cluster at one time."""

    #: Unix seconds of the state.
    time: float
    #: Number of unfinished tasks on the scheduler, or None if unknown.
    unfinished: int | None
    #: Number of tasks by function and state.
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tasks: tuple[TaskUnderWay, ...] = ()
    held_back: tuple[HeldBackTask, ...] = ()
    workers: tuple[WorkerNow, ...] = ()
    clients: tuple[ClientNow, ...] = ()
    primitives: tuple[Primitive, ...] = ()
    failed: tuple[FailedTask, ...] = ()
    #: Seconds since a task last started or ended, or None if unknown.
    quiet: float | None = None
    #: Whether the scheduler answered, or None if it was not asked.
    scheduler_answered: bool | None = None
    scheduler_process: ProcessState | None = None
    scheduler_blocked: float = 0.0
    scheduler_stack: Stack = ()

    @classmethod
    def from_row(cls, row: Row, time: float, **others: Any) -> ClusterState:
        """Return the state that a scheduler's row describes at `time`, with `others` as fields.

        Workers are not read from the row, because more is known about them.
        """
        values = {
            "unfinished": row.get("unfinished"),
            "counts": row.get("tasks") or {},
            "held_back": tuple(
                HeldBackTask.from_row(task, seconds=seconds_since(task.get("since"), time))
                for task in row.get("held_back") or ()
            ),
            "clients": tuple(map(ClientNow.from_row, row.get("clients") or ())),
            "primitives": tuple(
                Primitive.from_row(item, is_set=item.get("set"))
                for item in row.get("primitives") or ()
            ),
        }
        return cls(time=time, **{**values, **others})

    @property
    def totals(self) -> Counter[str]:
        """Number of tasks by state."""
        return sum(map(Counter, self.counts.values()), Counter[str]())


def _fields_in(row: Row, kind: type[DataclassInstance]) -> dict[str, Any]:
    """Return the values of a row that belong to fields of the dataclass `kind` and are not None."""
    names = {item.name for item in fields(kind)}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in row.items()
        if name in names and value is not None
    }


def seconds_since(since: Any, time: float) -> float | None:
    """Return the seconds from a recorded time to `time`, or None if the former is missing."""
    return None if _is_missing(since) else max(time - float(since), 0.0)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


#: Threshold (seconds): if a stack has been the same for this long, the duration is reported.
_LOOKED_AT = 3.0
#: Files of installed packages and of Python itself.
_OF_LIBRARIES = re.compile(
    r"/(site|dist)-packages/|/lib/python\d+\.\d+/|^<frozen |/dasfprof/recording/"
)
_WHERE_INSTALLED = re.compile(r"^.*/((site|dist)-packages|lib/python\d+\.\d+)/")


def is_of_user(frame: Frame) -> bool:
    """Return whether a frame belongs neither to Python nor to an installed package."""
    return _is_of_user(frame.file)


@lru_cache(maxsize=4096)
def _is_of_user(file: str) -> bool:
    return not _OF_LIBRARIES.search(file.replace("\\", "/"))


def user_frame(stack: Stack) -> Frame | None:
    """Return the innermost frame of the user's code, or else the outermost frame.

    The result is None if the stack is empty.
    """
    for frame in reversed(stack):
        if is_of_user(frame):
            return frame
    return stack[0] if stack else None


def write_frame(frame: Frame) -> str:
    """Return a frame as ``file:line function``, where an unknown file is left out."""
    if frame.file == DYNAMIC:
        return f"{clean(frame.function)}, line {frame.line} of code that the client sent"
    return f"{clean(frame.file)}:{frame.line} {clean(frame.function)}"


def user_line(stack: Stack) -> str | None:
    """Return the user's line of a stack as text, or None if the stack is empty."""
    frame = user_frame(stack)
    return None if frame is None else write_frame(frame)


def describe_stack(stack: Stack) -> str:
    """Return a description of a stack: the user's line and its text, then the innermost line."""
    frame = user_frame(stack)
    if frame is None:
        return "its stack is unknown"
    text = source_of(frame)
    words = write_frame(frame) + (f" (`{text}`)" if text else "")
    if stack[-1] == frame:
        return words
    # Shorten the path so that it starts at the library, such as ``pandas/core/frame.py``.
    file = _WHERE_INSTALLED.sub("", stack[-1].file.replace("\\", "/"))
    return f"{words}, inside it {write_frame(stack[-1]._replace(file=file))}"


def source_of(frame: Frame) -> str:
    """Return the text of a frame's line, or "" if this host does not have the file."""
    return elide(linecache.getline(frame.file, frame.line).strip(), 80)


def since(tasks: Sequence[TaskUnderWay]) -> str:
    """Return a clause about how long tasks have been at the same line, or have been running.

    It is empty if both are unknown.
    """
    known = [task for task in tasks if task.seconds is not None]
    if not known:
        return ""
    shortest = min(known, key=lambda task: task.seconds or 0.0)
    seconds = shortest.seconds or 0.0
    if shortest.unchanged is not None and shortest.unchanged >= min(seconds, _LOOKED_AT):
        return f" (for {format_duration(min(seconds, shortest.unchanged))})"
    # With a single snapshot, it is unknown how long they have been at the line.
    more, who = ("", "it") if len(tasks) == 1 else (" or more", "they")
    return f", {format_duration(seconds)}{more} after {who} began"


#: Maximum number of names that are listed.
_MOST_NAMES = 3


def name_some(names: Sequence[str], *, number: int | None = None) -> str:
    """Return the first few names as a text, such as ``a, b, c and 4 more``.

    If `names` is incomplete, `number` is the number of all names.
    """
    shown = ", ".join(elide(name, 60) for name in names[:_MOST_NAMES])
    more = (len(names) if number is None else number) - _MOST_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown


@dataclass(frozen=True)
class Cause:
    """A reason why tasks do not finish."""

    #: Stable name of the kind of cause, such as ``lock-cycle``.
    kind: str
    certainty: Certainty
    #: Headline: one sentence that names the cause.
    text: str
    #: Evidence: tasks, seconds, lines.
    evidence: str
    #: Advice.
    suggestion: str
    #: Keys of the tasks that the cause delays directly, in order.
    keys: tuple[str, ...] = ()
    #: Number of unfinished tasks that wait because of the cause.
    waiting: int = 0
    function: str | None = None
    worker: str | None = None
    #: User's line that waits or runs, as ``file:line function``, or None.
    line: str | None = None
    #: Seconds for which the cause has existed. Otherwise the minimum time for which its tasks have
    #: been in progress. None if unknown.
    seconds: float | None = None

    @classmethod
    def of_tasks(cls, tasks: Sequence[TaskUnderWay], *said: Any, **others: Any) -> Cause:
        """Return a cause that delays tasks.

        `said` are the values of the fields from `kind` to `suggestion`. The function, worker, line
        and time of the tasks are used for the other fields, unless `others` contains these fields.
        """
        first = tasks[0] if tasks else None
        known = {
            "keys": tuple(task.key for task in tasks),
            "waiting": len(tasks),
            "function": first and first.function,
            "worker": first and first.worker,
            "line": first and user_line(first.activity.stack),
            "seconds": min(
                (task.seconds for task in tasks if task.seconds is not None), default=None
            ),
        }
        return cls(*said, **{**known, **others})
