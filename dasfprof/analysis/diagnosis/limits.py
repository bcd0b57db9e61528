"""Rules about limits that the system sets for workers: CPU quotas and open files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.registry import Change, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.processes import counter_growth
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.wording import Count, Factor, Seconds, Share
from dasfprof.text import excerpt

#: Thresholds: fraction of the run for which a quota was used up, and open files as a fraction of
#: their limit.
_THROTTLED, _NEAR = 0.05, 0.8


@rule(
    "cpu-quota",
    explains="cpu-oversubscribed stragglers slow-worker dominant-function",
    refutes="more-threads share-memory",
    because="the CPU quota of the control group is used up",
)
def cpu_quota(run: RunFigures) -> Iterator[Finding]:
    """Find control groups whose CPU quota was used up, so that their threads had to wait."""
    throttled = counter_growth(run.trace, run.trace.samples, "throttled_seconds")
    quotas = run.trace.workers["cpu_quota"].to_numpy(dtype=float)
    # All workers of a control group read the same counter, which adds up the time of all cores of
    # the quota.
    stopped = np.nan_to_num(throttled / np.maximum(np.ceil(quotas), 1.0))
    seconds = min(float(stopped.max(initial=0.0)), run.wall)
    if not seconds > 0 or seconds < _THROTTLED * run.wall:
        return
    worst, group = run.trace.workers.iloc[int(stopped.argmax())], ["host", "cpu_group"]
    limited = run.trace.workers[np.isfinite(quotas)]
    same = limited[(limited[group] == worst[group]).all(axis=1).to_numpy(dtype=bool)]
    quota, threads = float(worst["cpu_quota"]), int(same["nthreads"].fillna(1).sum())
    fewer = max(int(quota) // len(same), 1)
    too_many = fewer * len(same) < threads
    yield Finding.of(
        "The CPU quota of a control group stops workers: {workers:worker} with {threads:thread} on "
        "{host} may use {quota} cores. They used up this quota, and were stopped for {stopped} "
        "({share} of the run).",
        "The control group is {group}. Tasks waited for a core for {waited} per thread, which "
        "includes the time for which they were stopped.",
        "Give the container or job more CPU: resources.limits.cpu of Kubernetes, --cpus of Docker, "
        "--cpus-per-task of Slurm, or CPUQuota= of systemd. Limit the threads of libraries "
        "(OMP_NUM_THREADS=1)"
        + (
            f", and run no more threads than the quota has cores: threads_per_worker={fewer}."
            if too_many
            else "."
        ),
        workers=Count(len(same)),
        threads=Count(threads),
        host=str(worst["host"]),
        group=excerpt(str(worst["cpu_group"])),
        quota=Factor(quota),
        stopped=Seconds(seconds),
        share=Share(seconds / run.wall),
        waited=Seconds(float(run.core_wait.sum()) / run.threads),
        settings=[Change.of_cluster(threads_per_worker=fewer)] if too_many else [],
        costs=seconds,
    )


@rule("descriptor-limit")
def descriptor_limit(run: RunFigures) -> Iterator[Finding]:
    """Find workers with nearly as many open files as their processes may have."""
    limits = run.trace.workers["descriptor_limit"].to_numpy(dtype=float)
    most = run.highest("num_fds")
    share = np.nan_to_num(ratio(most, limits))
    if share.max(initial=0.0) < _NEAR:
        return
    worst = int(share.argmax())
    yield Finding.of(
        "A worker has nearly reached its limit on open files: {files} of {limit}.",
        f"{{workers:worker}} reached at least {Share(_NEAR)} of the limit. Connections count as "
        "open files. At the limit, opening a file fails with 'Too many open files'. See "
        "processes_resource_usage().",
        "Raise the limit where workers start (ulimit -n, LimitNOFILE= of systemd, --ulimit nofile "
        "of Docker), close files in tasks, or keep fewer requests open at a time, with fewer "
        "threads per worker or a lower async.concurrency in Zarr.",
        files=Count(most[worst]),
        limit=Count(limits[worst]),
        workers=Count(np.count_nonzero(share >= _NEAR)),
        worker=run.life_label(worst),
        severity="medium",
    )
