"""Findings: what a rule of the diagnosis says, and the table of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

Severity = Literal["high", "medium", "low", "info"]

#: From the gravest on.
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")

#: Shares of the run's wall time at stake from which a finding is grave, and from which it matters.
HIGH, MEDIUM = 0.2, 0.05


@dataclass(frozen=True)
class Finding:
    """What one rule found."""

    #: One plain sentence with the figure.
    text: str
    #: Figures, and which method shows more.
    evidence: str
    #: A concrete change.
    suggestion: str
    #: Seconds of wall time that the run might be shorter; NaN where that is unknown.
    seconds: float = float("nan")
    #: The gravest that it may be, however many seconds are at stake.
    at_most: Severity = "high"
    #: The least grave that it may be, however few they are, or where they are unknown.
    at_least: Severity = "info"
    #: Where it speaks of one: Dask's prefix, the worker's label.
    function: str | None = None
    worker: str | None = None
    #: The time that it speaks of, in seconds from the trace's begin; NaN for the whole run.
    start: float = float("nan")
    stop: float = float("nan")

    def severity(self, wall: float) -> Severity:
        """Show how grave it is in a run of so many seconds."""
        share = self.seconds / wall if wall > 0 else float("nan")
        by_share: Severity = "high" if share >= HIGH else "medium" if share >= MEDIUM else "low"
        place = SEVERITIES.index("info" if np.isnan(share) else by_share)
        place = min(place, SEVERITIES.index(self.at_least))
        return SEVERITIES[max(place, SEVERITIES.index(self.at_most))]

    def within(self, wall: float) -> Finding:
        """Return it withit with no more seconds at stake than the run took."""
        seconds = float(np.minimum(self.seconds, wall)) if wall > 0 else self.seconds
        return dataclasses.replace(self, seconds=seconds)

    def as_symptom_of(self, causes: Sequence[str]) -> Finding:
        """Return it as what other rules' findings bring about: it is not grave by itself."""
        words = f"{self.evidence} It may follow from {', '.join(causes)}."
        return dataclasses.replace(self, evidence=words, at_most="low", at_least="info")


def as_table(findings: Sequence[tuple[str, Finding]], wall: float) -> pd.DataFrame:
    """List findings of rules; see `TraceAnalyser.diagnose`."""
    found = [finding for _, finding in findings]

    def texts(values: Sequence[object]) -> pd.Series:
        return pd.Series(list(values), dtype=object)

    return pd.DataFrame(
        {
            "Severity": texts([finding.severity(wall) for finding in found]),
            "Finding": texts([finding.text for finding in found]),
            "Seconds at stake (s)": np.array([finding.seconds for finding in found], dtype=float),
            "Evidence": texts([finding.evidence for finding in found]),
            "Suggestion": texts([finding.suggestion for finding in found]),
            "Rule": texts([rule for rule, _ in findings]),
            "Function": texts([finding.function for finding in found]),
            "Worker": texts([finding.worker for finding in found]),
            "Start (s)": np.array([finding.start for finding in found], dtype=float),
            "Stop (s)": np.array([finding.stop for finding in found], dtype=float),
        }
    )
