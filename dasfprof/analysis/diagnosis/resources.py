"""The rule about resources that a run did not need."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.registry import Change, Finding, Value, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.run.memory_thresholds import memory_thresholds
from dasfprof.analysis.simulation.clusters import most_of_runs
from dasfprof.analysis.simulation.inputs import ReplayCluster
from dasfprof.analysis.simulation.memory import memory_forecast_of
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.analysis.under_way.from_trace import state_from_trace
from dasfprof.analysis.wording import Bytes, Count, Seconds, Share

#: Minimum seconds of a run, and maximum number of its tasks. Predictions replay the run up to about
#: 100 times.
_SHORTEST, _MOST_TASKS = 30.0, 5_000
#: Maximum wall time of nine in ten runs on a smaller cluster, as a multiple of the recorded one.
_LONGER = 1.1
#: Threshold (fraction of the recorded thread time) for a smaller cluster, and for the tasks.
_NEEDED = 0.6
#: Maximum fraction of thread time that is spent on work other than the run's tasks.
_OTHER_WORK = 0.05
_OTHERS = ThreadTime.CALLS_OF_ACTORS, ThreadTime.FUNCTIONS_OUTSIDE_TASKS, ThreadTime.OTHER_CLIENTS
#: Thresholds: peak memory as a fraction of an unused limit, and the sum of a host's limits as a
#: fraction of its memory. If the sum is larger, Dask may have divided the host's memory among its
#: workers.
_UNUSED, _DIVIDED = 0.25, 0.9
#: Threshold (fraction of the wall time): waits for workers that adaptive scaling starts.
_WAITED = 0.05


@rule("resources-not-needed")
def resources_not_needed(run: RunFigures) -> Iterator[Finding]:
    """Find workers, threads or memory without which the run would take about as long."""
    if len(run.trace.tasks) > _MOST_TASKS or state_from_trace(run.trace) is not None:
        return
    replay = replay_of(run.trace)
    wall, recorded = replay.inputs.wall, replay.cluster
    if wall < _SHORTEST or replay.refusal:
        return
    existed = np.maximum(np.minimum(recorded.left, wall) - recorded.joined, 0.0)
    provided, held = float((recorded.threads * existed).sum()), float(replay.held().sum())
    is_idle = held <= _NEEDED * provided and run.share_of(*_OTHERS) <= _OTHER_WORK
    limits = run.memory_limits[run.memory_limits > 0]
    limit = float(np.median(limits)) if len(limits) else 0.0
    has_unused_memory = _has_unused_memory(run, limit)
    if not limit or not (is_idle or has_unused_memory):
        return
    forecast, comfortable = memory_forecast_of(run.trace), memory_thresholds(run.trace).comfortable
    if forecast.obstacle:
        return
    workers, threads = recorded.most_workers, int(np.median(recorded.threads))
    adaptive = bool((run.trace.cluster_changes["action"] == "adapt").any())
    # Without adaptive scaling, all workers would exist from the start.
    fixed = ReplayCluster(np.full(workers, threads), np.zeros(workers), np.full(workers, np.inf))
    base = fixed if adaptive else recorded

    def seconds_on(cluster: ReplayCluster) -> float:
        return replay.predicted(replay.outcome(cluster=cluster).wall)

    def suffices(cluster: ReplayCluster) -> bool:
        slowest = most_of_runs(replay, seconds_on(cluster))
        if slowest > _LONGER * wall or replay.refusal_on(cluster):
            return False
        return forecast.peaks(cluster).process.most <= comfortable * limit

    chosen, settings, words = recorded, dict[str, Value](), ""
    for name, count, noun, make in (
        ("n_workers", workers, "workers", base.with_workers),
        ("threads_per_worker", threads, "threads per worker", base.with_threads),
    ):
        clusters = [make(number + 1) for number in range(count // 2 if is_idle else 0)]
        fewest = bisect_left(clusters, True, key=suffices)
        if fewest == len(clusters):
            continue
        cluster = clusters[fewest]
        if cluster.most_threads * seconds_on(cluster) <= _NEEDED * provided:
            chosen, settings, words = cluster, {name: fewest + 1}, f"{fewest + 1} of {count} {noun}"
            break
    likely, process = seconds_on(chosen), forecast.peaks(chosen).process.most
    enough = math.ceil(process / comfortable)
    advice = [f"request {words.replace(' of ', ' instead of ')}"] if words else []
    if has_unused_memory and enough <= 0.5 * limit:
        settings["memory_limit"] = enough
        advice.append("set the memory_limit of each worker to {enough}")
    if not settings:
        return
    waited = wall - seconds_on(fixed) if adaptive else 0.0
    adapted = (
        "Adaptive scaling cost {waited}, which {workers:worker} from the start would have saved. "
    )
    text = " and ".join(advice)
    yield Finding.of(
        f"The run needed only {words}: it would take {{likely}} instead of {{wall}}."
        if words
        else "Each worker needed at most {process} of its memory limit of {limit}.",
        "Tasks occupied {busy} of the thread time. The process of the fullest worker would need at "
        "most {process} of memory. These are predictions. The calibration error of the replay is "
        f"{{error}}. {adapted if waited >= _WAITED * wall else ''}See cluster_sizing(), scaling() "
        "and memory_forecast().",
        f"{text[:1].upper()}{text[1:]}. Follow the advice of other findings first, because the run "
        "may then use more.",
        workers=Count(workers),
        threads=Count(threads),
        likely=Seconds(likely),
        wall=Seconds(wall),
        busy=Share(held / provided),
        error=Share(abs(replay.error)),
        process=Bytes(process),
        enough=Bytes(enough),
        limit=Bytes(limit),
        waited=Seconds(waited) if waited >= _WAITED * wall else None,
        settings=[Change.of_cluster(**settings)],
        severity="low",
    )


def _has_unused_memory(run: RunFigures, limit: float) -> bool:
    """Return whether workers used little of a memory limit that was set explicitly.

    By default, Dask divides a host's memory among its workers. The limits are therefore taken for
    explicit ones if those of each host add up to clearly less than the host's memory.
    """
    total = run.trace.samples.reindex(columns=["host_memory_total"]).max().iloc[0]
    peak = float(np.nan_to_num(run.highest("memory")).max(initial=0.0))
    limits = np.nan_to_num(run.memory_limits)
    hosts = run.trace.workers["host"].astype(str).to_numpy()
    of_hosts = [float(limits[hosts == host].sum()) for host in np.unique(hosts)]
    return 0 < peak <= _UNUSED * limit and max(of_hosts, default=0.0) <= _DIVIDED * float(total)
