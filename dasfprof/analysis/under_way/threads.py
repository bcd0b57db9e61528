"""Causes: threads that sleep or run in one line for long. A healthy task may do so as well."""

from __future__ import annotations

from collections.abc import Iterator

from dasfprof.analysis.under_way.cause import Cause
from dasfprof.analysis.under_way.lines import describe_stack, name_some, since, user_line
from dasfprof.analysis.under_way.state import ClusterState, TaskUnderWay
from dasfprof.text import count_of, elide, format_duration

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
