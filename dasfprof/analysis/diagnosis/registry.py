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
    "client-gaps": "too-few-tasks serial-chain imbalance",
    "no-workers": "client-gaps too-few-tasks serial-chain imbalance",
    "degrading-functions": (
        "straggling-tasks dominating-function blocked-tasks imbalance too-few-tasks"
    ),
    "fat-partitions": (
        "straggling-tasks imbalance serial-chain too-few-tasks dominating-function transfer-bound"
    ),
    "straggling-tasks": "imbalance too-few-tasks",
    "slow-worker": (
        "imbalance serial-chain too-few-tasks straggling-tasks poor-placement "
        "dominating-function blocked-tasks degrading-functions"
    ),
    "imbalance": "too-few-tasks",
    "poor-placement": "imbalance serial-chain too-few-tasks",
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
