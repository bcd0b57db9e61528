"""Findings of a run that its raw events do not contradict, from one diagnosis."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from refuters import refute

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis import table_of


def unrefuted(analyser: TraceAnalyser, source: Path | Iterable[Path]) -> pd.DataFrame:
    """Return the table of a run's findings, and assert that nothing in its files refutes them."""
    findings = analyser.findings()
    against = refute(source, findings)
    assert not against, "\n".join(against)
    return table_of(findings)
