"""Causes about tasks and clients that wait for distributed locks, events, queues and variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dasfprof.analysis.under_way.state import (
    Cause,
    ClusterState,
    Primitive,
    TaskUnderWay,
    WorkerNow,
    describe_stack,
    name_some,
    since,
    user_line,
)
from dasfprof.text import count_of, elide, format_duration

#: Calls that wait for something that another task or client holds.
_HELD = ("Lock", "Semaphore", "MultiLock")
#: Calls that wait until another task or client sets a value or changes a queue.
_SIGNALS = ("Event", "Queue.get", "Queue.put", "Variable")
#: Threshold (seconds): shorter waits are not reported.
_LONG = 3.0
#: Kind of the cause about a lock that a task of a dead worker held. The cause's worker is this one.
HOLDER_DIED = "lock-holder-died"

#: Tasks that wait, and the names of clients that wait.
Waiters = list[TaskUnderWay | str]


def lock_cycles(state: ClusterState) -> Iterator[Cause]:
    """Find deadlocks: cycles of tasks, each of which waits for a lock that the next one holds."""
    waiting = [task for task in state.tasks if task.activity.waits_in in _HELD]
    seen: set[str] = set()
    for begin in waiting:
        cycle = _cycle_from(begin, waiting, state)
        if cycle is None or seen & {task.key for task in cycle}:
            continue
        seen |= {task.key for task in cycle}
        certain = all(task.holds_certain for task in cycle)
        holders = "; ".join(
            f"{elide(task.key, 60)} on {task.worker} {_held_names(task, cycle)} and waits "
            f"for {task.activity.waits_in} {name_some(task.activity.waits_for)}"
            for task in cycle
        )
        lines = "; ".join(describe_stack(task.activity.stack) for task in cycle)
        names = {name for task in cycle for name in task.activity.waits_for}
        yield Cause.of_tasks(
            cycle,
            "lock-cycle",
            "certain" if certain else "likely",
            f"{count_of(len(cycle), 'task')} wait for each other's locks, so none of them can "
            "continue.",
            f"{holders}. They wait at: {lines}.",
            "Acquire the locks in the same order everywhere (sorted by name), or all at once "
            "with a MultiLock. With a timeout in acquire(), the wait ends.",
            waiting=sum(not names.isdisjoint(task.activity.waits_for) for task in waiting),
            function=begin.function,
            worker=begin.worker,
            line=user_line(begin.activity.stack),
        )


def _cycle_from(
    begin: TaskUnderWay, waiting: list[TaskUnderWay], state: ClusterState
) -> list[TaskUnderWay] | None:
    """Return the cycle of waiting tasks that a task leads to, or None if there is no cycle."""
    path = [begin]
    while True:
        holders = _holders(path[-1], state)
        if not holders or not all(holder in waiting for holder in holders):
            return None  # A task that is running may hold the lock, and may release it.
        if any(holder in path for holder in holders):
            first = min(path.index(holder) for holder in holders if holder in path)
            return path[first:]
        path.append(holders[0])


def _holders(task: TaskUnderWay, state: ClusterState) -> list[TaskUnderWay]:
    """Return the tasks that hold, or may hold, the locks for which a task waits."""
    wanted = set(task.activity.waits_for)
    limits = {primitive.name: primitive.limit for primitive in state.primitives}
    if any((limits.get(name) or 1) > 1 for name in wanted):
        # Any lease of a semaphore with several leases may be released.
        return []
    return [
        other
        for other in state.tasks
        if any(name in wanted and name not in other.activity.waits_for for _, name in other.holds)
    ]


def _held_names(task: TaskUnderWay, cycle: list[TaskUnderWay]) -> str:
    wanted = {name for other in cycle if other is not task for name in other.activity.waits_for}
    held = [name for _, name in task.holds if name in wanted - set(task.activity.waits_for)]
    return f"{'holds' if task.holds_certain else 'may hold'} {name_some(held)}"


def held_locks(state: ClusterState) -> Iterator[Cause]:
    """Find locks and semaphores for which tasks or clients wait, and their holders."""
    cycles = {key for cause in lock_cycles(state) for key in cause.keys}
    for (kind, name), waiters in _waiters(state, _HELD).items():
        tasks = [waiter for waiter in waiters if isinstance(waiter, TaskUnderWay)]
        if any(task.key in cycles for task in tasks):
            continue  # The cause about the deadlock includes these tasks.
        holders = [
            task
            for task in state.tasks
            if name in {held for _, held in task.holds} - set(task.activity.waits_for)
        ]
        primitive = _primitive(state, name)
        died = None if holders else _holder_that_died(name, primitive, state)
        if died is not None:
            yield _holder_died(kind, name, waiters, *died)
            continue
        yield _waits_cause(
            kind,
            name,
            waiters,
            _who_holds(holders, primitive),
            f"Check what the holder does: it may never release {name}. Use `with {kind}(...)`, "
            "so that an error releases it, and pass a timeout to acquire().",
        )


def _holder_that_died(
    name: str, primitive: Primitive | None, state: ClusterState
) -> tuple[WorkerNow, str | None] | None:
    """Return the lost worker whose task held a lock, and the key of the task, or None.

    The key is None if it is uncertain whether a task of this worker held the lock.
    """
    lost = [worker for worker in state.workers if worker.status == "lost"]
    for worker in lost:
        for key, held in worker.held:
            if held == name:
                return worker, key
    return (lost[-1], None) if lost and primitive is not None and primitive.holders else None


def _holder_died(
    kind: str, name: str, waiters: Waiters, worker: WorkerNow, key: str | None
) -> Cause:
    ago = "" if worker.gone is None else f" {format_duration(worker.gone)} before"
    held = (
        f"{elide(key, 60)} held it on {worker.worker}, which died{ago}"
        if key is not None
        else "no running task is known to hold it. A client may hold it, or a task of "
        f"{worker.worker}, which died{ago} with "
        f"{name_some(worker.processing_keys) or 'tasks'}"
    )
    cause = _waits_cause(
        kind,
        name,
        waiters,
        held,
        f"Prevent the worker from dying while it holds the {kind}, which Dask releases only "
        f"after distributed.scheduler.locks.lease-timeout (30 s by default). "
        f"{worker.exit_advice}".strip(),
    )
    ended = f"{worker.worker}: {worker.exit or 'how it ended is unknown'}."
    return replace(
        cause,
        kind=HOLDER_DIED,
        certainty="certain" if key is not None else "possible",
        worker=worker.worker,
        evidence=f"{cause.evidence} {ended}",
    )


def _who_holds(holders: list[TaskUnderWay], primitive: Primitive | None) -> str:
    if holders:
        if not all(task.holds_certain for task in holders) and len(holders) > 1:
            keys = name_some([task.key for task in holders])
            return f"held by {holders[0].worker}, by a running or finished task ({keys})"
        may = "" if holders[0].holds_certain else "may be "
        return "; ".join(
            f"{may}held by {elide(task.key, 60)} on {task.worker}, which is at "
            f"{describe_stack(task.activity.stack)}"
            for task in holders[:3]
        )
    if primitive is None:
        return "who holds it is unknown"
    if primitive.holders:
        return (
            f"{count_of(len(primitive.holders), 'lease')} of it are held, but by no running "
            "task. A client may hold it, or a process that has died, whose lease times out"
        )
    return "no lease of it is held"


def unset_signals(state: ClusterState) -> Iterator[Cause]:
    """Find events, queues and variables for which tasks or clients wait."""
    for (kind, name), waiters in _waiters(state, _SIGNALS).items():
        yield _waits_cause(
            kind, name, waiters, _signal_state(kind, _primitive(state, name)), _SIGNAL_ADVICE[kind]
        )


_SIGNAL_ADVICE = {
    "Event": "Check whether the code that should set it has run. A task that waits occupies its "
    "thread, which the code that sets it may need. Pass a timeout to wait().",
    "Queue.get": "Check whether the code that should put something into it has run. A task that "
    "waits occupies its thread, which the producer may need. Pass a timeout to "
    "get().",
    "Queue.put": "Check whether the code that should take from the full queue is running. Raise "
    "its maxsize, or pass a timeout to put().",
    "Variable": "Check whether the code that should set it has run. Pass a timeout to get().",
}


def _signal_state(kind: str, primitive: Primitive | None) -> str:
    if kind == "Event":
        return "it is set" if primitive is not None and primitive.is_set else "it has not been set"
    if kind == "Variable":
        return "it has not been set"
    if primitive is None or primitive.items is None:
        return "its number of items is unknown"
    return f"{count_of(primitive.items, 'item')} in it"


def _waiters(state: ClusterState, calls: tuple[str, ...]) -> dict[tuple[str, str], Waiters]:
    """Return the tasks and clients that wait in `calls`, by call and name of the primitive."""
    waiters: dict[tuple[str, str], Waiters] = {}
    for task in state.tasks:
        if task.activity.waits_in in calls and (task.seconds is None or task.seconds >= _LONG):
            for name in task.activity.waits_for:
                waiters.setdefault((str(task.activity.waits_in), name), []).append(task)
    for client in state.clients:
        if client.activity is not None and client.activity.waits_in in calls:
            for name in client.activity.waits_for:
                place = f"the client at {describe_stack(client.activity.stack)}"
                waiters.setdefault((str(client.activity.waits_in), name), []).append(place)
    return waiters


def _primitive(state: ClusterState, name: str) -> Primitive | None:
    return next((item for item in state.primitives if item.name == name), None)


_NOUNS = {"Queue.get": "Queue (get)", "Queue.put": "Queue (put)"}


def _waits_cause(kind: str, name: str, waiters: Waiters, known: str, suggestion: str) -> Cause:
    tasks = [waiter for waiter in waiters if isinstance(waiter, TaskUnderWay)]
    others = [waiter for waiter in waiters if isinstance(waiter, str)]
    who = [count_of(len(tasks), "task")] if tasks else []
    who += ["the client"] if others else []
    verb = "wait" if len(tasks) + len(others) > 1 else "waits"
    places = [describe_stack(task.activity.stack) for task in tasks[:1]]
    return Cause.of_tasks(
        tasks,
        "lock-wait" if kind in _HELD else "signal-wait",
        "possible",
        f"{' and '.join(who)} {verb} for the {_NOUNS.get(kind, kind)} {elide(name, 60)!r}"
        f"{since(tasks)}: {known}.",
        f"{name_some([task.key for task in tasks]) or 'The client'}, at "
        f"{'; '.join(places + others)}. No progress was seen so far.",
        suggestion,
        waiting=len(tasks) + len(others),
    )
