"""The rules of the diagnosis, and which of their findings bring about which others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dasfprof.analysis.diagnosis.balance import (
    fat_partitions,
    imbalance,
    poor_placement,
    slow_worker,
    straggling_tasks,
)
from dasfprof.analysis.diagnosis.cores import (
    blocked_tasks,
    cpu_oversubscribed,
    io_bound,
    lock_bound,
)
from dasfprof.analysis.diagnosis.data_movement import (
    host_memory_full,
    memory_near_limit,
    memory_pressure,
    spilling,
    transfer_bound,
)
from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.gpus import gpu_idle, gpu_memory_full, gpu_unused
from dasfprof.analysis.diagnosis.outcomes import (
    errors,
    failed_attempts,
    lost_workers,
    no_worker_fits,
    recomputation,
    unfinished_tasks,
)
from dasfprof.analysis.diagnosis.over_time import client_gaps, degrading_functions
from dasfprof.analysis.diagnosis.overheads import (
    deserialising,
    scheduler_bound,
    tasks_too_small,
)
from dasfprof.analysis.diagnosis.parallelism import (
    dominating_function,
    serial_chain,
    too_few_tasks,
)
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.trace_quality import clocks_apart, missing_evidence

#: Gives the findings of one kind; without the evidence for it, none.
Rule = Callable[[RunFigures], Iterator[Finding]]

#: By slug, which is stable. Of equally grave findings with equal seconds the earlier comes first.
RULES: dict[str, Rule] = {
    "errors": errors,
    "lost-workers": lost_workers,
    "no-worker-fits": no_worker_fits,
    "unfinished-tasks": unfinished_tasks,
    "failed-attempts": failed_attempts,
    "tasks-too-small": tasks_too_small,
    "client-gaps": client_gaps,
    "slow-worker": slow_worker,
    "fat-partitions": fat_partitions,
    "straggling-tasks": straggling_tasks,
    "degrading-functions": degrading_functions,
    "spilling": spilling,
    "memory-pressure": memory_pressure,
    "host-memory-full": host_memory_full,
    "memory-near-limit": memory_near_limit,
    "transfer-bound": transfer_bound,
    "poor-placement": poor_placement,
    "imbalance": imbalance,
    "serial-chain": serial_chain,
    "too-few-tasks": too_few_tasks,
    "recomputation": recomputation,
    "cpu-oversubscribed": cpu_oversubscribed,
    "lock-bound": lock_bound,
    "gpu-idle": gpu_idle,
    "gpu-memory-full": gpu_memory_full,
    "gpu-unused": gpu_unused,
    "dominating-function": dominating_function,
    "io-bound": io_bound,
    "blocked-tasks": blocked_tasks,
    "scheduler-bound": scheduler_bound,
    "deserialising": deserialising,
    "missing-evidence": missing_evidence,
    "clocks-apart": clocks_apart,
}

#: What a finding of one rule brings about: findings of the others are its symptoms, unless far more
#: seconds are at stake there.
SYMPTOMS: dict[str, tuple[str, ...]] = {
    "slow-worker": (
        "imbalance",
        "serial-chain",
        "too-few-tasks",
        "straggling-tasks",
        "poor-placement",
        "dominating-function",
        "blocked-tasks",
        "degrading-functions",
    ),
    "fat-partitions": (
        "straggling-tasks",
        "imbalance",
        "serial-chain",
        "too-few-tasks",
        "dominating-function",
        "transfer-bound",
    ),
    "straggling-tasks": ("imbalance", "serial-chain", "too-few-tasks"),
    "degrading-functions": (
        "straggling-tasks",
        "dominating-function",
        "blocked-tasks",
        "imbalance",
        "too-few-tasks",
    ),
    "serial-chain": ("imbalance", "too-few-tasks", "dominating-function"),
    "poor-placement": ("imbalance", "serial-chain", "too-few-tasks"),
    "imbalance": ("too-few-tasks",),
    "tasks-too-small": (
        "scheduler-bound",
        "imbalance",
        "serial-chain",
        "too-few-tasks",
        "poor-placement",
        "transfer-bound",
        "client-gaps",
        "lock-bound",
    ),
    "client-gaps": ("too-few-tasks", "serial-chain", "imbalance"),
    "spilling": (
        "blocked-tasks",
        "io-bound",
        "straggling-tasks",
        "degrading-functions",
        "serial-chain",
        "too-few-tasks",
        "imbalance",
        "transfer-bound",
        "memory-pressure",
        "tasks-too-small",
    ),
    "memory-pressure": ("too-few-tasks", "serial-chain", "imbalance", "poor-placement"),
    "transfer-bound": ("imbalance", "too-few-tasks", "serial-chain", "deserialising"),
    "lost-workers": ("recomputation", "imbalance", "too-few-tasks", "serial-chain"),
    "failed-attempts": ("recomputation", "straggling-tasks", "imbalance", "too-few-tasks"),
    "lock-bound": ("blocked-tasks", "dominating-function", "cpu-oversubscribed"),
    "cpu-oversubscribed": (
        "tasks-too-small",
        "scheduler-bound",
        "dominating-function",
        "straggling-tasks",
        "degrading-functions",
    ),
    "dominating-function": ("blocked-tasks",),
    "recomputation": ("tasks-too-small", "dominating-function", "blocked-tasks", "io-bound"),
}
