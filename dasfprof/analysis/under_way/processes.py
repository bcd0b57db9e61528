"""Causes: processes that are silent or gone, and threads that sleep or run in one line for long."""

from __future__ import annotations

from collections.abc import Iterator

from dasfprof.analysis.under_way.primitives import HOLDER_DIED, held_locks
from dasfprof.analysis.under_way.state import (
    Cause,
    Certainty,
    ClusterState,
    ProcessState,
    TaskUnderWay,
    WorkerNow,
    describe_stack,
    name_some,
    since,
    user_line,
)
from dasfprof.text import count_of, elide, format_duration

#: Seconds without a heartbeat from which a worker counts as silent. Dask sends one each half to
#: five seconds.
_SILENT = 10.0
#: Seconds for which an event loop must not have turned: on a busy host healthy ones pause, too.
_BLOCKED = 10.0


#: By the state of its process.
_WHY_SCHEDULER_SILENT: dict[ProcessState | None, tuple[Certainty, str, str]] = {
    "stopped": (
        "certain",
        "its process is stopped (SIGSTOP, a debugger, or a frozen container)",
        "Continue the process (kill -CONT).",
    ),
    "busy": (
        "likely",
        "one thread computes and no other turns, as with a large graph, or a plugin that computes",
        "Wait some seconds and look again. If it is still so, look at its stacks: "
        "`py-spy dump --pid` shows them without its help.",
    ),
    None: (
        "likely",
        "it may be frozen, overloaded, or cut off by the network",
        "Make sure that the address is the scheduler's, and not its dashboard's. Look at its "
        "process and host; `py-spy dump --pid` shows its stacks without its help.",
    ),
}


def silent_scheduler(state: ClusterState) -> Iterator[Cause]:
    """Find that the scheduler does not answer, or its event loop does not turn."""
    if state.scheduler_answered is False:
        certainty, why, suggestion = _WHY_SCHEDULER_SILENT.get(
            state.scheduler_process, _WHY_SCHEDULER_SILENT[None]
        )
        yield Cause(
            "scheduler-silent",
            certainty,
            f"The scheduler does not answer: {why}.",
            "No worker can get a task or report a result meanwhile.",
            suggestion,
            waiting=state.unfinished or 0,
        )
    elif state.scheduler_blocked >= _BLOCKED:
        yield Cause(
            "scheduler-blocked",
            "certain",
            "The scheduler's event loop has not turned for "
            f"{format_duration(state.scheduler_blocked)}.",
            f"It was at {describe_stack(state.scheduler_stack)}.",
            "What runs there must not block: plugins, callbacks, run_on_scheduler, large graphs.",
            waiting=state.unfinished or 0,
            line=user_line(state.scheduler_stack),
            seconds=state.scheduler_blocked,
        )


def dead_scheduler(state: ClusterState) -> Iterator[Cause]:
    """Find that the scheduler's process has ended while others of the cluster lived on."""
    if state.scheduler_answered is None and state.scheduler_process == "gone":
        yield Cause(
            "scheduler-gone",
            "certain",
            "The scheduler's process is gone: it ended without closing its file.",
            "It was killed, or ended itself: how is unknown. Workers closed their files after it.",
            "Look at its log and the kernel's (out of memory?), and at who may have ended it.",
        )


def silent_workers(state: ClusterState) -> Iterator[Cause]:
    """Find workers that do not answer, and what they had to do."""
    for worker in state.workers:
        if worker.status == "lost" or not (worker.answered is False or worker.silent >= _SILENT):
            continue
        own = [task for task in state.tasks if task.worker == worker.worker]
        keys = tuple(task.key for task in own) or worker.processing_keys
        certainty, why, suggestion = _why_silent(worker)
        since = f" since {format_duration(worker.silent)}" if worker.silent >= 1 else ""
        yield Cause(
            "worker-silent",
            certainty,
            f"{worker.worker} does not answer{since}: {why}.",
            f"It has {count_of(worker.processing, 'task')}: {name_some(keys) or 'none known'}. "
            f"{_last_seen(own, worker)}",
            suggestion,
            keys=keys,
            waiting=max(worker.processing, len(keys)),
            function=own[0].function if own else None,
            worker=worker.worker,
            line=user_line(own[0].activity.stack) if own else user_line(worker.loop_stack),
            seconds=worker.silent or None,
        )


def _why_silent(worker: WorkerNow) -> tuple[Certainty, str, str]:
    if worker.process_state == "stopped":
        return (
            "certain",
            "its process is stopped (SIGSTOP, a debugger, or a frozen container)",
            "Continue the process (kill -CONT), or end it: its tasks then go to other workers.",
        )
    if worker.process_state == "gone":
        return (
            "certain",
            "its process has ended",
            "Look at its log and the kernel's (out of memory?). Its tasks go to other workers once "
            "the scheduler gives it up (distributed.scheduler.worker-ttl).",
        )
    # A healthy one may not answer for a moment: its host is overloaded, or C code holds the GIL.
    certainty: Certainty = "likely" if worker.silent >= _SILENT else "open"
    if worker.process_state == "busy":
        return (
            certainty,
            "one thread computes and no other turns, as when a C extension holds the GIL",
            "Let the extension release the GIL, call it in a subprocess, or give each worker one "
            "thread and a longer distributed.scheduler.worker-ttl.",
        )
    if worker.process_state == "idle":
        return (
            certainty,
            "all its threads sleep, as when a C extension waits and holds the GIL",
            "Let the extension release the GIL while it waits; `py-spy dump --pid` shows its stacks"
            " without its help.",
        )
    return (
        certainty,
        "it may be frozen, cut off by the network, overloaded, or a C extension holds the GIL",
        "Look at its host and log; `py-spy dump --pid` shows its stacks without its help.",
    )


def _last_seen(own: list[TaskUnderWay], worker: WorkerNow) -> str:
    if own:
        return f"Last seen at {describe_stack(own[0].activity.stack)}."
    if worker.loop_stack:
        return f"Its event loop was last seen at {describe_stack(worker.loop_stack)}."
    return "No stack of it was seen."


def workers_lost_with_tasks(state: ClusterState) -> Iterator[Cause]:
    """Find workers that left unasked while they had tasks; of a lock's holder `held_locks` tells.

    Those about which the same is to be done are one cause.
    """
    told = {cause.worker for cause in held_locks(state) if cause.kind == HOLDER_DIED}
    groups: dict[tuple[str, str], list[WorkerNow]] = {}
    for worker in state.workers:
        had = worker.processing or worker.processing_keys
        if worker.status == "lost" and had and worker.worker not in told:
            groups.setdefault((worker.exit_clause, worker.exit_advice), []).append(worker)
    for (clause, what_to_do), workers in groups.items():
        every = [key for worker in workers for key in worker.processing_keys]
        keys, first = tuple(dict.fromkeys(every)), workers[-1]
        tasks = sum(worker.processing for worker in workers) - len(every) + len(keys)
        one = len(workers) == 1
        who = first.worker if one else count_of(len(workers), "worker")
        yield Cause(
            "worker-lost",
            "certain",
            f"{who} {'was' if one else 'were'} lost with {count_of(tasks, 'task')}"
            f"{f', {clause}' if clause else ''}.",
            f"{name_some(keys) or 'Its tasks are unknown'}. {'' if one else 'The last, '}"
            f"{first.worker}: {first.exit or 'how it ended is unknown'}.",
            what_to_do or "Look at its log, and at that of its nanny: it has the exit code.",
            keys=keys,
            waiting=tasks,
            worker=first.worker,
        )


def blocked_loops(state: ClusterState) -> Iterator[Cause]:
    """Find workers whose event loop does not turn."""
    for worker in state.workers:
        if (
            worker.loop_blocked >= _BLOCKED
            and worker.answered is not False
            and worker.status != "lost"
        ):
            yield Cause(
                "loop-blocked",
                "certain",
                f"The event loop of {worker.worker} has not turned for "
                f"{format_duration(worker.loop_blocked)}.",
                f"It was at {describe_stack(worker.loop_stack)}. Meanwhile the worker takes no "
                "task, sends no result and no heartbeat.",
                "Move what blocks to a thread: coroutines must await, not sleep or compute.",
                keys=worker.processing_keys,
                waiting=worker.processing,
                worker=worker.worker,
                line=user_line(worker.loop_stack),
                seconds=worker.loop_blocked,
            )


#: Seconds from which a task that sleeps, and one that computes, is worth a word.
_SLEEPING, _RUNNING = 3.0, 5.0


def sleeping_tasks(state: ClusterState) -> Iterator[Cause]:
    """Find tasks whose thread sleeps, outside of Dask's own calls."""
    for line, tasks in _by_line(state, "sleeping", _SLEEPING).items():
        first = tasks[0]
        yield _cause(
            "sleeping",
            tasks,
            line,
            "sleeps",
            f"{_places(tasks)}. A lock of the process, a socket without a time-out, a subprocess "
            "and sleep() look alike; no progress was seen, and whether it comes is unknown.",
            "Look at what the line waits for, and give it a time-out."
            + (" Threads of one worker may wait for each other." if len(tasks) > 1 else ""),
            first,
        )


def running_tasks(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that run in one line for long."""
    for line, tasks in _by_line(state, "running", _RUNNING).items():
        first = tasks[0]
        used = "" if first.cpu is None else f" It used {format_duration(first.cpu)} of CPU."
        yield _cause(
            "running",
            tasks,
            line,
            "runs",
            f"{_places(tasks)}.{used} An endless loop and a long computation look alike.",
            f"If {first.function} usually ends sooner, look at that line and at this task's input.",
            first,
        )


def fetching_tasks(state: ClusterState) -> Iterator[Cause]:
    """Find tasks whose inputs do not arrive."""
    late = [
        task
        for task in state.tasks
        if task.state == "fetching" and task.seconds is not None and task.seconds >= _RUNNING
    ]
    if late:
        first = late[0]
        yield Cause(
            "fetching",
            "open",
            f"{count_of(len(late), 'task')} of {first.worker} wait for their inputs from other "
            f"workers since {format_duration(min(task.seconds or 0.0 for task in late))}.",
            f"{name_some([task.key for task in late])} need "
            f"{name_some(list(first.activity.waits_keys)) or 'unknown results'}.",
            "Look at the workers that hold these results: busy, silent or cut off.",
            keys=tuple(task.key for task in late),
            waiting=len(late),
            function=first.function,
            worker=first.worker,
        )


def _by_line(
    state: ClusterState, thread_state: str, older_than: float
) -> dict[str | None, list[TaskUnderWay]]:
    """Group the tasks that are in no call of Dask's by the user's line that they are in."""
    found: dict[str | None, list[TaskUnderWay]] = {}
    for task in state.tasks:
        activity = task.activity
        if (
            activity.waits_in is None
            and activity.thread_state == thread_state
            and (task.seconds is None or task.seconds >= older_than)
        ):
            found.setdefault(user_line(activity.stack), []).append(task)
    return found


def _cause(  # noqa: PLR0917
    kind: str,
    tasks: list[TaskUnderWay],
    line: str | None,
    verb: str,
    evidence: str,
    suggestion: str,
    first: TaskUnderWay,
) -> Cause:
    seconds = min((task.seconds for task in tasks if task.seconds is not None), default=None)
    if len(tasks) > 1:
        who, verb = f"{count_of(len(tasks), 'task')} of {first.function}", verb.removesuffix("s")
    else:
        who = elide(first.key, 60)
    return Cause(
        kind,
        "open",
        f"{who} {verb}{f' in {line}' if line else ''}{since(tasks)}.",
        evidence,
        suggestion,
        keys=tuple(task.key for task in tasks),
        waiting=len(tasks),
        function=first.function,
        worker=first.worker,
        line=line,
        seconds=seconds,
    )


def _places(tasks: list[TaskUnderWay]) -> str:
    first = tasks[0]
    keys = name_some([task.key for task in tasks])
    return f"{keys} on {first.worker}, at {describe_stack(first.activity.stack)}"
