"""How a rule of the diagnosis is registered, under a name that stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures

#: Yields the findings of one kind; without the evidence for it, none.
Rule = Callable[[RunFigures], Iterator[Finding]]

REGISTERED: dict[str, Rule] = {}

_SYMPTOMS = {
    "unfinished-run": (
        "blocked-tasks client-gaps dominating-function imbalance io-bound lock-bound "
        "lost-workers poor-placement scheduler-bound serial-chain straggling-tasks "
        "too-few-tasks"
    ),
    "killed-workers": (
        "imbalance lost-workers recomputation scheduler-bound serial-chain too-few-tasks"
    ),
    "failed-attempts": "recomputation straggling-tasks imbalance too-few-tasks",
    "lost-workers": "recomputation imbalance too-few-tasks serial-chain poor-placement",
    "recomputation": "tasks-too-small dominating-function blocked-tasks io-bound",
    "first-use": (
        "dominating-function straggling-tasks degrading-functions slow-worker imbalance "
        "serial-chain too-few-tasks late-receipt lock-bound io-bound blocked-tasks "
        "poor-placement"
    ),
    "tasks-too-small": (
        "scheduler-bound imbalance too-few-tasks poor-placement transfer-bound late-receipt "
        "lock-bound"
    ),
    "single-gathers": (
        "tasks-too-small client-gaps scheduler-bound late-receipt too-few-tasks serial-chain "
        "imbalance"
    ),
    "large-results": "client-gaps late-receipt too-few-tasks imbalance",
    "tokenising": "client-gaps late-start too-few-tasks serial-chain imbalance",
    "sent-by-value": (
        "tasks-too-small late-receipt scheduler-bound deserialising late-start client-gaps "
        "too-few-tasks imbalance tokenising"
    ),
    "client-gaps": "too-few-tasks serial-chain imbalance",
    "no-workers": "client-gaps too-few-tasks serial-chain imbalance",
    "degrading-functions": (
        "straggling-tasks dominating-function blocked-tasks imbalance too-few-tasks"
    ),
    "fat-partitions": (
        "straggling-tasks imbalance serial-chain too-few-tasks dominating-function transfer-bound"
    ),
    "straggling-tasks": "imbalance too-few-tasks sent-ahead",
    "slow-worker": (
        "imbalance serial-chain too-few-tasks straggling-tasks poor-placement "
        "dominating-function blocked-tasks degrading-functions"
    ),
    "imbalance": "too-few-tasks",
    "poor-placement": "imbalance serial-chain too-few-tasks",
    "sent-ahead": "imbalance serial-chain too-few-tasks",
    "transfer-bound": "imbalance too-few-tasks serial-chain deserialising",
    "spilling": (
        "blocked-tasks io-bound straggling-tasks degrading-functions serial-chain "
        "too-few-tasks imbalance transfer-bound memory-pressure tasks-too-small late-receipt"
    ),
    "memory-pressure": "too-few-tasks serial-chain imbalance poor-placement",
    "serial-chain": "imbalance too-few-tasks dominating-function",
    "dominating-function": "blocked-tasks",
    "lock-bound": "blocked-tasks dominating-function cpu-oversubscribed",
    "cpu-oversubscribed": (
        "tasks-too-small scheduler-bound dominating-function straggling-tasks "
        "degrading-functions late-receipt"
    ),
}
#: What explains others, however many seconds these cost: evidence of its own shows it.
_EXPLAINS = {
    "waits-in-turn": "slow-worker imbalance straggling-tasks degrading-functions poor-placement",
    "process-lock": (
        "lock-bound blocked-tasks io-bound waits-in-turn dominating-function straggling-tasks "
        "degrading-functions slow-worker imbalance cpu-oversubscribed"
    ),
    "cluster-lock": (
        "blocked-tasks waits-in-turn dominating-function straggling-tasks degrading-functions "
        "slow-worker imbalance serial-chain lock-bound poor-placement io-bound"
    ),
    "unmanaged-memory": "memory-near-limit",
    "memory-grows": "unmanaged-memory memory-near-limit",
    "garbage-collection": "dominating-function straggling-tasks degrading-functions",
    "resource-limit": (
        "blocked-tasks dominating-function imbalance poor-placement too-few-tasks serial-chain"
    ),
    "waits-for-tasks": (
        "blocked-tasks dominating-function straggling-tasks imbalance serial-chain too-few-tasks "
        "poor-placement waits-in-turn scheduler-bound client-gaps slow-worker"
    ),
    "sent-by-value": ("tasks-too-small late-receipt deserialising scheduler-bound single-gathers"),
    "tokenising": "client-gaps late-start",
    "single-gathers": "client-gaps scheduler-bound",
    "large-results": "client-gaps",
    "deserialising": "tasks-too-small scheduler-bound",
    "no-workers": "scheduler-bound blocked-tasks client-gaps too-few-tasks imbalance",
    "fat-partitions": (
        "straggling-tasks imbalance poor-placement sent-ahead dominating-function blocked-tasks"
    ),
    "straggling-tasks": "sent-ahead",
    "slow-worker": "sent-ahead",
    "poor-placement": "straggling-tasks blocked-tasks imbalance serial-chain too-few-tasks",
    "one-at-a-time": (
        "client-gaps blocked-tasks imbalance too-few-tasks serial-chain poor-placement "
        "scheduler-bound dominating-function"
    ),
    "client-gaps": "blocked-tasks imbalance too-few-tasks serial-chain",
}
EXPLAINS = {cause: tuple(symptoms.split()) for cause, symptoms in _EXPLAINS.items()}

#: What a finding of one rule brings about: findings of the others are its symptoms, unless more
#: seconds are at stake there.
SYMPTOMS = {cause: tuple(symptoms.split()) for cause, symptoms in _SYMPTOMS.items()}

#: Of equally grave findings those of these rules come first, in this order, whatever they cost:
#: there are no results. They are symptoms of each other alone.
FIRST = ("errors", "killed-workers", "unfinished-run", "lost-workers")


def rule(slug: str) -> Callable[[Rule], Rule]:
    """Register a function of a module of this package as a rule.

    Parameters
    ----------
    slug
        Its name in the column ``Rule``, which stays.
    """

    def register(function: Rule) -> Rule:
        REGISTERED[slug] = function
        return function

    return register
