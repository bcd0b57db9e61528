"""Rules about how tasks use CPU cores: too many threads, locks, and garbage collection."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.registry import FEWER, Change, Finding, Value, needs_cores, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.processes import host_programs, other_threads, other_threads_cpu
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.stack_samples.places import all_stacks, library_of
from dasfprof.analysis.stack_samples.spent import parts_of, samples_of, split
from dasfprof.analysis.wording import Count, Factor, Figures, Seconds, Share
from dasfprof.database.columns import Array
from dasfprof.text import excerpt

#: Environment variables that limit the threads of libraries. Threshold (cores): if other programs
#: use this many, they are named as the cause.
LIMITS, BLAMED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 0.5
#: Environment variables of libraries that have thread pools, by library.
_POOLS = {
    "polars": "POLARS_MAX_THREADS",
    "numba": "NUMBA_NUM_THREADS",
    "numexpr": "NUMEXPR_NUM_THREADS",
    "rasterio": "GDAL_NUM_THREADS",
}
#: Threshold: a task run counts as using the CPU if the fraction of its time on the CPU, multiplied
#: by the mean number of concurrent task runs on its worker, is at least this.
_USES_CPU = 0.5
#: Thresholds of lock contention between tasks that use the CPU: minimum fraction of their time in
#: waits other than CPU wait, minimum mean number of concurrent task runs in a process, and maximum
#: number of cores that they use.
_LOCKED = 0.12
_BESIDE = 1.5
_CORES_OF_A_LOCK = 1.3
#: Thresholds of threads that libraries start: the CPU time of tasks and these threads together, as
#: a multiple of the CPU time of the tasks, and the minimum CPU seconds of these threads.
_NATIVE, _NATIVE_LEAST = 1.5, 0.5
#: Threshold (fraction of the task durations): CPU wait that is reported.
_CORE_WAIT = 0.2
#: Thresholds of garbage collection: fraction of a function's CPU time, and fraction of thread time.
_COLLECTING, _COLLECTED = 0.2, 0.05
#: Minimum number of cores used by a program that is named, and maximum number of named programs.
_NAMED, _MOST_NAMED = 0.05, 3


@rule(
    "gil-contention",
    explains="dominant-function",
    causes="blocked-tasks cpu-oversubscribed",
    refutes="more-threads share-memory",
    because="threads of one process compete for a lock",
)
def gil_contention(run: RunFigures) -> Iterator[Finding]:
    """Find threads of one process that compete for the GIL or another lock."""
    worker, beside = run.trace.tasks["worker_id"].to_numpy(), _beside(run)
    using = run.on_cpu * beside >= _USES_CPU
    groups = Groups(np.where(using, worker, -1), len(run.trace.workers))
    seconds, covered = groups.sum(run.working), _covered(run, groups)
    cores = ratio(groups.sum(run.cpu), covered)
    lasted = groups.sum(run.lasted)
    blocked = ratio(seconds - groups.sum(run.cpu), lasted)
    at_a_time = ratio(groups.sum(beside * using), groups.sizes.astype(float))
    contended = (at_a_time >= _BESIDE) & (cores <= _CORES_OF_A_LOCK) & (blocked >= _LOCKED)
    lost = float((seconds - groups.sum(run.cpu))[contended].sum()) / run.threads
    if not contended.any() or lost < 0.05 * run.wall:
        return
    rows = np.flatnonzero(contended[worker] & using)
    lock, others = _sampled_waits(run, np.unique(run.functions.codes[rows]))
    if not lock >= others:
        return  # These tasks sleep, wait for something other than the GIL, or were hardly sampled.
    waits = run.waits_for_cores
    yield Finding.of(
        "Threads compete for the GIL of their process: {at_a_time} tasks at a time, most of them "
        "{function}, use only {cores} cores.",
        "For {blocked} of their time, these tasks neither used a core nor waited for one. Stack "
        "samples show that they waited for the GIL for {sampled} of their time. This affects "
        f"{{tasks:task}} on {{workers:worker}}. {needs_cores(waits)}See "
        'time_accounting("function").',
        "Use processes instead of threads: start {threads} times as many workers with "
        "threads_per_worker=1, or make {function} release the GIL (NumPy, Numba with nogil=True).",
        function=most_of(run, rows),
        sampled=Share(lock),
        at_a_time=Factor(at_a_time[contended].mean()),
        cores=Factor(cores[contended].mean()),
        blocked=Share(blocked[contended].mean()),
        tasks=Count(len(rows)),
        workers=Count(contended.sum()),
        core_wait=waits,
        threads=threads_per_worker(run),
        settings=[processes_in_place_of_threads(run)],
        seconds=run.saved(lost, running=without_waiting(run, rows)),
    )


#: Minimum number of samples to distinguish waits for the GIL from others.
_FEWEST = 20


def _sampled_waits(run: RunFigures, functions: Array) -> tuple[float, float]:
    """Return the fractions of the functions' time spent in waits for the GIL and in other waits.

    Both are NaN if there are too few samples or if the state of the threads is unknown.
    """
    samples, of_function = samples_of(run.trace)
    selected = np.isin(of_function - 1, functions)
    samples, of_function = samples.take(selected), of_function[selected]
    if len(samples) < _FEWEST:
        return np.nan, np.nan
    group_ids = np.zeros(len(samples), dtype=np.int64)
    parts = split(parts_of(samples, of_function).summed(group_ids, 1))
    lock, others = (ratio(each, parts.seconds)[0] for each in (parts.lock_wait, parts.waiting))
    return float(lock), float(others)


@rule(
    "cpu-oversubscribed",
    causes="tasks-too-small scheduler-bound dominant-function stragglers slow-dispatch",
    refutes="more-threads",
    because="tasks wait for CPU",
)
def cpu_oversubscribed(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that wait for a core because too many threads want to run on their host."""
    using = run.on_cpu * _beside(run) >= _USES_CPU
    # A task that waits for a core for most of its time would use it.
    using |= run.core_wait >= _USES_CPU * run.lasted
    seconds = float(run.lasted[using].sum())
    waited = float(run.core_wait[using].sum())
    lost = waited / run.threads
    if not seconds > 0 or waited < _CORE_WAIT * seconds or lost < 0.05 * run.wall:
        return
    task_cpu, process = float(run.cpu[using].sum()), run.process_cpu_seconds
    more_threads = _beyond_tasks(run) > (_NATIVE - 1) * task_cpu
    others = _other_programs(run)
    cores, threads = sum(run.trace.surroundings.cores.values()), round(run.threads)
    fits = threads <= cores and not more_threads
    foreign = fits and others is not None and others.cores >= BLAMED
    enough = fits and not foreign
    unlimited = _unlimited(run)
    changes: list[Change] = []
    if more_threads and (names := LIMITS if unlimited is None else unlimited):
        changes = [Change(dict.fromkeys(names, "1"), ("threads_per_worker",))]
    elif threads > cores and not more_threads:
        changes = _no_more_than_cores(run, cores, others)
    programs, blamed = _programs_in_words(others)
    move = "Move other programs off the host ({_blamed})"
    if enough:
        advice = (
            "Check what else runs on the hosts, such as the scheduler and the client. What used "
            "the cores was not recorded. Fewer threads alone would not help."
        )
    elif more_threads:
        advice = _limit_in_words(unlimited) + (f" {move}." if blamed else "")
    elif blamed:
        # With fewer threads than cores, the run would get a smaller part of the host.
        fewer = (
            ", or run fewer threads: over all workers, at most one per core that the other "
            "programs leave free"
        )
        advice = f"{move}{fewer if threads > cores else ''}."
    else:
        advice = "Run fewer threads: at most one per core, counted over all workers on the host" + (
            "."
            if others is not None
            else ". Also check the host for other programs, which this trace does not record."
        )
    yield Finding.of(
        "Tasks that use the CPU wait for a core for {share} of their time, although there are "
        "only {threads:thread} for {cores:core}."
        if enough
        else f"{'Other programs use the cores' if foreign else 'The hosts have too few cores'}: "
        "tasks that use the CPU wait for a core for {share} of their time.",
        "Of the {lasted} that these tasks took, {waited} was CPU wait. For all tasks, CPU wait is "
        "{share_of_all} of thread time. The worker processes used {processes} of CPU time, {tasks} "
        "of it in the threads of these tasks. {_programs}See host_processes(), "
        "node_resource_usage() and time_accounting().",
        advice,
        share=Share(waited / seconds),
        waited=Seconds(waited),
        lasted=Seconds(seconds),
        share_of_all=Share(run.share_of(ThreadTime.WAITING_FOR_A_CORE)),
        processes=Seconds(process),
        tasks=Seconds(task_cpu),
        own_threads=more_threads,
        unlimited=unlimited,
        settings=changes,
        other_programs=others,
        _programs=programs,
        _blamed=blamed,
        threads=Count(threads),
        cores=Count(cores) if enough else None,
        costs=float("nan") if enough else lost,
        at_most="low" if enough else "high",
        at_least="low" if enough else "info",
        foreign=foreign,
    )


def _no_more_than_cores(run: RunFigures, cores: int, others: Figures | None) -> list[Change]:
    """Return a change to at most one thread per core in the cluster.

    Cores that other programs use do not count. If `cores` is 0, the number of cores is unknown, and
    each worker gets fewer threads.
    """
    if not cores:
        return fewer_threads(run)  # The number of cores was not recorded.
    used = others.cores if others is not None and others.cores >= BLAMED else 0.0
    workers, most = run.worker_count, max(int(cores - used), 1)
    fewer: dict[str, Value] = {"n_workers": most} if workers > most else {}
    return [Change.of_cluster(threads_per_worker=max(most // workers, 1), **fewer)]


def _beyond_tasks(run: RunFigures) -> float:
    """Return the CPU seconds that threads of libraries used while tasks ran.

    The result does not include imports, unpickling in a process without a running task, or threads
    of P2P shuffles.
    """
    shuffles = np.unique(run.functions.codes[p2p_runs(run.trace)])
    of_shuffles = set(run.function_names[shuffles].tolist())
    by_function = other_threads_cpu(run.trace)
    certain = sum(cpu for name, cpu in by_function.items() if name not in of_shuffles)
    shared = 0.0 if of_shuffles else other_threads(run.trace).shared
    return certain + shared if certain + shared >= _NATIVE_LEAST else 0.0


def _unlimited(run: RunFigures) -> tuple[str, ...] | None:
    """Return the environment variables that some worker with tasks does not set to 1.

    The result is None if the variables of some worker with tasks were not recorded.
    """
    libraries = sampled_libraries(run)
    # If tasks were sampled in libraries that have thread pools, only the variables of these
    # libraries matter.
    wanted = [name for library, name in _POOLS.items() if library in libraries] or LIMITS
    ran = np.unique(run.trace.tasks["worker_id"].to_numpy())
    limits = run.trace.workers["thread_limits"].iloc[ran].tolist()
    if not all(isinstance(each, dict) for each in limits):
        return None
    return tuple(name for name in wanted if any(each.get(name) != "1" for each in limits))


def sampled_libraries(run: RunFigures, function: str | None = None) -> set[str]:
    """Return the libraries in which tasks (of `function`, if it is given) were sampled."""
    seen = np.unique(samples_of(run.trace, function)[0].stack)
    stacks = all_stacks(run.trace)
    frames = (frame for number in seen[seen >= 0].tolist() for frame in stacks[number])
    return {library_of(frame.file) for frame in frames}


def _limit_in_words(unlimited: tuple[str, ...] | None) -> str:
    names = LIMITS if unlimited is None else unlimited
    wanted = ", ".join(f"{name}=1" for name in names)
    if not names:
        return (
            "Limit the threads of libraries in the code that starts them, for example with "
            "threadpoolctl.threadpool_limits(1), torch.set_num_threads(1) or n_jobs=1. Threads "
            f"that run no task use the CPU, although {', '.join(f'{name}=1' for name in LIMITS)} "
            "are set for the workers."
        )
    unknown = " (whether they are already set is not recorded)" if unlimited is None else ""
    return (
        f"Set {wanted} for the workers{unknown}: the libraries that tasks use start additional "
        "threads."
    )


def _other_programs(run: RunFigures) -> Figures | None:
    """Return how many cores other programs used, on the host where this number is highest.

    The result is None if no busy host was sampled.
    """
    known = host_programs(run.trace)
    if not known.looks:
        return None
    others = known.programs[~known.programs["ours"].to_numpy(dtype=bool)]
    by_host = {host: others[others["host"] == host] for host in known.looks}
    host, programs = max(by_host.items(), key=lambda item: float(item[1]["cores"].sum()))
    names = [
        f"{excerpt(name)} of {excerpt(owner)}"
        for name, owner in zip(programs["name"], programs["owner"], strict=True)
    ]
    used = {
        name: Factor(cores)
        for name, cores in zip(names[:_MOST_NAMED], programs["cores"], strict=False)
        if cores >= _NAMED or name == names[0]
    }
    cores, looks = Factor(programs["cores"].sum()), Count(known.looks[host])
    return Figures(host=str(host), cores=cores, looks=looks, programs=used)


def idle_share(run: RunFigures) -> float:
    """Return the fraction of the hosts' CPU that was idle during the run.

    The fraction is 1 if it is unknown, or if other programs used much CPU or were not recorded.
    """
    samples, others = run.trace.samples, _other_programs(run)
    if "host_cpu" not in samples or others is None or others.cores >= BLAMED:
        return 1.0
    since = run.trace.since_begin(samples["time"]) - run.begin
    during = (since >= 0) & (since <= run.wall) & (samples["host_read"].to_numpy() == 1)
    busy = samples["host_cpu"].to_numpy(dtype=float)[during]
    busy = busy[np.isfinite(busy)]
    return 1.0 - float(busy.mean()) / 100 if len(busy) else 1.0


def _programs_in_words(others: Figures | None) -> tuple[str, str]:
    """Return a sentence about the CPU use of other programs, and the names of programs to blame.

    The names are empty if the other programs use too few cores to be the cause of waits.
    """
    if others is None:
        return "", ""
    if others.cores < _NAMED:
        return (
            f"All other programs on {others.host} together used less than {Share(_NAMED)} of a "
            f"core (in {others.looks:sample}). "
        ), ""
    named = ", ".join(f"{program} {cores}" for program, cores in others.programs.items())
    cores = f"{others.cores} core{'s' * (str(others.cores) != '1')}"
    used = f"{cores} of {others.host} (in {others.looks:sample})"
    blame = ", ".join(others.programs) if others.cores >= BLAMED else ""
    return f"Other programs used {used}: {named}. ", blame


@rule("garbage-collection", explains="dominant-function stragglers")
def garbage_collection(run: RunFigures) -> Iterator[Finding]:
    """Find functions that spend much of their CPU time in Python's garbage collector."""
    collecting = np.minimum(np.nan_to_num(run.task_column("collecting")) * run.held, run.cpu)
    taken, cpu = run.functions.sum(collecting), run.functions.sum(run.cpu)
    much = ratio(taken, cpu) >= _COLLECTING
    lost = float(taken[much].sum()) / run.threads
    if not much.any() or lost < _COLLECTED * run.wall:
        return
    rows = np.flatnonzero(much[run.functions.codes])
    most = int(np.where(much, taken, 0.0).argmax())
    left = run.working[rows] - collecting[rows] + run.core_wait[rows]
    more = " The same is true of {others:other function}." if much.sum() > 1 else ""
    yield Finding.of(
        "Python's garbage collector takes {share} of the CPU time of {function}.",
        "It took {taken} of the {cpu} of CPU time in {tasks:task}, not counting collections of the "
        f"youngest generation.{more} The collector starts when the number of container objects "
        "(lists, dicts, tuples, instances) has grown by a threshold. It then visits these objects, "
        "including those in results that workers keep. See per_function_bottleneck().",
        "Create fewer container objects in {function} and in results that workers keep: use "
        "NumPy arrays, Arrow tables or columns of a DataFrame instead of lists and dicts. If "
        "many results stay in memory, call client.run(gc.freeze) once they exist. The collector "
        "then skips them, and reference cycles among them are never freed.",
        function=str(run.function_names[most]),
        share=Share(taken[most] / cpu[most]),
        taken=Seconds(taken[most]),
        cpu=Seconds(cpu[most]),
        tasks=Count(run.functions.sizes[most]),
        others=Count(much.sum() - 1),
        seconds=run.saved(lost, running=run.with_durations(rows, left)),
    )


def processes_in_place_of_threads(run: RunFigures) -> Change:
    """Return the change to single-threaded workers with the same total number of threads."""
    workers = int(threads_per_worker(run)) * run.worker_count
    return Change.of_cluster(n_workers=workers, threads_per_worker=1, processes=True)


def fewer_threads(run: RunFigures) -> list[Change]:
    """Return the change to fewer threads per worker, or [] if workers are single-threaded."""
    several = threads_per_worker(run) >= 2
    return [Change.of_cluster(threads_per_worker=FEWER)] if several else []


def without_waiting(run: RunFigures, rows: Array) -> Array:
    """Return the durations of all task runs, as if the task runs in `rows` waited only for CPU."""
    return run.with_durations(rows, run.cpu[rows] + run.core_wait[rows])


def _beside(run: RunFigures) -> Array:
    """Return, for each task run, the mean number of concurrent task runs on its worker."""
    worker = run.trace.tasks["worker_id"].to_numpy()
    groups = Groups(worker, len(run.trace.workers))
    seconds = groups.sum(run.lasted)
    return np.nan_to_num(ratio(seconds, _covered(run, groups)), nan=1.0)[worker]


def _covered(run: RunFigures, groups: Groups) -> Array:
    """Return, for each group, the seconds for which at least one of its task runs was running."""
    rows = np.flatnonzero(groups.codes >= 0)
    start, lasted = run.slots.times.start[rows], run.lasted[rows]
    if not len(rows):
        return np.zeros(groups.count)
    # Shift the times so that each group comes after the groups before it.
    span = float((start + lasted).max() - start.min()) + 1.0
    shifted = start - start.min() + 0.5 + groups.codes[rows] * span
    begins, ends = union(shifted, shifted + lasted)
    of_range = (begins // span).astype(np.int64)
    return np.bincount(of_range, weights=ends - begins, minlength=groups.count)


def most_of(run: RunFigures, rows: Array) -> str:
    """Return the function with most seconds among the task runs `rows`, not counting CPU wait."""
    seconds = np.bincount(run.functions.codes[rows], weights=run.working[rows])
    return str(run.function_names[int(seconds.argmax())])


def cpu_share(run: RunFigures, name: str) -> Share:
    """Return the CPU time of a function as a fraction of its time without CPU wait."""
    rows = run.rows_of(name)
    seconds = float(run.working[rows].sum())
    return Share(run.cpu[rows].sum() / seconds if seconds > 0 else 0.0)


def threads_per_worker(run: RunFigures) -> Count:
    """Return the median number of threads per worker."""
    return Count(np.median(run.accounts.lives.threads))
