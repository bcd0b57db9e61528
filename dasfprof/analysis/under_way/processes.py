"""Causes about processes that do not answer and tasks that do not end, and texts about exits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from dasfprof.analysis.model.memory_kills import MemoryKill, Reason
from dasfprof.analysis.run.worker_exits import Departure, Why
from dasfprof.analysis.under_way.primitives import HOLDER_DIED, held_locks
from dasfprof.analysis.under_way.state import (
    Cause,
    ClusterState,
    ProcessState,
    TaskUnderWay,
    WorkerNow,
    describe_stack,
    name_some,
    since,
    user_line,
)
from dasfprof.analysis.wording import Certainty
from dasfprof.text import count_of, elide, format_duration

#: Threshold (seconds): a worker without a heartbeat for this long is silent. Dask sends a heartbeat
#: every 0.5 to 5 seconds.
_SILENT = 10.0
#: Threshold (seconds): an event loop counts as blocked. On a busy host, healthy loops pause too.
_BLOCKED = 10.0


#: Certainty, reason and advice, by the state of the scheduler's process.
_WHY_SCHEDULER_SILENT: dict[ProcessState | None, tuple[Certainty, str, str]] = {
    "stopped": (
        "certain",
        "its process is stopped (SIGSTOP, a debugger, or a frozen container)",
        "Continue the process (kill -CONT).",
    ),
    "busy": (
        "likely",
        "one thread computes and no other runs, as with a large graph or a plugin that computes",
        "Wait some seconds and repeat the check. If nothing has changed, check its stacks: "
        "`py-spy dump --pid` shows them without its help.",
    ),
    None: (
        "likely",
        "it may be frozen, overloaded, or cut off by the network",
        "Make sure that the address is the scheduler's and not that of its dashboard. Check its "
        "process and host: `py-spy dump --pid` shows its stacks without its help.",
    ),
}


def silent_scheduler(state: ClusterState) -> Iterator[Cause]:
    """Yield a cause if the scheduler does not answer, or if its event loop is blocked."""
    if state.scheduler_answered is False:
        certainty, why, suggestion = _WHY_SCHEDULER_SILENT.get(
            state.scheduler_process, _WHY_SCHEDULER_SILENT[None]
        )
        yield Cause(
            "scheduler-silent",
            certainty,
            f"The scheduler does not answer: {why}.",
            "Meanwhile, workers can neither get tasks nor report results.",
            suggestion,
            waiting=state.unfinished or 0,
        )
    elif state.scheduler_blocked >= _BLOCKED:
        yield Cause(
            "scheduler-blocked",
            "certain",
            "The scheduler's event loop has been blocked for "
            f"{format_duration(state.scheduler_blocked)}.",
            f"It was at {describe_stack(state.scheduler_stack)}.",
            "Move work that blocks the scheduler elsewhere: plugins, callbacks, "
            "run_on_scheduler, and large graphs.",
            waiting=state.unfinished or 0,
            line=user_line(state.scheduler_stack),
            seconds=state.scheduler_blocked,
        )


def dead_scheduler(state: ClusterState) -> Iterator[Cause]:
    """Yield a cause if the scheduler's process ended while other processes continued."""
    if state.scheduler_answered is None and state.scheduler_process == "gone":
        yield Cause(
            "scheduler-gone",
            "certain",
            "The scheduler's process ended without closing its file.",
            "It is not known whether it was killed or ended by itself. Workers closed their "
            "files after it.",
            "Check its log and the kernel log (out of memory?), and what may have ended it.",
        )


def silent_workers(state: ClusterState) -> Iterator[Cause]:
    """Find workers that do not answer, and the tasks that they had."""
    for worker in state.workers:
        if worker.status == "lost" or not (worker.answered is False or worker.silent >= _SILENT):
            continue
        tasks = [task for task in state.tasks if task.worker == worker.worker]
        keys = tuple(task.key for task in tasks) or worker.processing_keys
        why, suggestion = _WHY_SILENT[worker.process_state]
        silence = f" (for {format_duration(worker.silent)})" if worker.silent >= 1 else ""
        # A healthy worker may not answer for a short time if its host is overloaded or if C code
        # holds the GIL.
        certainty: Certainty = "likely" if worker.silent >= _SILENT else "possible"
        certainty = "certain" if worker.process_state in ("stopped", "gone") else certainty
        yield Cause(
            "worker-silent",
            certainty,
            f"{worker.worker} does not answer{silence}: {why}.",
            f"It has {count_of(worker.processing, 'task')}: {name_some(keys) or 'none known'}. "
            f"{_last_seen(tasks, worker)}",
            suggestion,
            keys=keys,
            waiting=max(worker.processing, len(keys)),
            function=tasks[0].function if tasks else None,
            worker=worker.worker,
            line=user_line(tasks[0].activity.stack) if tasks else user_line(worker.loop_stack),
            seconds=worker.silent or None,
        )


#: Reason and advice, by the state of the worker's process.
_WHY_SILENT: dict[ProcessState | None, tuple[str, str]] = {
    "stopped": (
        "its process is stopped (SIGSTOP, a debugger, or a frozen container)",
        "Continue the process (kill -CONT), or end it so that its tasks are sent to other workers.",
    ),
    "gone": (
        "its process has ended",
        "Check its log and the kernel log (out of memory?). Its tasks are sent to other workers "
        "after distributed.scheduler.worker-ttl.",
    ),
    "busy": (
        "one thread computes and no other runs, as when a C extension holds the GIL",
        "Make the extension release the GIL, call it in a subprocess, or give each worker one "
        "thread and set a longer distributed.scheduler.worker-ttl.",
    ),
    "idle": (
        "all its threads sleep, as when a C extension waits while it holds the GIL",
        "Make the extension release the GIL while it waits. `py-spy dump --pid` shows its stacks "
        "without its help.",
    ),
    None: (
        "it may be frozen, cut off by the network, or overloaded, or a C extension may hold the "
        "GIL",
        "Check its host and log. `py-spy dump --pid` shows its stacks without its help.",
    ),
}


def _last_seen(tasks: list[TaskUnderWay], worker: WorkerNow) -> str:
    if tasks:
        return f"Last seen at {describe_stack(tasks[0].activity.stack)}."
    if worker.loop_stack:
        return f"Its event loop was last seen at {describe_stack(worker.loop_stack)}."
    return "Its stack was not recorded."


def workers_lost_with_tasks(state: ClusterState) -> Iterator[Cause]:
    """Find workers that left unexpectedly while they had tasks.

    Workers that ended in the same way, and for which the advice is the same, share one `Cause`.
    """
    # If a worker's task held a lock, `held_locks` reports the worker instead.
    holders = {cause.worker for cause in held_locks(state) if cause.kind == HOLDER_DIED}
    groups: dict[tuple[str, str], list[WorkerNow]] = {}
    for worker in state.workers:
        had = worker.processing or worker.processing_keys
        if worker.status == "lost" and had and worker.worker not in holders:
            groups.setdefault((worker.exit_clause, worker.exit_advice), []).append(worker)
    for (clause, what_to_do), workers in groups.items():
        every = [key for worker in workers for key in worker.processing_keys]
        keys, first = tuple(dict.fromkeys(every)), workers[-1]
        tasks = sum(worker.processing for worker in workers) - len(every) + len(keys)
        single = len(workers) == 1
        who = first.worker if single else count_of(len(workers), "worker")
        yield Cause(
            "worker-lost",
            "certain",
            f"{who} {'was' if single else 'were'} lost with {count_of(tasks, 'task')}"
            f"{f', {clause}' if clause else ''}.",
            f"{name_some(keys) or 'Its tasks are unknown'}. {'' if single else 'The last one was '}"
            f"{first.worker}: {first.exit or 'how it ended is unknown'}.",
            what_to_do or "Check its log and the log of its nanny, which has the exit code.",
            keys=keys,
            waiting=tasks,
            worker=first.worker,
        )


def blocked_loops(state: ClusterState) -> Iterator[Cause]:
    """Find workers whose event loop is blocked."""
    for worker in state.workers:
        answers = worker.answered is not False and worker.status != "lost"
        if answers and worker.loop_blocked >= _BLOCKED:
            yield Cause(
                "loop-blocked",
                "certain",
                f"The event loop of {worker.worker} has been blocked for "
                f"{format_duration(worker.loop_blocked)}.",
                f"It was at {describe_stack(worker.loop_stack)}. Meanwhile, the worker receives "
                "no tasks and sends neither results nor heartbeats.",
                "Move blocking code to a thread: coroutines must await, and must not sleep or "
                "compute.",
                keys=worker.processing_keys,
                waiting=worker.processing,
                worker=worker.worker,
                line=user_line(worker.loop_stack),
                seconds=worker.loop_blocked,
            )


#: Thresholds (seconds): minimum time of sleeping tasks, and of running tasks, that are reported.
_SLEEPING, _RUNNING = 3.0, 5.0


def sleeping_tasks(state: ClusterState) -> Iterator[Cause]:
    """Find tasks whose thread sleeps outside of Dask's calls that wait."""
    for tasks in _by_line(state, "sleeping", _SLEEPING):
        yield _cause(
            "sleeping",
            tasks,
            "sleeps",
            f"{_places(tasks)}. No progress was seen so far. A lock of the process, a socket "
            "without a timeout, a subprocess and sleep() look the same.",
            "Check what this line waits for, and give it a timeout."
            + (" Threads of one worker may wait for each other." if len(tasks) > 1 else ""),
        )


def running_tasks(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that have been running at the same line for a long time."""
    for tasks in _by_line(state, "running", _RUNNING):
        first = tasks[0]
        used = "" if first.cpu is None else f" It used {format_duration(first.cpu)} of CPU."
        yield _cause(
            "running",
            tasks,
            "runs",
            f"{_places(tasks)}.{used} An endless loop and a long computation look the same.",
            f"Check this line and this task's input, if {first.function} usually takes less time.",
        )


def fetching_tasks(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that have long been waiting for their inputs to arrive."""
    late = [
        task
        for task in state.tasks
        if task.state == "fetching" and task.seconds is not None and task.seconds >= _RUNNING
    ]
    if late:
        first = late[0]
        yield Cause.of_tasks(
            late,
            "fetching",
            "possible",
            f"{count_of(len(late), 'task')} of {first.worker} have been waiting for inputs from "
            f"other workers for {format_duration(min(task.seconds or 0.0 for task in late))}.",
            f"{name_some([task.key for task in late])} need "
            f"{name_some(list(first.activity.waits_keys)) or 'unknown results'}.",
            "Check whether the workers that hold these results are busy, silent or cut off.",
            line=None,
            seconds=None,
        )


def _by_line(
    state: ClusterState, thread_state: str, older_than: float
) -> Iterable[list[TaskUnderWay]]:
    """Group the tasks whose thread has the given state by the user's line that they execute.

    Tasks that have run for less than `older_than` seconds, or that wait in Dask's calls, are left
    out.
    """
    by_line: dict[str | None, list[TaskUnderWay]] = {}
    for task in state.tasks:
        activity, long = task.activity, task.seconds is None or task.seconds >= older_than
        if long and activity.waits_in is None and activity.thread_state == thread_state:
            by_line.setdefault(user_line(activity.stack), []).append(task)
    return by_line.values()


def _cause(
    kind: str, tasks: list[TaskUnderWay], verb: str, evidence: str, suggestion: str
) -> Cause:
    first, line = tasks[0], user_line(tasks[0].activity.stack)
    if len(tasks) > 1:
        who, verb = f"{count_of(len(tasks), 'task')} of {first.function}", verb.removesuffix("s")
    else:
        who = elide(first.key, 60)
    text = f"{who} {verb}{f' in {line}' if line else ''}{since(tasks)}."
    return Cause.of_tasks(tasks, kind, "possible", text, evidence, suggestion)


def _places(tasks: list[TaskUnderWay]) -> str:
    first = tasks[0]
    keys = name_some([task.key for task in tasks])
    return f"{keys} on {first.worker}, at {describe_stack(first.activity.stack)}"


#: Threshold (fraction of the memory limit): a process that used less was far from its limit.
#: Between two samples, a process may allocate as much memory as it had.
_FAR = 0.5
#: Clauses about how workers ended, which follow a noun and its verb.
_CLAUSES = {
    Why.SILENT: "abandoned by the scheduler because it received no heartbeat for longer than "
    "distributed.scheduler.worker-ttl",
    Why.MEMORY: "killed because memory ran out",
    Why.CRASH: "killed by a crash",
    Why.ERROR: "lost just after an error in Dask's log on that worker",
    Why.STATUS: "lost because the process ended by itself",
    Why.AGE: "killed or lost at the same age of {} to {}, which suggests a time limit of a batch "
    "system, a lifetime or a script",
    Why.UNKNOWN: "{}, for an unknown reason",
}
#: Additional advice about Dask's own tasks that need too much memory, by a part of their names.
_OF_DASK = {
    "parquet": " Tasks that read Parquet make partitions of at least one row group. If row "
    "groups are too large, write smaller ones (row_group_size=). "
    "split_row_groups=True makes one partition per row group.",
    "rechunk": " Tasks of a rechunk merge chunks: if a new chunk covers an entire axis, it is as "
    "large as all old chunks along this axis together. Use several chunks along that axis, or "
    "smaller chunks along the others.",
    "repartitiontofewer": " Such tasks merge partitions of a dataframe: compute() merges all of "
    "them on one worker, and repartition() as many as requested. Reduce "
    "the frame first, write it from the tasks (to_parquet()), or fetch the "
    "partitions separately: dask.compute(*frame.to_delayed()).",
}


def clause(departures: list[Departure]) -> str:
    """Return a clause about how workers ended, with counts if they ended in different ways."""
    whys = Counter(departure.why for departure in departures).most_common()
    # Why.AGE comes first, because it shows that the tasks did not cause the exits.
    whys.sort(key=lambda each: each[0] is not Why.AGE)
    ages = next(
        (map(format_duration, departure.ages) for departure in departures if departure.ages), ()
    )
    known = {departure.words for departure in departures if departure.why is Why.UNKNOWN}
    signal = known.pop() if len(known) == 1 else ""
    how = signal if signal.startswith("killed by ") else "killed or lost"
    given = {Why.AGE: ages, Why.UNKNOWN: (how,)}
    clauses = {why: _CLAUSES[why].format(*given.get(why, ())) for why, _ in whys}
    if len(whys) == 1:
        return clauses[whys[0][0]]
    return ", or ".join(f"{clauses[why]} ({number})" for why, number in whys)


def in_words(departure: Departure) -> str:
    """Return everything that is known about a worker's exit, or "" if nothing is known."""
    return "; ".join(filter(None, (departure.words, departure.evidence)))


def suspicion(kill: MemoryKill) -> str:
    """Return a sentence about the function that used a killed worker's memory."""
    what = "The results of" if kill.reason is Reason.RESULTS else ""
    took = f"{what} {kill.suspect} took the memory".strip()
    sure = "" if kill.certainty == "certain" else f", {kill.certainty}"
    return f"{took}{sure}: {kill.reason.value}. See died_of_memory(). "


#: Advice by how workers ended. ``name`` is the function that was running.
_ADVICE = {
    Why.SILENT: "Make {name} release the GIL if it holds it (in C code), or call it in a "
    "subprocess. Or raise distributed.scheduler.worker-ttl above the longest time "
    "for which it blocks the worker. `py-spy dump --pid` shows what a silent worker "
    "does.",
    Why.MEMORY: "Reduce peak memory: use fewer threads per worker, so that fewer tasks like "
    "{name} run in parallel, use smaller chunks, or raise memory_limit. {name} was "
    "killed before it finished, so it needs at least the memory it had then.",
    Why.CRASH: "Run {name} alone with PYTHONFAULTHANDLER=1. The stack that this prints shows the "
    "library that crashes.",
    Why.ERROR: "Fix {error} on the workers, whose log has its traceback. Workers unpickle what "
    "they receive, so they need the same versions of all modules.",
    Why.STATUS: "Check {name} and its libraries for sys.exit() or os._exit(), and the last "
    "output of the process.",
    Why.AGE: "Request more time from the batch system (walltime= of dask-jobqueue), or let "
    "workers end in time. Start them with a --lifetime that is shorter by the duration "
    "of a few tasks, and with --lifetime-stagger, so that they can pass on their "
    "results.",
    Why.UNKNOWN: "Check the logs, since the trace does not show what ended the worker. The "
    "kernel log (dmesg) lists out-of-memory kills. The batch system, Kubernetes "
    "(kubectl describe pod), or the cloud provider logs the processes that they "
    "ended. The worker's log has its errors.",
}
_FILLED = (
    "Keep fewer results of {name} in memory: reduce or write them in the tasks, delete futures "
    "that are no longer needed, or use more workers. Let Dask spill, if "
    "distributed.worker.memory.target or .spill is off."
)


def advice(departure: Departure, function: str | None, *, fills: bool = False) -> str:
    """Return advice about workers that ended as in `departure` while they ran tasks of a function.

    If `fills`, the results of the function filled the memory.
    """
    name, why = function or "the task", departure.why
    fills = fills and why is Why.MEMORY
    words = (_FILLED if fills else _ADVICE[why]).format(name=name, error=departure.error)
    if why is Why.MEMORY and not fills:
        words += next((more for word, more in _OF_DASK.items() if word in name), "")
    if why is Why.UNKNOWN and departure.memory < _FAR * departure.limit:
        words += " Memory did not run out as far as is known: the worker was far from its limit."
    return words
