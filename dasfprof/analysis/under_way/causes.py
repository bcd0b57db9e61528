"""`find_causes`: why work does not end; and causes of tasks that wait for others, or failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd

from dasfprof.analysis.run.worker_exits import is_persons
from dasfprof.analysis.under_way import primitives, processes
from dasfprof.analysis.under_way.state import (
    CERTAINTIES,
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
from dasfprof.text import clean, count_of, elide, format_duration, format_size

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
        f"{count_of(len(holding), 'task')} of {first.function} hold all "
        f"{count_of(threads, 'thread')} of the cluster and wait for tasks that they submitted, "
        "which have no thread to run on.",
        f"{name_some([task.key for task in holding])} wait in {first.activity.waits_in} for "
        f"{count_of(len(children), 'task')} ({name_some(children)}), at "
        f"{describe_stack(first.activity.stack)}.",
        "Call `with worker_client() as client:` in place of get_client(), or secede() before "
        "waiting (and rejoin() after): the thread is free for the children meanwhile.",
        waiting=len(holding) + len(children),
        seconds=min((task.seconds or 0.0) for task in holding),
    )


def _waits_for_futures(task: TaskUnderWay) -> Cause:
    keys = task.activity.waits_keys
    held = " It holds a thread meanwhile." if task.state == "executing" else ""
    return Cause.of_tasks(
        [task],
        "futures-wait",
        "open",
        f"{elide(task.key, 60)} waits for {count_of(len(keys), 'future')}{since([task])}.",
        f"In {task.activity.waits_in} on {task.worker}, for {name_some(list(keys)) or 'unknown'}, "
        f"at {describe_stack(task.activity.stack)}.{held}",
        "Look at the tasks that it waits for; `worker_client()` frees the thread meanwhile.",
    )


#: Seconds that a cluster without workers may take to get some.
_STARTING = 60.0
#: The share of paused workers' memory that is Dask's results, below which freeing these is no help.
_OF_RESULTS = 0.5


def unmet_restrictions(state: ClusterState) -> Iterator[Cause]:
    """Find tasks with a restriction that no worker meets."""
    groups: dict[tuple[str, str], list[HeldBackTask]] = {}
    for task in state.held_back:
        groups.setdefault((task.unmet, task.function), []).append(task)
    for (unmet, function), tasks in groups.items():
        if not unmet:
            continue
        seconds = min((task.seconds for task in tasks if task.seconds is not None), default=None)
        since = f" since {format_duration(seconds)}" if seconds is not None else ""
        empty = not state.workers
        total = state.counts.get(function, {}).get("no-worker", len(tasks))
        asked = ", ".join(f"{name} {value}" for name, value in tasks[0].restrictions.items())
        yield Cause(
            "no-worker",
            "open" if empty and (seconds or 0.0) < _STARTING else "certain",
            f"{count_of(total, 'task')} of {function} cannot run{since}: {unmet}.",
            f"{name_some([task.key for task in tasks])}"
            f"{f' ask for {asked}' if asked else ''}; the cluster has "
            f"{count_of(len(state.workers), 'worker')}.",
            "Start a worker that has what they ask for, or ask for what there is (resources=, "
            "workers=, annotations). Dask waits without an end and without a message.",
            keys=tuple(task.key for task in tasks),
            waiting=total,
            function=function,
            seconds=seconds,
        )


def paused_workers(state: ClusterState) -> Iterator[Cause]:
    """Find that all workers are paused, so that none starts a task."""
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
        f"All {count_of(len(paused), 'worker')} of the cluster are paused for memory, and "
        f"{count_of(state.unfinished, 'task')} wait.",
        f"Memory: {usage or 'unknown'}."
        + (f" Dask's results are {format_size(results)} of that." if measured else ""),
        "Look for what tasks leave behind in their processes: module globals, caches, open files "
        "and figures, memory that the allocator keeps (MALLOC_TRIM_THRESHOLD_). Dask can neither "
        "spill nor free it: unless a running task does, these workers stay paused until they are "
        "restarted."
        if left_behind
        else "Free results that are no longer needed (del futures, smaller chunks), raise "
        "memory_limit, or add workers. A leak outside of Dask's results is not spilled.",
        waiting=state.unfinished,
    )


def unknown_to_worker(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that are processing on a worker which knows nothing of them."""
    for worker in state.workers:
        if worker.known is None or not worker.answered:
            continue
        missing = [key for key in worker.processing_keys if key not in worker.known]
        if missing:
            yield Cause(
                "views-differ",
                "likely",
                f"The scheduler waits for {count_of(len(missing), 'task')} on {worker.worker} that "
                "the worker knows nothing of.",
                f"The scheduler: {name_some(missing)} processing on {worker.address}. The worker: "
                f"{count_of(len(worker.known), 'task')}, none of these.",
                "A message between them was lost: retire or restart that worker, and its tasks are "
                "sent anew. Report it to Dask with a dump (Client.dump_cluster_state).",
                keys=tuple(missing),
                waiting=len(missing),
                worker=worker.worker,
            )


#: Seconds after the last task's end from which a client counts as being elsewhere.
_IDLE = 5.0


#: Dask's words for a task that was lost with one worker.
_ALONE = " on 1 different workers"


def killed_workers(state: ClusterState) -> Iterator[Cause]:
    """Find tasks under which one worker after the other died; those of one death together."""
    together: dict[Any, list[FailedTask]] = {}
    for task in state.failed:
        if _is_killed_worker(task):
            death = (task.worker, task.died_of, _ALONE in task.message)
            together.setdefault(death if task.worker else task.key, []).append(task)
    for tasks in together.values():
        yield _killed_together(sorted(tasks, key=lambda task: task.function != task.suspect))


def _killed_together(tasks: list[FailedTask]) -> Cause:
    """Return why tasks were given up whose workers died; the first is the suspected one."""
    task, alone, keys = tasks[0], _ALONE in tasks[0].message, [task.key for task in tasks]
    several = len(tasks) > 1
    subject = f"{len(tasks):,} tasks were" if several else f"{elide(task.key, 60)} was"
    died = f"{'was' if alone else 'were'} {task.died_of}" if task.died_of else "died"
    who = f"{'worker' if alone else 'workers'} that had {'them' if several else 'it'} {died}"
    named = f"{name_some(keys)}. " if several else ""
    return Cause(
        "killed-worker-errors",
        "certain",
        f"{subject} given up: the {who}{'' if alone else ', one after the other'}.",
        f"{named}{task.suspicion}The client got: {elide(clean(task.message), 300)}",
        task.advice
        or f"Run {task.function} alone on that input, and look at how its process ends: "
        "their nannies log the exit code or signal, the kernel kills for want of memory.",
        keys=tuple(keys),
        waiting=len(tasks) + sum(task.dependents or 0 for task in tasks),
        function=task.function,
        worker=task.worker,
    )


def errors(state: ClusterState) -> Iterator[Cause]:
    """Find errors because of which other tasks never run."""
    failed = [task for task in state.failed if not _is_killed_worker(task)]
    for task in failed[:5]:
        never_ran = count_of(task.dependents or 0, "task")
        never_ran = f", and {never_ran} that depend on it never ran" if task.dependents else ""
        yield Cause(
            "error",
            "certain",
            f"{elide(task.key, 60)} ended in an error{never_ran}.",
            f"{elide(clean(task.message), 300)}",
            f"Mend {task.function}, or give retries= where the error passes by itself.",
            keys=(task.key,),
            waiting=1 + (task.dependents or 0),
            function=task.function,
            worker=task.worker,
        )


def _is_killed_worker(task: FailedTask) -> bool:
    return task.message.startswith("KilledWorker")


def clients_elsewhere(state: ClusterState) -> Iterator[Cause]:
    """Find clients that do something else although all tasks have ended."""
    if state.unfinished != 0 or (state.quiet or 0.0) < _IDLE:
        return
    ago = format_duration(state.quiet or 0.0)
    for client in state.clients:
        if client.activity is None:
            if state.scheduler_answered and is_persons(client.client):
                yield _holds_results(client, ago, state.quiet)
        elif client.activity.stack:
            yield _is_at(client, client.activity, ago, state.quiet)


def _is_at(client: ClientNow, activity: Activity, ago: str, quiet: float | None) -> Cause:
    """Name the line of a client that is recorded."""
    waits, keys = activity.waits_in in FUTURE_CALLS, activity.waits_keys
    if waits and keys and client.wants_nothing:
        return Cause(
            "lost-keys",
            "likely",
            f"The client waits in {activity.waits_in} for {count_of(len(keys), 'result')} that the "
            f"scheduler does not know of: {name_some(list(keys))}.",
            f"{_nothing_left(ago)} the scheduler keeps no result for this client, nor computes "
            f"one. Its main thread is at {describe_stack(activity.stack)}.",
            "Nothing computes what was released or never submitted: keep the futures of results "
            "that are asked for later, publish_dataset() what other clients ask for, and give "
            "waits a timeout.",
            keys=tuple(keys),
            waiting=len(keys),
            line=user_line(activity.stack),
            seconds=quiet,
        )
    unchanged = client.unchanged or 0.0
    for_long = f", for the last {format_duration(unchanged)}" if unchanged >= _IDLE else ""
    return Cause(
        "client-elsewhere",
        "open",
        f"{_nothing_left(ago)} the client "
        f"{'waits in ' + str(activity.waits_in) if waits else 'does something else'}.",
        f"Its main thread is at {describe_stack(activity.stack)}{for_long}; the cluster "
        f"keeps {count_of(client.wanted, 'result')} for it.",
        "These results may be on their way: client_calls() tells how many bytes of them came, and "
        "for how long. Where many do, reduce or store them on the cluster."
        if waits and client.wanted
        else "Look at that line of the program: meanwhile the cluster has nothing to do. What it "
        "works out of results, tasks could, next to them.",
        line=user_line(activity.stack),
        seconds=quiet,
    )


def _nothing_left(ago: str) -> str:
    return f"The cluster has had nothing to do for the last {ago}, as all tasks have ended:"


def _holds_results(client: ClientNow, ago: str, quiet: float | None) -> Cause:
    """Name a client that is connected: only its own process knows what it does meanwhile."""
    holds = f"has not given up {count_of(client.wanted, 'result')}"
    return Cause(
        "client-elsewhere",
        "open",
        f"{_nothing_left(ago)} {elide(client.client, 60)} "
        f"{holds if client.wanted else 'is connected and asks for no result'}.",
        "The cluster does not know what that program does.",
        "If the program should go on: look at what its main thread does (py-spy dump --pid PID on "
        "its host). Of a run that is recorded, dasfprof watch and diagnose() tell.",
        seconds=quiet,
    )


# --- All causes, how certain they are, and as a table ---------------------------------------------

#: Each finds causes of one sort. Of equally grave ones the earlier function's come first.
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
    """Find why work does not end.

    Returns
    -------
    list of Cause
        What is certain or likely comes first, by the number of tasks that wait for it; then what
        is merely seen, in the same order. Empty if nothing is under way.
    """
    causes = [cause for find in FINDERS for cause in find(state)]
    # Stable sorts: equals stay in the order of their finders.
    causes.sort(key=lambda cause: (-cause.waiting, CERTAINTIES.index(cause.certainty)))
    return sorted(causes, key=lambda cause: cause.certainty == "open")


#: Labels and the fields of a cause.
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
    """Return a row for each cause, in their order."""
    rows = [[getattr(cause, name) for name in _COLUMNS.values()] for cause in causes]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)
    return frame.astype({"Waiting Tasks": "int64", "Time (s)": "float64"})
