"""`find_causes` returns the reasons why work does not finish, such as failed tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import is_program_client
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.analysis.under_way import primitives, processes
from dasfprof.analysis.under_way.from_trace import state_from_trace
from dasfprof.analysis.under_way.state import (
    Activity,
    Cause,
    ClientNow,
    ClusterState,
    FailedTask,
    HeldBackTask,
    TaskUnderWay,
    describe_stack,
    name_some,
    since,
    user_line,
)
from dasfprof.analysis.wording import CERTAINTIES
from dasfprof.text import clean, count_of, elide, format_duration, format_size

#: Client methods that wait for futures.
FUTURE_CALLS = ("gather", "result", "wait", "as_completed")
_LONG = 3.0


def parents(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that wait for futures.

    If such tasks occupy all threads of the cluster, the tasks of these futures cannot start.
    """
    waiting = [
        task
        for task in state.tasks
        if task.activity.waits_in in FUTURE_CALLS and (task.seconds or _LONG) >= _LONG
    ]
    holding = [task for task in waiting if task.state == "executing" and task.thread is not None]
    threads = sum(worker.threads for worker in state.workers if worker.status != "lost")
    if not holding or not 0 < threads <= len(holding):
        yield from map(_waits_for_futures, waiting)
        return
    running = {task.key for task in state.tasks}
    children = sorted({key for task in holding for key in task.activity.waits_keys} - running)
    first = holding[0]
    yield Cause.of_tasks(
        holding,
        "threads-held-by-parents",
        "likely",
        f"{count_of(len(holding), 'task')} of {first.function} occupy all "
        f"{count_of(threads, 'thread')} of the cluster and wait for tasks that they submitted, "
        "which have no thread to run on.",
        f"{name_some([task.key for task in holding])} wait in {first.activity.waits_in} for "
        f"{count_of(len(children), 'task')} ({name_some(children)}), at "
        f"{describe_stack(first.activity.stack)}.",
        "Use `with worker_client() as client:` instead of get_client(), or call secede() before "
        "waiting (and rejoin() after). The thread is then free for the submitted tasks.",
        waiting=len(holding) + len(children),
        seconds=min((task.seconds or 0.0) for task in holding),
    )


def _waits_for_futures(task: TaskUnderWay) -> Cause:
    keys = task.activity.waits_keys
    held = " It occupies a thread meanwhile." if task.state == "executing" else ""
    return Cause.of_tasks(
        [task],
        "futures-wait",
        "possible",
        f"{elide(task.key, 60)} waits for {count_of(len(keys), 'future')}{since([task])}.",
        f"In {task.activity.waits_in} on {task.worker}, for {name_some(list(keys)) or 'unknown'}, "
        f"at {describe_stack(task.activity.stack)}.{held}",
        "Check the tasks that it waits for. To free the thread meanwhile, use `worker_client()`.",
    )


#: Threshold (seconds): a cluster without workers may still be starting them.
_STARTING = 60.0
#: Threshold (fraction of the paused workers' memory): if results take less, releasing them does not
#: help.
_OF_RESULTS = 0.5


def unmet_restrictions(state: ClusterState) -> Iterator[Cause]:
    """Find tasks with restrictions that no worker meets."""
    groups: dict[tuple[str, str], list[HeldBackTask]] = {}
    for task in state.held_back:
        groups.setdefault((task.unmet, task.function), []).append(task)
    for (unmet, function), tasks in groups.items():
        if not unmet:
            continue
        seconds = min((task.seconds for task in tasks if task.seconds is not None), default=None)
        waited = f" (for {format_duration(seconds)})" if seconds is not None else ""
        empty = not state.workers
        total = state.counts.get(function, {}).get("no-worker", len(tasks))
        asked = ", ".join(f"{name} {value}" for name, value in tasks[0].restrictions.items())
        yield Cause(
            "no-worker",
            "possible" if empty and (seconds or 0.0) < _STARTING else "certain",
            f"{count_of(total, 'task')} of {function} cannot run{waited}: {unmet}.",
            f"{name_some([task.key for task in tasks])}{f' require {asked}' if asked else ''}. "
            f"The cluster has {count_of(len(state.workers), 'worker')}.",
            "Start a worker that meets the requirements, or change them (resources=, workers=, "
            "annotations). Dask waits without a time limit and without a message.",
            keys=tuple(task.key for task in tasks),
            waiting=total,
            function=function,
            seconds=seconds,
        )


def paused_workers(state: ClusterState) -> Iterator[Cause]:
    """Yield a cause if all workers are paused, so that no task can start."""
    workers = [worker for worker in state.workers if worker.status != "lost"]
    paused = [worker for worker in workers if worker.status == "paused"]
    if not paused or len(paused) < len(workers) or not state.unfinished:
        return
    known = [w for w in paused if w.memory is not None and w.memory_limit]
    usage = ", ".join(
        f"{w.worker} {format_size(w.memory or 0)} of {format_size(w.memory_limit or 0)}"
        for w in known[:3]
    )
    measured = [w for w in known if w.results is not None]
    results, memory = sum(w.results or 0 for w in measured), sum(w.memory or 0 for w in measured)
    left_behind = bool(measured) and len(measured) == len(paused) and results < _OF_RESULTS * memory
    yield Cause(
        "all-paused",
        "certain",
        f"All {count_of(len(paused), 'worker')} of the cluster are paused because of memory, and "
        f"{count_of(state.unfinished, 'task')} wait.",
        f"Memory: {usage or 'unknown'}."
        + (f" Results of tasks are {format_size(results)} of this." if measured else ""),
        "Check what tasks leave behind in their processes: module globals, caches, open files "
        "and figures, or memory that the allocator keeps (MALLOC_TRIM_THRESHOLD_). Dask can "
        "neither spill nor free it. Unless a running task frees it, these workers stay paused "
        "until they are restarted."
        if left_behind
        else "Release results that are no longer needed (del futures), use smaller chunks, raise "
        "memory_limit, or add workers. Memory that is not part of results cannot be spilled.",
        waiting=state.unfinished,
    )


def unknown_to_worker(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that the scheduler has assigned to a worker, but that the worker does not know."""
    for worker in state.workers:
        if worker.known is None or not worker.answered:
            continue
        missing = [key for key in worker.processing_keys if key not in worker.known]
        if missing:
            yield Cause(
                "views-differ",
                "likely",
                f"The scheduler waits for {count_of(len(missing), 'task')} on {worker.worker}, "
                f"but the worker does not know {'them' if len(missing) != 1 else 'it'}.",
                f"On the scheduler, {name_some(missing)} has the state processing on "
                f"{worker.address}. The worker knows {count_of(len(worker.known), 'task')}, and "
                "none of these.",
                "Retire or restart this worker, so that its tasks are sent again: a message "
                "between it and the scheduler was lost. Report it to Dask with a dump "
                "(Client.dump_cluster_state).",
                keys=tuple(missing),
                waiting=len(missing),
                worker=worker.worker,
            )


#: Threshold: seconds after the end of the last task from which on the client counts as busy with
#: something else.
_IDLE = 5.0


#: Part of Dask's message about a task, if only one worker died.
_ALONE = " on 1 different workers"


def killed_workers(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that were abandoned because several workers died while they had the tasks."""
    # Tasks that were abandoned because of the same deaths are one cause.
    together: dict[Any, list[FailedTask]] = {}
    for task in state.failed:
        if _is_killed_worker(task):
            death = (task.worker, task.died_of, _ALONE in task.message)
            together.setdefault(death if task.worker else task.key, []).append(task)
    for tasks in together.values():
        yield _killed_together(sorted(tasks, key=lambda task: task.function != task.suspect))


def _killed_together(tasks: list[FailedTask]) -> Cause:
    """Return the cause for tasks that were abandoned because of the same deaths of workers.

    The first of `tasks` is the one that is suspected of the deaths.
    """
    task, alone, keys = tasks[0], _ALONE in tasks[0].message, [task.key for task in tasks]
    several = len(tasks) > 1
    subject = f"{len(tasks):,} tasks were" if several else f"{elide(task.key, 60)} was"
    died = f"{'was' if alone else 'were'} {task.died_of}" if task.died_of else "died"
    who = f"{'worker' if alone else 'workers'} that had {'them' if several else 'it'} {died}"
    named = f"{name_some(keys)}. " if several else ""
    return Cause(
        "killed-worker-errors",
        "certain",
        f"{subject} abandoned by the scheduler: the {who}{'' if alone else ', one after another'}.",
        f"{named}{task.suspicion}Message to the client: {elide(clean(task.message), 300)}",
        task.advice
        or f"Run {task.function} alone on that input, and check how its process ends. The nanny "
        "logs the exit code or signal, and the kernel log shows out-of-memory kills.",
        keys=tuple(keys),
        waiting=len(tasks) + sum(task.dependents or 0 for task in tasks),
        function=task.function,
        worker=task.worker,
    )


def errors(state: ClusterState) -> Iterator[Cause]:
    """Find failed tasks and the tasks that cannot run because of their errors."""
    failed = [task for task in state.failed if not _is_killed_worker(task)]
    for task in failed[:5]:
        never_ran = count_of(task.dependents or 0, "task")
        never_ran = f", and {never_ran} that depend on it never ran" if task.dependents else ""
        yield Cause(
            "error",
            "certain",
            f"{elide(task.key, 60)} failed{never_ran}.",
            f"{elide(clean(task.message), 300)}",
            f"Fix {task.function}, or pass retries= if the error is temporary.",
            keys=(task.key,),
            waiting=1 + (task.dependents or 0),
            function=task.function,
            worker=task.worker,
        )


def _is_killed_worker(task: FailedTask) -> bool:
    return task.message.startswith("KilledWorker")


def clients_elsewhere(state: ClusterState) -> Iterator[Cause]:
    """Find clients that have not submitted new work since all tasks finished."""
    if state.unfinished != 0 or (state.quiet or 0.0) < _IDLE:
        return
    ago = format_duration(state.quiet or 0.0)
    for client in state.clients:
        if client.activity is None:
            if state.scheduler_answered and is_program_client(client.client):
                yield _holds_results(client, ago, state.quiet)
        elif client.activity.stack:
            yield _is_at(client, client.activity, ago, state.quiet)


def _is_at(client: ClientNow, activity: Activity, ago: str, quiet: float | None) -> Cause:
    """Return the cause to report if a client's activity is known, with the line that it executes.

    `quiet` is the number of seconds since a task last started or ended. `ago` is this duration as
    text, such as ``4.08 s``.
    """
    waits, keys = activity.waits_in in FUTURE_CALLS, activity.waits_keys
    if waits and keys and client.wants_nothing:
        return Cause(
            "lost-keys",
            "likely",
            f"The client waits in {activity.waits_in} for {count_of(len(keys), 'result')} that the "
            f"scheduler does not know of: {name_some(list(keys))}.",
            f"{_nothing_left(ago)} the scheduler neither keeps nor computes a result for this "
            f"client. Its main thread is at {describe_stack(activity.stack)}.",
            "Keep the futures of results that you need later, and use publish_dataset() for "
            "results that other clients need. Results that were released or never submitted are "
            "not computed. Pass a timeout to calls that wait.",
            keys=tuple(keys),
            waiting=len(keys),
            line=user_line(activity.stack),
            seconds=quiet,
        )
    unchanged = client.unchanged or 0.0
    for_long = f", for the last {format_duration(unchanged)}" if unchanged >= _IDLE else ""
    return Cause(
        "client-elsewhere",
        "possible",
        f"{_nothing_left(ago)} the client "
        f"{'waits in ' + str(activity.waits_in) if waits else 'does something else'}.",
        f"Its main thread is at {describe_stack(activity.stack)}{for_long}. The cluster keeps "
        f"{count_of(client.wanted, 'result')} for it.",
        "Check the bytes and seconds in client_calls(): these results may be in transit to the "
        "client. If they are large, reduce or store them on the cluster."
        if waits
        else f"Check {user_line(activity.stack)}: the cluster has nothing to do meanwhile. If the "
        "client processes results, do that in tasks.",
        line=user_line(activity.stack),
        seconds=quiet,
    )


def _nothing_left(ago: str) -> str:
    return f"All tasks finished {ago} ago and the cluster has had nothing to do since:"


def _holds_results(client: ClientNow, ago: str, quiet: float | None) -> Cause:
    """Return the cause to report if the activity of a connected client is unknown.

    For `ago` and `quiet`, see `_is_at`.
    """
    holds = f"still holds {count_of(client.wanted, 'result')}"
    return Cause(
        "client-elsewhere",
        "possible",
        f"{_nothing_left(ago)} {elide(client.client, 60)} "
        f"{holds if client.wanted else 'is connected and requests no result'}.",
        "The cluster does not know what that program does.",
        "Check what the program's main thread does, if it should continue (py-spy dump --pid PID "
        "on its host). For a recorded run, dasfprof watch and diagnose() show it.",
        seconds=quiet,
    )


#: Functions that each find one kind of cause. This is the order of causes of equal certainty.
FINDERS: tuple[Callable[[ClusterState], Iterator[Cause]], ...] = (
    processes.silent_scheduler,
    processes.dead_scheduler,
    primitives.lock_cycles,
    killed_workers,
    errors,
    unmet_restrictions,
    paused_workers,
    processes.silent_workers,
    processes.workers_lost_with_tasks,
    processes.blocked_loops,
    parents,
    unknown_to_worker,
    primitives.held_locks,
    primitives.unset_signals,
    processes.sleeping_tasks,
    processes.running_tasks,
    processes.fetching_tasks,
    clients_elsewhere,
)


def find_causes(state: ClusterState) -> list[Cause]:
    """Return the reasons why work does not finish.

    Causes that are merely possible come last. Otherwise, causes are sorted by the number of tasks
    that wait.
    """
    causes = [cause for find in FINDERS for cause in find(state)]
    # Sorts are stable, so equal causes remain in the order of `FINDERS`.
    causes.sort(key=lambda cause: (-cause.waiting, CERTAINTIES.index(cause.certainty)))
    return sorted(causes, key=lambda cause: cause.certainty == "possible")


@once_per_trace
def causes_of_run(run: Run) -> list[Cause]:
    """Return the reasons why the work of a run did not finish."""
    state = state_from_trace(run)
    return [] if state is None else find_causes(state)


#: Labels of columns, and the field of a cause that each column shows.
_COLUMNS = {
    "Certainty": "certainty",
    "Cause": "text",
    "Waiting Tasks": "waiting",
    "Time (s)": "seconds",
    "Function": "function",
    "Worker": "worker",
    "Line": "line",
    "Suggestion": "suggestion",
    "Evidence": "evidence",
    "Kind": "kind",
}


def causes_table(causes: Iterable[Cause]) -> pd.DataFrame:
    """Return a table of causes in the given order, with one row per cause."""
    rows = [[getattr(cause, name) for name in _COLUMNS.values()] for cause in causes]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)
    return frame.astype({"Waiting Tasks": "int64", "Time (s)": "float64"})
