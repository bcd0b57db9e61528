"""Rules about tasks that queue for a lock, a resource or other tasks, or on busy workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.registry import Advice, Change, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.steps import distinct_annotations
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.stack_samples.places import OTHER_TASKS, hottest_line, waits_of
from dasfprof.analysis.wording import Count, Seconds, Share
from dasfprof.database.columns import Array
from dasfprof.text import elide

#: Threshold (fraction of thread time): tasks wait for a lock or for other tasks, or threads are
#: idle while tasks wait for a resource.
_WAITED = 0.1
#: Threshold (fraction of a function's time): samples show that it waits for other tasks.
_STANDS = 0.2
#: Threshold (fraction of time): a number of concurrent task runs counts as their maximum only if it
#: lasts at least this long.
_A_MOMENT = 0.05
#: Threshold: seconds in which runnable tasks lack a thread, as a multiple of the seconds of waits.
_QUEUED = 0.25


@rule(
    "distributed-lock",
    explains="blocked-tasks shared-bottleneck dominant-function stragglers "
    "slow-worker load-imbalance serial-chain gil-contention poor-placement io-bound",
    refutes="more-threads",
    because="tasks wait for a distributed lock",
)
def distributed_lock(run: RunFigures) -> Iterator[Finding]:
    """Find a distributed lock that tasks wait for while they occupy their threads."""
    table = run.trace.locks_held
    # If tasks have seceded, their waits do not occupy threads.
    if not len(table) or np.isfinite(run.task_column("seceded")).any():
        return
    names = table["name"].cat
    by_name = Groups(names.codes.to_numpy(), len(names.categories))
    waited = by_name.sum(np.nan_to_num(table["waited"].to_numpy(dtype=float)))
    code = int(waited.argmax())
    of_lock = table[names.codes == code]
    share, limit = run.share(float(waited[code])), int(of_lock["limit"].iloc[0])
    if share < _WAITED:
        return
    held = float((of_lock["time"] - of_lock["since"]).sum())
    at_a_time = "one task" if limit == 1 else "{limit:task}"
    yield Finding.of(
        f"Tasks wait for the Dask {{kind}} {{name!r}}, which only {at_a_time} can hold at a time. "
        "They wait for {waited} in total, which is {share} of thread time.",
        "It was held {times:time}, for {each} on average and {held} in total. See "
        "processed_tasks() and hot_lines().",
        "Hold {name!r} for a shorter time: read and compute before you acquire it, and protect "
        "only what must not run concurrently. Alternatively, use one lock per file or part. "
        "Additional threads or workers would wait for the same lock.",
        kind=str(of_lock["kind"].iloc[0]),
        name=elide(str(names.categories[code]), 60),
        limit=Count(limit),
        waited=Seconds(waited[code]),
        share=Share(share),
        held=Seconds(held),
        times=Count(len(of_lock)),
        each=Seconds(held / len(of_lock)),
        costs=share * run.wall,
    )


@rule(
    "missing-secede",
    explains="blocked-tasks dominant-function stragglers load-imbalance serial-chain "
    "too-few-tasks poor-placement shared-bottleneck scheduler-bound client-bound slow-worker",
    refutes="more-threads",
    because="tasks occupy their threads while they wait for other tasks",
)
def missing_secede(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that occupy threads while they wait for other tasks, which need these threads."""
    waited = run.functions.sum(np.clip(run.working - run.cpu, 0.0, None))
    times, count = run.slots.times, len(run.trace.tasks)
    executing, runnable = times.executing[:count], times.runnable[:count]
    for code in np.argsort(-waited, kind="stable").tolist():
        if run.share(float(waited[code])) < _WAITED:
            return
        name, rows = str(run.function_names[code]), np.flatnonzero(run.functions.codes == code)
        stands = waits_of(run.trace, name).get(OTHER_TASKS, 0.0)
        waited_for_others = stands * float(run.working[rows].sum())
        # Seconds in which other task runs were runnable but lacked a thread while `rows` were
        # running.
        others = np.setdiff1d(np.arange(count), rows)
        span = float(executing[rows].min()), float(run.slots.end[rows].max())
        waited_for = np.clip(executing[others], *span) - np.clip(runnable[others], *span)
        queued = float(np.nan_to_num(np.clip(waited_for, 0.0, None)).sum())
        if (
            stands < _STANDS
            or run.share(waited_for_others) < _WAITED
            or queued < _QUEUED * waited_for_others
        ):
            continue
        yield Finding.of(
            "Tasks of {function} occupy their threads while they wait for other tasks: for "
            "{kept} of thread time, {share} of the total.",
            "Samples show that {tasks:task} spent {stands} of their time waiting in Dask's "
            "client. While they ran, runnable tasks waited {queued} in total for a thread. "
            '{hottest}See time_accounting("function") and hot_lines().',
            "Release the thread before the wait: call distributed.secede() in {function} (and "
            "rejoin() after the wait), or submit and wait within `with worker_client():`, which "
            "does both. Alternatively, pass the futures as arguments, so that {function} starts "
            "when they are done.",
            function=name,
            tasks=Count(len(rows)),
            stands=Share(stands),
            kept=Seconds(waited_for_others),
            share=Share(run.share(waited_for_others)),
            queued=Seconds(queued),
            hottest=hottest_line(run.trace, name),
            costs=run.share(waited_for_others) * run.wall,
        )


@rule(
    "resource-limit",
    explains="blocked-tasks dominant-function load-imbalance poor-placement too-few-tasks "
    "serial-chain",
    refutes="more-threads",
    because="tasks wait for units of a resource, not for threads",
)
def resource_limit(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that wait for units of a resource while threads of their workers are idle."""
    places, distinct = distinct_annotations(run.trace.tasks)
    asked: dict[str, list[int]] = {}
    for place, value in enumerate(distinct):
        resources = value.get("resources") if isinstance(value, dict) else None
        for name in resources if isinstance(resources, dict) else ():
            asked.setdefault(str(name), []).append(place)
    for name, numbers in asked.items():
        rows = np.flatnonzero(np.isin(places, numbers))
        idle, most = _idle_beside(run, rows)
        if run.share(idle) < _WAITED:
            continue
        by_function = np.bincount(run.functions.codes[rows])
        yield Finding.of(
            "Tasks wait for the resource {resource!r}: a worker runs at most {most} of these "
            "tasks at a time, which leaves its threads idle for {idle} ({share} of thread time).",
            "{tasks:task} request it, most of them {function}. They were ready on workers with "
            'idle threads. See processed_tasks() and time_accounting("worker").',
            "Give each worker one unit of {resource!r} for every task that may run there at once "
            "(dask worker --resources, or resources= of a LocalCluster), or request fewer units "
            "per task. Additional threads would be idle too.",
            function=str(run.function_names[int(by_function.argmax())]),
            resource=elide(name, 60),
            most=Count(most),
            tasks=Count(len(rows)),
            idle=Seconds(idle),
            share=Share(run.share(idle)),
            costs=run.share(idle) * run.wall,
        )


#: Changes of three numbers (task runs, task runs that request the resource, and ready task runs):
#: at starts and ends of all task runs, then at starts, ends and ready times of those that request
#: the resource.
_CHANGES = ((1, 0, 0), (-1, 0, 0), (0, 1, -1), (0, -1, 0), (0, 0, 1))


def _idle_beside(run: RunFigures, rows: Array) -> tuple[float, int]:
    """Return for how many thread-seconds a resource kept threads idle, and its limit.

    `rows` are the task runs that request the resource. The limit is the maximum number of them that
    a worker executed concurrently. Numbers that were reached only for moments do not count.
    """
    times, count = run.slots.times, len(run.trace.tasks)
    worker = run.trace.tasks["worker_id"].to_numpy()
    begin, ready, end = times.executing[:count], times.ready[:count], run.slots.end[:count]
    by_worker = []
    for life in np.unique(worker[rows]).tolist():
        here, selected = np.flatnonzero(worker == life), rows[worker[rows] == life]
        times_of = (begin[here], end[here], begin[selected], end[selected], ready[selected])
        at, counts = np.concatenate(times_of), list(map(len, times_of))
        # Changes at each time: numbers of task runs on threads, of task runs that request the
        # resource, and of ready task runs.
        changes = np.repeat(_CHANGES, counts, axis=0)
        # At equal times, ends come first, because they release the units for a run that starts.
        order = np.lexsort((changes[:, :2].sum(axis=1), at))
        running, of_them, waiting = np.cumsum(changes[order], axis=0)[:-1].T
        threads = float(run.trace.workers["nthreads"].iloc[life])
        # An idle thread counts only if one of these task runs was ready on the worker.
        idle = np.nan_to_num(np.minimum(np.clip(threads - running, 0, None), waiting))
        by_worker.append((np.diff(at[order]), of_them, idle))
    lasts, of_them, idle = (np.concatenate(each) for each in zip(*by_worker, strict=True))
    levels = np.bincount(of_them, weights=lasts)
    # A thread counts as occupied until shortly after its run has ended, so the highest number of
    # runs may only be reached for moments. Ignore such numbers.
    usual = np.flatnonzero(levels >= _A_MOMENT * levels[1:].sum())
    most = int(usual.max(initial=0))
    return float((lasts * idle)[of_them >= most].sum()), most


#: Threshold (fraction of thread time): threads are idle while tasks are ready on other workers.
_ELSEWHERE = 0.1
#: Threshold (fraction of the total waiting time): waits of tasks with restrictions, of tasks with
#: inputs, or of tasks that were queued on the scheduler.
_MOSTLY = 0.5
#: Annotations that restrict tasks to some workers.
_ASKS = {"workers", "resources"}


@rule(
    "poor-placement",
    explains="stragglers blocked-tasks load-imbalance serial-chain too-few-tasks",
    refutes="more-threads",
    because="threads are idle while tasks queue on other workers",
)
def poor_placement(run: RunFigures) -> Iterator[Finding]:
    """Find threads that are idle while tasks queue on other workers."""
    share = run.share_of(ThreadTime.RUNNABLE_ELSEWHERE)
    if share < _ELSEWHERE or not len(run.trace.tasks):
        return
    count, times, lives = len(run.trace.tasks), run.slots.times, run.accounts.lives
    lasted = times.executing - times.ready
    waits, (places, annotations) = lasted[:count], distinct_annotations(run.trace.tasks)

    def mostly(rows: Array) -> bool:
        return bool(waits[rows].sum() >= _MOSTLY * waits.sum())

    asked = None
    if annotations and all(isinstance(each, dict) for each in annotations):
        asks = [isinstance(each, dict) and not _ASKS.isdisjoint(each) for each in annotations]
        asked = mostly(np.array(asks)[places])
    by_life = np.bincount(run.slots.worker, weights=lasted, minlength=len(run.trace.workers))
    crowded = run.life_label(int(lives.ids[by_life[lives.ids].argmax()]))
    seconds, stolen = run.seconds_of(ThreadTime.RUNNABLE_ELSEWHERE), Count(len(run.trace.steals))
    figures = {"idle": Share(share), "crowded": crowded, "stolen": stolen, "worker": crowded}
    queued = "The longest queues are on {crowded}. Work stealing moved {stolen:task}. "
    if asked is False and not mostly(run.trace.task_dependencies[0] > 0):
        at_scheduler = mostly(np.isfinite(run.task_column("queued")))
        yield _assigned_early(queued, queued=at_scheduler, costs=seconds, **figures)
        return
    few = (
        "Most of these tasks may run on any worker. They wait on the workers that hold their "
        "inputs. "
    )
    anywhere = (
        "Let these tasks run anywhere: remove workers= and resources=, or pass "
        "allow_other_workers=True."
    )
    spread = "Spread the data that these tasks need, with client.rebalance() or client.replicate()."
    yield Finding.of(
        "Tasks queue on busy workers while others are idle: {idle} of thread time.",
        f"{queued}{few if asked is False else ''}See "
        'time_accounting("worker") and transfers("worker").',
        [
            Advice("move-data", spread if asked is False else f"{anywhere} {spread}"),
            "Keep distributed.scheduler.work-stealing on.",
        ],
        asked=asked,
        seconds=seconds,
        **figures,
    )


def _assigned_early(queues: str, queued: bool, **figures: Any) -> Finding:
    """Return the finding about tasks that queue on a worker although they could run on any worker.

    `queues` is a sentence about the longest queues. `queued` is whether most of these tasks had
    been queued on the scheduler before.
    """
    saturation = (
        "Set distributed.scheduler.worker-saturation to 1.0, so that the scheduler sends a worker "
        "no more tasks than it has threads."
    )
    stealing = (
        "Keep distributed.scheduler.work-stealing on: the scheduler chose the workers before it "
        "knew how long these tasks take."
    )
    set_saturation = Change({"distributed.scheduler.worker-saturation": "1.0"})
    return Finding.of(
        "Tasks wait behind others on their workers while threads of other workers are idle: "
        "{idle} of thread time. They could have run on any worker.",
        f"{queues}Most of these tasks have no inputs and may run on any worker. "
        'See time_accounting("worker").',
        f"{saturation if queued else stealing} Submit the longest tasks first.",
        asked=False,
        queued=queued,
        at_most="medium",
        # The cause is that earlier tasks take long. Therefore this finding is not the cause of
        # others.
        isolated=True,
        settings=[set_saturation] if queued else [],
        **figures,
    )
