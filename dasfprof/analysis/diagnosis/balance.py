"""Rules about work that is spread unevenly: over tasks, partitions, workers, and first uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.registry import Advice, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.thread_time import USES, ThreadTime
from dasfprof.analysis.model.transfers import p2p_outputs
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.numeric.intervals import open_spans
from dasfprof.analysis.stack_samples.places import imported_by
from dasfprof.analysis.wording import Bytes, Count, Factor, Seconds, Share
from dasfprof.database.columns import Array

#: Threshold (fraction of wall time): potential savings that are reported.
_GAIN = 0.05
#: Maximum number of slow workers or slow hosts that are reported.
_MOST_SLOW = 3
#: Threshold (fraction of thread time): load imbalance requires that threads are idle for this long.
_UNEVEN_IDLE = 0.1
#: Threshold: minimum imbalance of the busy seconds of the workers' threads, 1 - mean / maximum.
_UNEVEN = 0.25
#: Threshold (fraction of the seconds that first runs lose): if samples in imports have this much
#: time, imports are named as the cause.
_IMPORTS = 0.5
#: Minimum duration of a long task, as a fraction of the longest task's duration. Load imbalance
#: requires at least as many concurrent long tasks as workers.
_WORK = 0.1

#: Prefixes of the names of P2P joins, and advice for the case that few keys have most of the rows.
_JOINS = ("hashjoin", "hash-join")
_ONE_PARTITION = (
    "Smaller partitions do not help, because all rows of a key stay in the same partition."
)
_SPREAD_KEYS = {
    False: "Reduce the rows of each key before they are shuffled (groupby().agg() instead of "
    "apply()), or salt the key: shuffle by the key and a random number from 0 to 9, then combine "
    f"the ten parts of each key. {_ONE_PARTITION}",
    True: "Call repartition(npartitions=1) on the smaller side of the merge if it fits into a "
    "worker's memory, so that the larger side is not moved. If it does not, aggregate before the "
    "merge or salt the key: merge on the key and a random number from 0 to 9, with each row of the "
    f"smaller side repeated for each number. {_ONE_PARTITION}",
}
#: Threshold (bytes): if one side of a merge is smaller, all workers can get a copy of it.
SMALL_SIDE = 100e6
TO_ONE_PARTITION = (
    "Call repartition(npartitions=1) on the smaller side of the merge ({smaller}). Dask then "
    "merges each partition of the larger side with all of it, and moves only the smaller side, if "
    "the merge has how='inner' or how= names the larger side."
)
#: Causes of stragglers that are not reported, because other rules report them or they do no harm.
_NOT_SLOW = ("larger input", "worker overhead")
_WHY = {
    "spill": "Give workers more memory or use smaller chunks: the slow tasks of {function} had to "
    "read their inputs back from disk.",
    "deserialising": "Scatter large arguments once: the slow tasks of {function} spent the extra "
    "time on deserializing.",
    "first run on that worker": "Use client.run() or a worker plugin to import and load what "
    "{function} needs before its tasks start: its slow tasks were the first on their workers.",
    "blocked": "Check the files, locks and services that {function} uses: its slow tasks waited "
    "without using the CPU.",
    "computed longer": "Check the inputs of the slow tasks of {function}: they computed for longer "
    "than the others.",
}
_WHY_UNKNOWN = "Profile one of the slow tasks of {function}: why they are slow is not recorded."


@rule(
    "data-skew",
    explains="stragglers load-imbalance poor-placement dominant-function blocked-tasks",
    causes="serial-chain too-few-tasks transfer-bound",
)
def data_skew(run: RunFigures) -> Iterator[Finding]:
    """Find partitions that are far larger than others and make their tasks take longer."""
    stragglers, (sizes, times) = run.stragglers, run.partitions
    fat = run.fat & ~run.on_slow_worker[stragglers.rows]
    if not fat.any():
        return
    gain = _gain(run, fat, is_done_elsewhere=True)
    shuffled, of_key = _by_shuffles(run, stragglers.rows[fat])
    joined = any(name.startswith(_JOINS) for name in shuffled)
    transfers, smaller, _ = transfers_of_join(run, stragglers.rows[fat])
    is_small = joined and of_key and smaller <= SMALL_SIDE
    if is_small:
        without = run.with_durations(transfers, 0.0)
        gain += run.saved(float(run.working[transfers].sum()) / run.threads, running=without)
    if gain < _GAIN * run.wall:
        return
    worst = int(np.flatnonzero(fat)[0])
    row = stragglers.rows[worst]
    usual = Bytes(sizes[worst] / times[worst])
    shuffle = (
        "These partitions come from a shuffle by key, so a few keys must have most of the rows. "
    )
    why = shuffle if of_key else ""
    yield Finding.of(
        "One partition of {function} is far larger than the others: {size}, {times} times the "
        "median. Its task takes {longer} longer than usual."
        if fat.sum() == 1
        else "{tasks:task} have far larger partitions than the others: up to {size} in "
        "{function}, {times} times the median.",
        "The largest partition belongs to {key}. Large partitions by function: {_most}. "
        f"{why}See stragglers() and imbalance().",
        TO_ONE_PARTITION
        if is_small
        else _SPREAD_KEYS[joined]
        if of_key
        else "Split the data evenly before {function}, into partitions of about {usual}: when "
        "you read it (blocksize= of read_csv(), split_row_groups= of read_parquet()), with "
        "array.rechunk(), or by using more and smaller inputs.",
        key=run.text_of_key(int(run.trace.tasks["key_id"].iloc[row])),
        size=Bytes(sizes[worst]),
        times=Factor(times[worst]),
        usual=usual,
        longer=Seconds(stragglers.excess[worst]),
        tasks=Count(fat.sum()),
        **_by_function(run, stragglers.rows[fat]),
        of_key=of_key,
        joined=joined,
        smaller=Bytes(smaller) if is_small else None,
        seconds=gain,
        **_place(run, row),
    )


def _by_shuffles(run: RunFigures, rows: Array) -> tuple[set[str], bool]:
    """Return the functions of task runs that read from P2P shuffles.

    Only `rows` and the task runs that made their inputs are examined.

    The second value is whether all of these functions shuffle by key. It is False if there is no
    such function.
    """
    outputs = p2p_outputs(run.trace)
    made = outputs & run.inputs_of(rows)
    made[rows] |= outputs[rows]
    names = {str(name) for name in run.function_names[run.functions.codes[made]]}
    # A rechunk is a P2P shuffle, too, but not by key.
    return names, bool(names) and not any("rechunk" in name for name in names)


def transfers_of_join(run: RunFigures, rows: Array) -> tuple[Array, float, float]:
    """Return the task runs that transfer the inputs of the P2P join that `rows` belong to.

    The other values are the bytes of the smaller and of the larger input. They are infinite if a
    size is unknown, or if there are not exactly two inputs, such as those of several joins.
    """
    codes, names = run.functions.codes, run.function_names.astype(str)
    joins = rows[np.array([name.startswith(_JOINS) for name in names], dtype=bool)[codes[rows]]]
    before = run.inputs_of(np.flatnonzero(run.inputs_of(joins)))
    transfers = np.flatnonzero(before & np.char.endswith(names, "transfer")[codes])
    # Dask repeats all transfers of a shuffle if one of its workers dies.
    keys, first = np.unique(run.trace.tasks["key_id"].to_numpy()[transfers], return_index=True)
    sides, heads = np.unique(run.trace.keys.head_ids[keys], return_inverse=True)
    sizes = np.bincount(heads, weights=run.task_column("input_size")[transfers[first]])
    if len(sides) != 2 or not np.isfinite(sizes).all():
        return transfers, float("inf"), float("inf")
    return transfers, float(sizes.min()), float(sizes.max())


@rule("stragglers", causes="load-imbalance too-few-tasks")
def stragglers(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that take far longer than others of their layer and make other tasks wait."""
    stragglers = run.stragglers
    slow = ~run.fat & ~np.isin(stragglers.cause, _NOT_SLOW)
    slow &= ~np.isin(stragglers.rows, run.first_uses.rows) & ~run.on_slow_worker[stragglers.rows]
    gain = _gain(run, slow)
    if not slow.any() or gain < _GAIN * run.wall:
        return
    worst, rows = int(np.flatnonzero(slow)[0]), stragglers.rows[slow]
    row = stragglers.rows[worst]
    alike = slow & (run.functions.codes[stragglers.rows] == run.functions.codes[row])
    cause = Counter(stragglers.cause[alike].tolist()).most_common(1)[0][0]
    yield Finding.of(
        "{tasks:task} took far longer than comparable tasks of the same function: up to {longest} "
        "in {function}, where the median is {median}. CPU wait is not included.",
        "The slowest task is {key}. Slow tasks by function: {_most}. See stragglers(), which "
        "lists the most likely cause for each of them.",
        _WHY.get(cause, _WHY_UNKNOWN),
        key=run.text_of_key(int(run.trace.tasks["key_id"].iloc[row])),
        longest=Seconds(stragglers.seconds[worst]),
        median=Seconds(stragglers.median[worst]),
        cause=cause,
        tasks=Count(slow.sum()),
        **_by_function(run, rows),
        seconds=gain,
        # Each worker loses this time only once, so a longer run would not lose more.
        at_most="low" if cause == "first run on that worker" else "high",
        **_place(run, row),
    )


@rule(
    "slow-worker",
    causes="load-imbalance serial-chain too-few-tasks stragglers poor-placement "
    "dominant-function blocked-tasks",
)
def slow_worker(run: RunFigures) -> Iterator[Finding]:
    """Find workers, or whole hosts, on which the same functions take longer than on others."""
    slowness, workers = run.slowness, run.workers
    excess = np.where(
        slowness.slow, slowness.runs * (slowness.median - slowness.median_elsewhere), 0.0
    )
    by_worker = np.bincount(slowness.place, weights=excess, minlength=len(workers))
    for numbers in _slow_places(run, by_worker)[:_MOST_SLOW]:
        cells = np.isin(slowness.place, numbers) & slowness.slow
        seconds = _slow_gain(run, numbers, float(by_worker[numbers].sum()))
        if seconds < _GAIN * run.wall:
            continue
        worst = np.flatnonzero(cells)[np.argmax(excess[cells])]
        here, elsewhere = slowness.median[worst], slowness.median_elsewhere[worst]
        name = str(run.function_names[slowness.function[worst]])
        label = str(workers.labels[numbers[0]]) if len(numbers) == 1 else None
        look = (
            "Check what differs for the process of this worker: pinned cores, available memory, "
            "and the other tasks that it ran (process_summary()). The host is not the cause, "
            "because all workers ran on it. "
            if len(np.unique(workers.hosts[np.unique(slowness.place)])) == 1
            else "Check host {host} for other processes, throttled or shared cores, and slow "
            "disks (node_resource_usage()). "
        )
        yield Finding.of(
            f"{'Worker {worker}' if label else 'Host {host}'} is slow: {{function}} takes {{times}}"
            " times as long there as elsewhere.",
            "The median duration, not counting CPU wait, is {here} there and {elsewhere} "
            "elsewhere. The difference is statistically significant (z = {z:.1f}). This affects "
            "{slow_workers} of {workers:worker}. See imbalance() and process_summary().",
            f"{look}If you cannot fix the cause, start another worker, and then call "
            "client.retire_workers(). A run with fewer workers may take longer.",
            host=str(workers.hosts[numbers[0]]),
            times=Factor(here / elsewhere),
            here=Seconds(here),
            elsewhere=Seconds(elsewhere),
            z=float(slowness.z[worst]),
            slow_workers=Count(len(numbers)),
            workers=Count(len(np.unique(slowness.place))),
            seconds=seconds,
            function=name,
            worker=label,
        )


def _slow_places(run: RunFigures, excess: Array) -> list[Array]:
    """Return one array of worker indices per slow worker or slow host, most excess seconds first.

    `excess` has the seconds of each worker.
    """
    hosts, worked = run.workers.hosts, np.unique(run.slowness.place)
    places: dict[object, list[int]] = {}
    for number in np.flatnonzero(excess > 0).tolist():
        of_host = worked[hosts[worked] == hosts[number]]
        is_slow_host = (
            len(of_host) > 1 and len(of_host) < len(worked) and (excess[of_host] > 0).all()
        )
        places.setdefault(hosts[number] if is_slow_host else number, []).append(number)
    slow_places = [np.array(numbers, dtype=np.int64) for numbers in places.values()]
    return sorted(slow_places, key=lambda numbers: -float(excess[numbers].sum()))


@rule(
    "load-imbalance",
    causes="too-few-tasks",
    refutes="more-threads",
    because="threads are idle while others work",
)
def load_imbalance(run: RunFigures) -> Iterator[Finding]:
    """Find workers that have so much more work than others that the others become idle."""
    lives = run.accounts.lives
    busy = run.accounts.of_lives[:, :USES].sum(axis=1)
    workers = Groups(run.workers.of_lives[lives.ids], len(run.workers))
    load = workers.sum(busy) / np.maximum(workers.max(lives.threads.astype(float)), 1)
    comparable = (workers.sizes > 0) & ~_cannot_be_compared(run)
    load = np.nan_to_num(load[comparable])
    idle = run.seconds_of(ThreadTime.NO_RUNNABLE_TASK, ThreadTime.RUNNABLE_ELSEWHERE)
    if len(load) < 2 or idle < _UNEVEN_IDLE * run.wall or load.max() <= 0:
        return
    long = np.flatnonzero(run.working >= _WORK * run.working.max(initial=0.0))
    times = run.slots.times
    if open_spans(times.runnable[long], times.known[long])[1].max(initial=0) < len(load):
        # There are fewer long tasks at a time than workers, so the load cannot be more even. The
        # rules too-few-tasks and serial-chain report that.
        return
    lost = load.max() - load.mean()
    if lost / load.max() < _UNEVEN:
        return
    labels = run.workers.labels[comparable]
    busiest = str(labels[load.argmax()])
    yield Finding.of(
        "Work is spread unevenly: a thread of {busiest} is busy for {most}, but a thread of "
        "{idlest} only for {least}.",
        "Threads are busy for {mean} on average, so imbalance costs {lost} of the workers' time. "
        'See imbalance() and time_accounting("worker").',
        [
            "Split the work into more, smaller partitions: about three per thread.",
            Advice(
                "move-data",
                "Spread the input data over the workers: use client.rebalance(), or scatter() "
                "without workers=.",
            ),
        ],
        busiest=busiest,
        most=Seconds(load.max()),
        idlest=str(labels[load.argmin()]),
        least=Seconds(load.min()),
        mean=Seconds(load.mean()),
        lost=Share(lost / load.max()),
        # Tasks that queue on other workers are reported by poor-placement.
        costs=min(lost, run.seconds_of(ThreadTime.NO_RUNNABLE_TASK)),
        worker=busiest,
    )


def _cannot_be_compared(run: RunFigures) -> Array:
    """Return a mask of workers that were absent for half of the run or left tasks unfinished."""
    lives, middle = run.accounts.lives, run.begin + 0.5 * run.wall
    unfinished = run.trace.unlisted
    rows = [lives.ids[(lives.begin > middle) | (lives.end < middle)]]
    rows.append(unfinished.worker[unfinished.taken & (unfinished.worker >= 0)])
    mask = np.zeros(len(run.workers), dtype=bool)
    mask[run.workers.of_lives[np.concatenate(rows).astype(np.int64)]] = True
    return mask


def _gain(run: RunFigures, selected: Array, is_done_elsewhere: bool = False) -> float:
    """Estimate the wall seconds that the stragglers in the mask `selected` cost.

    `is_done_elsewhere` is whether other threads would have to do the stragglers' excess work. If
    so, only the shorter waits of other threads count as savings.
    """
    if not selected.any():
        return 0.0
    rows, excess = run.stragglers.rows[selected], run.stragglers.excess[selected]
    # Without the stragglers' excess, which is their time beyond the median of their layer, other
    # threads would have waited less (`idle`), and the stragglers' threads would have been free for
    # other work (`shared`).
    idle, shared = run.idle_behind(rows, excess), float(excess.sum()) / run.threads
    usual = run.with_durations(rows, run.layers.median(run.working)[run.layers.codes[rows]])
    if is_done_elsewhere:
        # Only the shorter waits count, because the excess work remains.
        return max(run.saved(idle + shared, running=usual) - shared, 0.0)
    return run.saved(max(idle, shared), running=usual)


def _slow_gain(run: RunFigures, numbers: Array, excess: float) -> float:
    """Estimate the wall seconds that the slowness of some workers costs.

    `numbers` are the indices of these workers, and `excess` is the sum of their excess seconds.
    """
    lives, slowness = run.accounts.lives, run.slowness
    slow_threads = float(lives.threads[np.isin(run.workers.of_lives[lives.ids], numbers)].sum())
    spread = excess / run.threads
    idle = run.seconds_of(ThreadTime.NO_RUNNABLE_TASK, ThreadTime.RUNNABLE_ELSEWHERE)
    # If the run cannot be replayed, the cost is estimated as the excess per thread of the run plus
    # the mean idle time of a thread, but at most as the excess per slow thread.
    estimate = max(spread, min(excess / max(slow_threads, 1.0), spread + idle))
    slow = slowness.slow & np.isin(slowness.place, numbers)
    rows = np.flatnonzero(slow[slowness.of_run])
    factor = (slowness.median_elsewhere / slowness.median)[slowness.of_run[rows]]
    usual = run.trace.tasks["duration"].to_numpy()[rows] * factor
    return run.saved(estimate, running=run.with_durations(rows, usual))


def _function(run: RunFigures, row: int) -> str:
    return str(run.function_names[run.functions.codes[row]])


def _place(run: RunFigures, row: int) -> dict[str, Any]:
    """Return the function, worker, start and end of a task run, as fields of a finding."""
    times = run.slots.times
    return {
        "function": _function(run, row),
        "worker": str(run.trace.tasks["worker"].iloc[row]),
        "start": float(times.executing[row]),
        "stop": float(times.done[row]),
    }


def _by_function(run: RunFigures, rows: Array) -> dict[str, Any]:
    """Return the number of task runs of the three most frequent functions in `rows`.

    The result also has these numbers as a text, named ``_most``.
    """
    counts = Counter(_function(run, row) for row in rows.tolist()).most_common(3)
    text = ", ".join(f"{Count(number)} of {name}" for name, number in counts)
    return {"by_function": {name: Count(number) for name, number in counts}, "_most": text}


@rule(
    "warm-up",
    causes="dominant-function stragglers slow-worker load-imbalance "
    "serial-chain too-few-tasks slow-dispatch gil-contention io-bound blocked-tasks poor-placement",
)
def warm_up(run: RunFigures) -> Iterator[Finding]:
    """Find costs that each worker pays only once: slow first runs, and imports as tasks arrive."""
    yield from _imports_as_tasks_arrive(run)
    first = run.first_uses
    if not len(first.rows):
        return
    lost = float(first.excess.sum())
    estimate = max(run.idle_behind(first.rows, first.excess), lost / run.threads)
    seconds = run.saved(estimate, running=run.with_durations(first.rows, first.usual))
    if not seconds > 0 or seconds < _GAIN * run.wall:
        return
    codes = run.functions.codes[first.rows]
    most = int(np.bincount(codes, weights=first.excess).argmax())
    name, of_function = str(run.function_names[most]), codes == most
    worker = run.trace.tasks["worker_id"].to_numpy()
    others = ", as did the first runs of {more_functions:more function}"
    more = others if len(np.unique(codes)) > 1 else ""
    library = imported_by(run.trace, name, _IMPORTS * float(first.excess[of_function].sum()))
    did = (
        f"They import {library}. " if library.isidentifier() else "What they did was not recorded. "
    )
    yield Finding.of(
        "The first runs of {function} on a worker occupy threads far longer than later runs: "
        "{took} against {usual} (medians).",
        "{runs:first run} on {workers} of {workers_of_function:worker} took longer than "
        f"usual{more}. Together they cost {{lost}} of thread time. These times include "
        "deserializing and other overhead around the function, but not CPU wait. The runs used "
        f"the CPU for {{on_cpu}} of their time. {did}{_ONCE}See Elapsed in stragglers().",
        "Prepare workers before {function} runs: import libraries (client.run, or a worker "
        "plugin), compile (Numba: cache=True), open files, and fill caches. Reuse workers "
        "instead of starting new ones.",
        took=Seconds(np.median(first.excess[of_function] + first.usual[of_function])),
        usual=Seconds(first.usual[of_function][0]),
        runs=Count(of_function.sum()),
        workers=Count(len(np.unique(worker[first.rows[of_function]]))),
        workers_of_function=Count(len(np.unique(worker[run.functions.codes == most]))),
        more_functions=Count(len(np.unique(codes)) - 1),
        lost=Seconds(lost),
        on_cpu=Share(ratio(run.cpu[first.rows].sum(), run.working[first.rows].sum())),
        library=library,
        seconds=seconds,
        at_most="low",
        function=name,
    )


_ONCE = "Each worker pays this cost once, so it does not grow with the length of the run. "


def _imports_as_tasks_arrive(run: RunFigures) -> Iterator[Finding]:
    imported, libraries = run.imported_on_the_way
    seconds = run.share_of_imports * run.seconds_of(ThreadTime.ON_ITS_WAY)
    if not seconds > 0 or seconds < _GAIN * run.wall:
        return
    # Modules of the program and of Python are not named in the finding.
    names = [name for name in libraries if name.isidentifier()][:_MOST_SLOW]
    # Workers have already imported Dask, so the advice to import it would have no effect.
    module = next((repr(name) for name in names if name not in {"dask", "distributed"}), "...")
    yield Finding.of(
        f"Workers imported {', '.join(names) or 'modules'} when their first tasks arrived. These "
        "tasks waited for up to {longest} each.",
        "Imports blocked the workers' event loops for {share} of the time in which tasks were in "
        f"transit from the scheduler. {_ONCE}See loop_blocks().",
        f"Import these modules in advance with client.run(lambda: __import__({module}), "
        "wait=False), while your script reads data and builds graphs, or reuse workers instead of "
        "starting new ones. "
        "This is worthwhile if your runs are as short as this one.",
        longest=Seconds(run.slots.on_its_way[imported > 0].max()),
        share=Share(run.share_of_imports),
        libraries={name: Seconds(took) for name, took in libraries.items()},
        seconds=seconds,
        at_most="low",
    )
