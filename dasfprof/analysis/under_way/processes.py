"""Causes: silent or dead processes, threads that stay in one line; and how workers ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from dasfprof.analysis.model.memory_kills import Certainty as Sure
from dasfprof.analysis.model.memory_kills import MemoryKill, Reason
from dasfprof.analysis.run.worker_exits import Departure, Why
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
        why, suggestion = _WHY_SILENT[worker.process_state]
        since = f" since {format_duration(worker.silent)}" if worker.silent >= 1 else ""
        # A healthy one may not answer for a moment: as its host is overloaded, or C code runs.
        certainty: Certainty = "likely" if worker.silent >= _SILENT else "open"
        certainty = "certain" if worker.process_state in ("stopped", "gone") else certainty
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


#: By the state of its process.
_WHY_SILENT: dict[ProcessState | None, tuple[str, str]] = {
    "stopped": (
        "its process is stopped (SIGSTOP, a debugger, or a frozen container)",
        "Continue the process (kill -CONT), or end it: its tasks then go to other workers.",
    ),
    "gone": (
        "its process has ended",
        "Look at its log and the kernel's (out of memory?). Its tasks go to other workers once "
        "the scheduler gives it up (distributed.scheduler.worker-ttl).",
    ),
    "busy": (
        "one thread computes and no other turns, as when a C extension holds the GIL",
        "Let the extension release the GIL, call it in a subprocess, or give each worker one "
        "thread and a longer distributed.scheduler.worker-ttl.",
    ),
    "idle": (
        "all its threads sleep, as when a C extension waits and holds the GIL",
        "Let the extension release the GIL while it waits; `py-spy dump --pid` shows its stacks"
        " without its help.",
    ),
    None: (
        "it may be frozen, cut off by the network, overloaded, or a C extension holds the GIL",
        "Look at its host and log; `py-spy dump --pid` shows its stacks without its help.",
    ),
}


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
        there = worker.answered is not False and worker.status != "lost"
        if there and worker.loop_blocked >= _BLOCKED:
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
    for tasks in _by_line(state, "sleeping", _SLEEPING):
        yield _cause(
            "sleeping",
            tasks,
            "sleeps",
            f"{_places(tasks)}. A lock of the process, a socket without a time-out, a subprocess "
            "and sleep() look alike; no progress was seen, and whether it comes is unknown.",
            "Look at what the line waits for, and give it a time-out."
            + (" Threads of one worker may wait for each other." if len(tasks) > 1 else ""),
        )


def running_tasks(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that run in one line for long."""
    for tasks in _by_line(state, "running", _RUNNING):
        first = tasks[0]
        used = "" if first.cpu is None else f" It used {format_duration(first.cpu)} of CPU."
        yield _cause(
            "running",
            tasks,
            "runs",
            f"{_places(tasks)}.{used} An endless loop and a long computation look alike.",
            f"If {first.function} usually ends sooner, look at that line and at this task's input.",
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
        yield Cause.of_tasks(
            late,
            "fetching",
            "open",
            f"{count_of(len(late), 'task')} of {first.worker} wait for their inputs from other "
            f"workers since {format_duration(min(task.seconds or 0.0 for task in late))}.",
            f"{name_some([task.key for task in late])} need "
            f"{name_some(list(first.activity.waits_keys)) or 'unknown results'}.",
            "Look at the workers that hold these results: busy, silent or cut off.",
            line=None,
            seconds=None,
        )


def _by_line(
    state: ClusterState, thread_state: str, older_than: float
) -> Iterable[list[TaskUnderWay]]:
    """Group the tasks that are in no call of Dask's by the user's line that they are in."""
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
    return Cause.of_tasks(tasks, kind, "open", text, evidence, suggestion)


def _places(tasks: list[TaskUnderWay]) -> str:
    first = tasks[0]
    keys = name_some([task.key for task in tasks])
    return f"{keys} on {first.worker}, at {describe_stack(first.activity.stack)}"


# --- What is said of workers that were lost, and advised, by what proves how they ended -----------

#: The share of its limit that a process has to have left unused to be far from it: between samples
#: it may take as much as it had.
_FAR = 0.5
#: What ended workers, behind a noun and its verb.
_CLAUSES = {
    Why.SILENT: "given up by the scheduler, as no heartbeat came for longer than "
    "distributed.scheduler.worker-ttl",
    Why.MEMORY: "killed as memory ran out",
    Why.CRASH: "killed by a crash",
    Why.ERROR: "lost just after an error that Dask logged there",
    Why.STATUS: "lost as the process ended by itself",
    Why.AGE: "killed or lost at the same age of {} to {}, as by a time limit of a batch system, by "
    "a lifetime or by a script",
    Why.UNKNOWN: "{}, for an unknown reason",
}
#: What those of Dask's own tasks do whose names have a word, where they need too much memory.
_OF_DASK = {
    "parquet": " A partition that is read from Parquet has one row group of a file at least: where "
    "that is too large, write smaller ones (row_group_size=); split_row_groups=True has one in "
    "each.",
    "rechunk": " A task of a rechunk puts chunks together: one that has all of an axis is as large "
    "as all of them. Let that axis have several chunks, or cut the others smaller in return.",
    "repartitiontofewer": " Such a task puts partitions of a dataframe together: compute() has all "
    "of them put together on one worker, repartition() as many as it is told. Reduce the frame "
    "first, write it from the tasks (to_parquet()), or fetch the partitions: "
    "dask.compute(*frame.to_delayed()).",
}


def clause(departures: list[Departure]) -> str:
    """Say in a few words what ended workers: how many so, where it was not the same for all."""
    whys = Counter(one.why for one in departures).most_common()
    whys.sort(key=lambda each: each[0] is not Why.AGE)  # these say what is no fault of the tasks
    ages = next((map(format_duration, one.ages) for one in departures if one.ages), ())
    known = {one.words for one in departures if one.why is Why.UNKNOWN}
    signal = known.pop() if len(known) == 1 else ""
    how = signal if signal.startswith("killed by ") else "killed or lost"
    given = {Why.AGE: ages, Why.UNKNOWN: (how,)}
    clauses = {why: _CLAUSES[why].format(*given.get(why, ())) for why, _ in whys}
    if len(whys) == 1:
        return clauses[whys[0][0]]
    return ", or ".join(f"{clauses[why]} ({number})" for why, number in whys)


def in_words(departure: Departure) -> str:
    """Say how a worker ended, with all that is known of its end; empty where nothing is."""
    return "; ".join(filter(None, (departure.words, departure.evidence)))


def suspicion(kill: MemoryKill) -> str:
    """Say which function took the memory of a worker that died of it, and how sure that is."""
    what = "The results of" if kill.reason is Reason.RESULTS else ""
    took = f"{what} {kill.suspect} took the memory".strip()
    sure = "" if kill.certainty is Sure.CERTAIN else f", {kill.certainty.value}"
    return f"{took}{sure}: {kill.reason.value}. See died_of_memory(). "


#: What to do, by what ended workers: `name` ran there.
_ADVICE = {
    Why.SILENT: "If {name} holds the GIL (in C code), let it release it, or call it in a "
    "subprocess; or raise distributed.scheduler.worker-ttl above the longest time for which it "
    "holds the worker up. `py-spy dump --pid` shows what a silent worker does.",
    Why.MEMORY: "Let less memory be held at a time: fewer threads a worker, so that fewer tasks "
    "such as {name} run side by side, smaller chunks, or a higher memory_limit. How much {name} "
    "needs is unknown, as it was killed on the way: what it had then is the least.",
    Why.CRASH: "Run {name} alone with PYTHONFAULTHANDLER=1: the stack that this prints names the "
    "library that crashes.",
    Why.ERROR: "Mend {error} on the workers: their log has its traceback. What is sent to them is "
    "unpickled there, and needs the modules, of the same versions, that it is of.",
    Why.STATUS: "Look for sys.exit() or os._exit() in {name} and its libraries, and at what the "
    "process printed last.",
    Why.AGE: "Ask the batch system for more time (walltime= of dask-jobqueue), or let workers end "
    "by themselves: start them with a --lifetime that is shorter by a few of their tasks, and with "
    "--lifetime-stagger, so that they hand on their results.",
    Why.UNKNOWN: "The trace cannot tell what ended it. The kernel's log (dmesg) tells of kills for "
    "want of memory, the log of a batch system, of Kubernetes (kubectl describe pod) or of a cloud "
    "of theirs, the worker's own log of its errors.",
}
_FILLED = (
    "Let fewer results of {name} be held at a time: reduce or write them in the tasks, drop "
    "futures that nobody needs, or have more workers; and let Dask spill, where "
    "distributed.worker.memory.target or .spill is off."
)


def advice(departure: Departure, function: str | None, *, fills: bool = False) -> str:
    """Say what to do about workers that ended so, on which a function ran.

    `fills`: it was the function's results that filled the memory.
    """
    name, why = function or "the task", departure.why
    fills = fills and why is Why.MEMORY
    words = (_FILLED if fills else _ADVICE[why]).format(name=name, error=departure.error)
    if why is Why.MEMORY and not fills:
        words += next((more for word, more in _OF_DASK.items() if word in name), "")
    if why is Why.UNKNOWN and departure.memory < _FAR * departure.limit:
        words += " Nothing says that memory ran out: it was far from its limit."
    return words
