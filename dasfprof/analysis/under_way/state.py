"""`ClusterState`: what a cluster has under way at one time. Keys and names are texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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
    #: How its process ended, in words; empty: unknown, or it runs.
    exit: str = ""
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
    #: How it left: closed, lost; None: it is there.
    left: str | None = None


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
