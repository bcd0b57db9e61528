"""Findings of a run, checked against its raw events."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from refuters import refute

from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis import table_of


def unrefuted(analyser: TraceAnalyser, source: Path | Iterable[Path]) -> pd.DataFrame:
    """Return the table of a run's findings, and assert that no event in its files refutes them."""
    findings = analyser.findings()
    against = refute(source, findings)
    assert not against, "\n".join(against)
    return table_of(findings)
