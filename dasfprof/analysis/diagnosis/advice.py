"""Which finding brings about which, in what order they are told, and which advice others refute."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import EXPLAINS, FIRST, SEVERITIES, SYMPTOMS, Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.wording import plain

# --- Which finding brings about which, and the order in which they are told -----------------------

#: What explains another finding has such a part of its seconds at least.
_A_PART = 0.25


@dataclass(frozen=True)
class Ranked:
    """A finding with its rule, and the finding that brings it about."""

    rule: str
    finding: Finding
    cause: Ranked | None = None

    @property
    def seconds(self) -> float:
        """The seconds by which it is ranked; 0 where they are unknown."""
        return float(np.nan_to_num(self.finding.weight))


def with_causes(findings: Sequence[Ranked]) -> list[Ranked]:
    """Put each finding that others bring about beneath the gravest of these.

    A cause has as many seconds at stake as its symptom, and of equal ones is the earlier; or it
    explains it, and has a part of them: then it comes before others. Nothing stands beneath
    itself.
    """
    order = sorted(range(len(findings)), key=lambda place: (-findings[place].seconds, place))
    ranked = [findings[place] for place in order]
    above: dict[int, list[int]] = {}
    for place, one in enumerate(ranked):
        causes = [
            other
            for other in range(len(ranked))
            if _brings_about(ranked[other], one, earlier=other < place)
            and place not in _line(other, above)
        ]
        if causes:
            explained = [one.rule in EXPLAINS.get(ranked[cause].rule, ()) for cause in causes]
            above[place] = [causes[n] for n in np.argsort(np.logical_not(explained), kind="stable")]
    done: dict[int, Ranked] = {}

    def beneath(place: int) -> Ranked:
        if place not in done:
            one, causes = ranked[place], above.get(place, [])
            if causes:
                names = list(dict.fromkeys(ranked[cause].rule for cause in causes))
                one = Ranked(one.rule, one.finding.as_symptom_of(names), beneath(causes[0]))
            done[place] = one
        return done[place]

    return [beneath(place) for place in range(len(ranked))]


def _brings_about(cause: Ranked, one: Ranked, earlier: bool) -> bool:
    if one.rule in FIRST and cause.rule not in FIRST:
        return False
    if one.rule in EXPLAINS.get(cause.rule, ()):
        return np.isnan(cause.finding.weight) or cause.seconds >= _A_PART * one.seconds
    return earlier and one.rule in SYMPTOMS.get(cause.rule, ())


def _line(place: int, above: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Return a finding and what it stands beneath, up to the first."""
    yield place
    while place in above:
        place = above[place][0]
        yield place


def in_order(findings: Sequence[Ranked], wall: float) -> list[Ranked]:
    """Sort findings, the gravest first, each with its symptoms beneath it."""

    def rank(one: Ranked) -> tuple[int, int, float]:
        severity = SEVERITIES.index(one.finding.severity(wall))
        place = FIRST.index(one.rule) if one.rule in FIRST else len(FIRST)
        return severity, place, -one.seconds

    def beneath(cause: Ranked | None) -> Iterator[Ranked]:
        for one in sorted((one for one in findings if one.cause is cause), key=rank):
            yield one
            yield from beneath(one)

    return list(beneath(None))


def as_table(findings: Sequence[Ranked], wall: float) -> pd.DataFrame:
    """List findings of rules; see `TraceAnalyser.diagnose`."""
    found = [one.finding for one in findings]

    def texts(values: Sequence[object]) -> pd.Series:
        return pd.Series(list(values), dtype=object)

    table = pd.DataFrame(
        {
            "Severity": texts([finding.severity(wall) for finding in found]),
            "Finding": texts([finding.said.text for finding in found]),
            "Seconds at stake (s)": np.array([finding.seconds for finding in found], dtype=float),
            "Evidence": texts([finding.said.evidence for finding in found]),
            "Suggestion": texts([finding.said.suggestion for finding in found]),
            "Rule": texts([one.rule for one in findings]),
            "Function": texts([finding.function for finding in found]),
            "Worker": texts([finding.worker for finding in found]),
            "Start (s)": np.array([finding.start for finding in found], dtype=float),
            "Stop (s)": np.array([finding.stop for finding in found], dtype=float),
            "Cause": texts([one.cause.rule if one.cause else None for one in findings]),
        }
    )
    # For the report: of several places a row names the first, or the longest.
    table.attrs["places"] = [one.places and asdict(one.places) for one in found]
    table.attrs["figures"] = [plain(one.said.figures) for one in found]
    table.attrs["costs"] = [finding.weight for finding in found]
    return table


# --- Which advice other findings of the same report refute ----------------------------------------
#
# What a rule advises is right by what that rule knows. All findings together know more: more
# threads gain nothing where memory ran out, or where there is no task for them. So all of them are
# read together, and what they refute is not advised: the reason takes its place.

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
