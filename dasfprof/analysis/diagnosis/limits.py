"""Rules about what few tasks may have at a time, for which others wait and keep their threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.registry import HIGH, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.steps import distinct_annotations
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.stack_samples.places import OTHER_TASKS, hottest_line, waits_of
from dasfprof.analysis.wording import Count, Figures, Seconds, Share, Words
from dasfprof.database.columns import Array
from dasfprof.text import elide

#: The share of the threads' time for which tasks have to wait for a lock, or for other tasks, or
#: threads to idle beside them.
_WAITED = 0.1
#: The share of a function's time in which its samples have to stand in such a wait.
_STANDS = 0.2
#: The share of the time for which as many runs as that have to be under way, to be at a time.
_A_MOMENT = 0.05
#: Thread-seconds for which others queued, by those for which tasks waited for them.
_QUEUED = 0.25


@rule("cluster-lock")
def cluster_lock(run: RunFigures) -> Iterator[Finding]:
    """Find one of Dask's locks that tasks wait for while they keep their threads."""
    table = run.trace.locks_held
    # Who seceded waits without a thread.
    if not len(table) or np.isfinite(run.task_column("seceded")).any():
        return
    names = table["name"].cat
    by_name = Groups(names.codes.to_numpy(), len(names.categories))
    waited = by_name.sum(np.nan_to_num(table["waited"].to_numpy(dtype=float)))
    code = int(waited.argmax())
    own = table[names.codes == code]
    share, limit = run.share(float(waited[code])), int(own["limit"].iloc[0])
    if share < _WAITED:
        return
    held = float((own["time"] - own["since"]).sum())
    yield Finding.of(
        _say_cluster_lock,
        kind=str(own["kind"].iloc[0]),
        name=elide(str(names.categories[code]), 60),
        limit=Count(limit),
        waited=Seconds(waited[code]),
        share=Share(share),
        held=Seconds(held),
        times=Count(len(own)),
        each=Seconds(held / len(own)),
        at_least="high" if share >= HIGH else "medium",
    )


def _say_cluster_lock(f: Figures) -> Words:
    at_a_time = "one task" if f.limit == 1 else f"{f.limit:task}"
    return (
        f"Tasks wait for Dask's {f.kind} {f.name!r}, which {at_a_time} at a time may hold: for "
        f"{f.waited} in all, {f.share} of the threads' time.",
        f"It was held {f.times:time}, {f.each} each, {f.held} in all. See processed_tasks() and "
        "hot_lines().",
        f"Hold {f.name!r} for less: compute and read before it is asked for, and keep it for what "
        "must not happen twice at a time; or have one lock for each file or part. More threads or "
        "workers wait for the same lock.",
    )


@rule("waits-for-tasks")
def waits_for_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that wait for other tasks and keep their threads, while some of these queue."""
    waited = run.functions.sum(np.clip(run.working - run.cpu, 0.0, None))
    for code in np.argsort(-waited, kind="stable").tolist():
        if run.share(float(waited[code])) < _WAITED:
            return
        name, rows = str(run.function_names[code]), np.flatnonzero(run.functions.codes == code)
        stands = waits_of(run.trace, name).get(OTHER_TASKS, 0.0)
        kept, queued = stands * float(run.working[rows].sum()), _queued(run, rows)
        if stands < _STANDS or run.share(kept) < _WAITED or queued < _QUEUED * kept:
            continue
        yield Finding.of(
            _say_waits_for_tasks,
            function=name,
            tasks=Count(len(rows)),
            stands=Share(stands),
            kept=Seconds(kept),
            share=Share(run.share(kept)),
            queued=Seconds(queued),
            hottest=hottest_line(run.trace, name),
            at_least="high" if run.share(kept) >= HIGH else "medium",
        )


def _say_waits_for_tasks(f: Figures) -> Words:
    return (
        f"Tasks of {f.function} wait for other tasks and keep their threads meanwhile: {f.kept} "
        f"of thread time, {f.share} of all.",
        f"Their samples stand in Dask's client for {f.stands} of their time, {f.tasks:task}; while "
        f"they ran, others that could have run waited {f.queued} in all for a thread. {f.hottest}"
        'See time_accounting("function") and hot_lines().',
        f"Give the thread back before the wait: distributed.secede() in {f.function} (and rejoin() "
        "after it), or submit and wait within `with worker_client():`, which does both; or hand "
        f"the futures over as arguments, so that {f.function} begins when they are done.",
    )


@rule("resource-limit")
def resource_limit(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that wait for units of a resource while threads of their workers idle."""
    places, distinct = distinct_annotations(run.trace)
    asked: dict[str, list[int]] = {}
    for place, value in enumerate(distinct):
        resources = value.get("resources") if isinstance(value, dict) else None
        for name in resources if isinstance(resources, dict) else ():
            asked.setdefault(str(name), []).append(place)
    for name, own in asked.items():
        rows = np.flatnonzero(np.isin(places, own))
        idle, most = _idle_beside(run, rows)
        if run.share(idle) < _WAITED:
            continue
        by_function = np.bincount(run.functions.codes[rows])
        yield Finding.of(
            _say_resource_limit,
            function=str(run.function_names[int(by_function.argmax())]),
            resource=elide(name, 60),
            most=Count(most),
            tasks=Count(len(rows)),
            idle=Seconds(idle),
            share=Share(run.share(idle)),
            at_least="high" if run.share(idle) >= HIGH else "medium",
        )


def _say_resource_limit(f: Figures) -> Words:
    return (
        f"Tasks wait for the resource {f.resource!r}: a worker runs {f.most} of those that ask for "
        f"it at a time, and its threads idle meanwhile, for {f.idle} ({f.share} of the threads' "
        "time).",
        f"{f.tasks:task} ask for it, most of {f.function}, and were ready on their workers while "
        'threads idled there. See processed_tasks() and time_accounting("worker").',
        f"Give each worker as many units of {f.resource!r} as tasks may run there at a time "
        "(dask worker --resources, or resources= of a LocalCluster), or ask for fewer. More "
        "threads would idle as well.",
    )


def _idle_beside(run: RunFigures, rows: Array) -> tuple[float, int]:
    """Return for how long threads idled beside ready runs, of which as many as ever did ran.

    The second is how many of these runs a worker ran at a time, at most.
    """
    times, count = run.slots.times, len(run.trace.tasks)
    worker = run.trace.tasks["worker_id"].to_numpy()
    begin, ready, end = times.executing[:count], times.ready[:count], run.slots.end[:count]
    levels, steps = np.zeros(0), []
    for life in np.unique(worker[rows]).tolist():
        here, own = np.flatnonzero(worker == life), rows[worker[rows] == life]
        at = np.concatenate([begin[here], end[here], begin[own], end[own], ready[own]])
        one, other = np.ones(len(here)), np.ones(len(own))
        running = np.concatenate([one, -one, 0 * other, 0 * other, 0 * other])
        of_them = np.concatenate([0 * one, 0 * one, other, -other, 0 * other])
        waiting = np.concatenate([0 * one, 0 * one, -other, 0 * other, other])
        # What ends makes room for what begins at the same time.
        order = np.lexsort((running + of_them, at))
        lasts = np.diff(at[order])
        running, of_them, waiting = (
            np.cumsum(change[order])[:-1] for change in (running, of_them, waiting)
        )
        threads = float(run.trace.workers["nthreads"].iloc[life])
        steps.append((lasts, of_them, np.minimum(np.clip(threads - running, 0, None), waiting)))
        at_each = np.bincount(of_them.astype(np.int64), weights=lasts)
        levels = np.resize(
            np.append(levels, np.zeros(len(at_each))), max(len(levels), len(at_each))
        )
        levels[: len(at_each)] += at_each
    # A thread is taken to be held for a moment after the next run has begun on another.
    usual = np.flatnonzero(levels >= _A_MOMENT * levels[1:].sum())
    most = int(usual.max(initial=0))
    seconds = sum(float((lasts * np.nan_to_num(idle))[n >= most].sum()) for lasts, n, idle in steps)
    return seconds, most


def _queued(run: RunFigures, rows: Array) -> float:
    """Return for how long other task runs were runnable and had no thread while some ran."""
    times, count = run.slots.times, len(run.trace.tasks)
    others = np.setdiff1d(np.arange(count), rows)
    begin, end = float(times.executing[rows].min()), float(run.slots.end[rows].max())
    since = np.clip(times.runnable[:count][others], begin, end)
    until = np.clip(times.executing[:count][others], begin, end)
    return float(np.nan_to_num(np.clip(until - since, 0.0, None)).sum())
