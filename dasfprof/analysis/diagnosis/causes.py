"""Which finding brings about which, and the order in which they are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.findings import SEVERITIES, Finding
from dasfprof.analysis.diagnosis.registry import EXPLAINS, FIRST, SYMPTOMS
from dasfprof.analysis.wording import plain

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
