"""Which advice other findings of the same report refute.

What a rule advises is right by what that rule knows. All findings together know more: more threads
gain nothing where memory ran out, or where there is no task for them. So all of them are read
together, and what they refute is not advised: the reason takes its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from dasfprof.analysis.diagnosis.causes import Ranked
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.transfers import p2p_runs

#: Kinds of advice: how to say that one is none, and by what it is refuted: the rule of another
#: finding, other advice that stands (the kind's name), or a fact of `_facts`, each with the reason.
_REFUTED_BY: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "more-threads": (
        "More threads a worker would gain nothing",
        {
            "died-of-memory": "memory ran out on a worker",
            "killed-workers": "workers died with the tasks that they ran",
            "memory-pressure": "workers paused, as their memory was nearly full",
            "memory-near-limit": "a worker came near its memory limit",
            "spilling": "workers spill for want of memory",
            "host-memory-full": "a host ran out of memory",
            "process-lock": "tasks wait for one lock of their process",
            "cluster-lock": "tasks wait for a lock of Dask's",
            "resource-limit": "tasks wait for units of a resource, not for threads",
            "waits-for-tasks": "tasks keep their threads while they wait for others",
            "waits-in-turn": "tasks wait for something that serves one at a time",
            "lock-bound": "threads of one process keep each other waiting",
            "cpu-oversubscribed": "tasks wait for cores",
            "no-workers": "workers were missing, not threads",
            "one-at-a-time": "the client submits fewer tasks at a time than there are threads",
            "client-gaps": "the cluster waits for the client",
            "too-few-tasks": "there are fewer tasks than threads",
            "serial-chain": "tasks run one after another",
            "poor-placement": "threads idle while tasks queue on other workers",
            "imbalance": "threads idle while others work",
        },
    ),
    "share-memory": (
        "Workers with more threads would move less, and wait more",
        {
            "process-lock": "tasks wait for one lock of their process",
            "lock-bound": "threads of one process keep each other waiting",
        },
    ),
    "fewer-threads": (
        "Fewer threads would gain nothing",
        {
            "more-threads": "tasks wait without using a core, and more of them could",
        },
    ),
    "move-data": (
        "Where these run cannot be changed by client.rebalance() or workers=",
        {"p2p": "a P2P shuffle decides which worker has which of its outputs"},
    ),
}


def consistent(findings: Sequence[Ranked], run: RunFigures) -> list[Ranked]:
    """Return findings without advice that the others refute.

    Kinds come in the order of the table: what is refuted refutes nothing itself.
    """
    kept, facts = list(findings), _facts(run)
    for kind, (none, reasons) in _REFUTED_BY.items():
        known = {*facts, *(one.rule for one in kept), *_advised(kept)}
        kept = [_without(one, kind, none, reasons, known) for one in kept]
    return kept


def _without(
    one: Ranked, kind: str, none: str, reasons: Mapping[str, str], known: Collection[str]
) -> Ranked:
    finding, why = (
        one.finding,
        [word for name, word in reasons.items() if name in known and name != one.rule],
    )
    for advice in finding.said.advice if why else ():
        if advice.kind != kind:
            continue
        seconds = float("nan") if advice.promises else finding.seconds
        said = finding.said.without(advice, f"{none}: {why[0]}.")
        finding = dataclasses.replace(finding, said=said, seconds=seconds)
    return dataclasses.replace(one, finding=finding)


def _advised(findings: Sequence[Ranked]) -> set[str]:
    return {advice.kind for one in findings for advice in one.finding.said.advice}


def _facts(run: RunFigures) -> set[str]:
    """Return what of a run refutes advice and is no finding."""
    times, rows = run.slots.times, p2p_runs(run.trace)
    queued = (times.executing - times.ready)[: len(rows)]
    # What queues on workers is mostly of shuffles.
    of_p2p = rows.any() and queued[rows].sum() >= 0.5 * queued.sum()
    facts = {"p2p": of_p2p, "died-of-memory": run.died_of_memory}
    return {name for name, is_so in facts.items() if is_so}
