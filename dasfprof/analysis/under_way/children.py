"""Causes: tasks that wait for tasks which they submitted themselves."""

from __future__ import annotations

from collections.abc import Iterator

from dasfprof.analysis.under_way.cause import Cause
from dasfprof.analysis.under_way.lines import describe_stack, name_some, since, user_line
from dasfprof.analysis.under_way.state import ClusterState, TaskUnderWay
from dasfprof.text import count_of, elide

#: Calls that wait for futures.
FUTURE_CALLS = ("gather", "result", "wait", "as_completed")
_LONG = 3.0


def parents(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that wait for futures, in threads that those may need."""
    waiting = [
        task
        for task in state.tasks
        if task.activity.waits_in in FUTURE_CALLS and (task.seconds or _LONG) >= _LONG
    ]
    holding = [task for task in waiting if task.state == "executing" and task.thread is not None]
    if not holding:
        yield from map(_waits_for_futures, waiting)
        return
    threads = sum(worker.threads for worker in state.workers if worker.status != "lost")
    running = {task.key for task in state.tasks}
    children = sorted({key for task in holding for key in task.activity.waits_keys} - running)
    first = holding[0]
    if threads and len(holding) >= threads:
        yield Cause(
            "threads-held-by-parents",
            "likely",
            f"{count_of(len(holding), 'task')} of {first.function} hold all "
            f"{count_of(threads, 'thread')} of the cluster and wait for tasks that they submitted, "
            "which have no thread to run on.",
            f"{name_some([task.key for task in holding])} wait in {first.activity.waits_in} for "
            f"{count_of(len(children), 'task')} ({name_some(children)}), at "
            f"{describe_stack(first.activity.stack)}.",
            "Call `with worker_client() as client:` in place of get_client(), or secede() before "
            "waiting (and rejoin() after): the thread is free for the children meanwhile.",
            keys=tuple(task.key for task in holding),
            waiting=len(holding) + len(children),
            function=first.function,
            worker=first.worker,
            line=user_line(first.activity.stack),
            seconds=min((task.seconds or 0.0) for task in holding),
        )
        return
    yield from map(_waits_for_futures, waiting)


def _waits_for_futures(task: TaskUnderWay) -> Cause:
    keys = task.activity.waits_keys
    held = " It holds a thread meanwhile." if task.state == "executing" else ""
    return Cause(
        "futures-wait",
        "open",
        f"{elide(task.key, 60)} waits for {count_of(len(keys), 'future')}{since([task])}.",
        f"In {task.activity.waits_in} on {task.worker}, for {name_some(list(keys)) or 'unknown'}, "
        f"at {describe_stack(task.activity.stack)}.{held}",
        "Look at the tasks that it waits for; `worker_client()` frees the thread meanwhile.",
        keys=(task.key,),
        waiting=1,
        function=task.function,
        worker=task.worker,
        line=user_line(task.activity.stack),
        seconds=task.seconds,
    )
