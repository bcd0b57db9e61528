"""Which finding brings about which, and the order in which they are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.findings import SEVERITIES, Finding
from dasfprof.analysis.diagnosis.registry import FIRST, SYMPTOMS
from dasfprof.analysis.wording import plain


@dataclass(frozen=True)
class Ranked:
    """A finding with its rule, and the finding that brings it about."""

    rule: str
    finding: Finding
    cause: Ranked | None = None

    @property
    def seconds(self) -> float:
        """The seconds at stake; 0 where they are unknown."""
        return float(np.nan_to_num(self.finding.seconds))


def with_causes(findings: Sequence[Ranked]) -> list[Ranked]:
    """Put each finding that others bring about beneath the gravest of these.

    A cause has as many seconds at stake as its symptom, and of equal ones is the earlier: so there
    are no rings, and nothing stands beneath a lesser.
    """
    order = sorted(range(len(findings)), key=lambda place: (-findings[place].seconds, place))
    done: list[Ranked] = []
    for place in order:
        one = findings[place]
        causes = [
            other
            for other in done
            if one.rule in SYMPTOMS.get(other.rule, ())
            and (one.rule not in FIRST or other.rule in FIRST)
        ]
        if causes:
            names = list(dict.fromkeys(cause.rule for cause in causes))
            one = Ranked(one.rule, one.finding.as_symptom_of(names), causes[0])
        done.append(one)
    return done


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
    return table
