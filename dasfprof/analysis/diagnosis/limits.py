"""Rules about limits that the system sets for workers: CPU quotas and open files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import Change, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.numeric.groups import Groups, ratio
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
    samples = run.trace.samples.reindex(columns=["worker_id", "throttled_seconds"]).dropna()
    limited = run.trace.workers[run.trace.workers["cpu_quota"].notna().to_numpy(dtype=bool)]
    samples = samples[samples["worker_id"].isin(limited.index).to_numpy(dtype=bool)]
    if not len(samples) or not run.wall > 0:
        return
    of_workers = samples.astype(float).groupby("worker_id")["throttled_seconds"]
    throttled = (of_workers.max() - of_workers.min()).reindex(limited.index).fillna(0.0)
    # All workers of a control group read the same counter, which adds up the time of all cores of
    # the quota.
    stopped = (throttled / np.maximum(np.ceil(limited["cpu_quota"]), 1.0)).to_numpy()
    worst = limited.iloc[int(stopped.argmax())]
    seconds = min(float(stopped.max()), run.wall)
    if seconds < _THROTTLED * run.wall:
        return
    group = ["host", "cpu_group"]
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
    samples, workers = run.trace.samples, run.trace.workers
    if "num_fds" not in samples or not len(samples):
        return
    groups = Groups(samples["worker_id"].to_numpy(), len(workers))
    most = groups.max(pd.to_numeric(samples["num_fds"], errors="coerce").to_numpy(dtype=float))
    limits = workers["descriptor_limit"].to_numpy(dtype=float)
    share = np.nan_to_num(ratio(most, limits))
    if share.max() < _NEAR:
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
