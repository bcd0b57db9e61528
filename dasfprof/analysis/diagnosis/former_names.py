"""Former names of findings, which commands accept until version 0.4.

Versions before 0.3 wrote these names into their JSON documents and summaries.
"""

#: New names of findings by their former names.
FORMER_NAMES = {
    "given-up-tasks": "cancelled-tasks",
    "killed-workers": "killed-worker-errors",
    "failed-attempts": "retried-tasks",
    "errors": "failed-tasks",
    "first-use": "warm-up",
    "single-gathers": "repeated-gathers",
    "large-results": "large-gathers",
    "tokenising": "slow-tokenization",
    "sent-by-value": "large-objects-in-graph",
    "cluster-lock": "distributed-lock",
    "waits-for-tasks": "missing-secede",
    "late-start": "slow-startup",
    "late-receipt": "slow-dispatch",
    "client-gaps": "client-bound",
    "one-at-a-time": "sequential-submission",
    "fat-partitions": "data-skew",
    "straggling-tasks": "stragglers",
    "imbalance": "load-imbalance",
    "memory-pressure": "paused-workers",
    "dominating-function": "dominant-function",
    "lock-bound": "gil-contention",
    "process-lock": "per-process-lock",
    "waits-in-turn": "shared-bottleneck",
    "missing-evidence": "incomplete-trace",
    "memory-grows": "memory-growth",
}
