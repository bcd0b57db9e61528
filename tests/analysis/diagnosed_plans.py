"""What `diagnose` finds in a planned run, by rule; the run itself must not contradict it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refuters import refute
from traces import Plan

from dasfprof.analysis.diagnosis import RULES
from dasfprof.analysis.diagnosis.run_figures import RunFigures


def found(plan: Plan, directory: Path) -> dict[str, dict[str, Any]]:
    """Diagnose a planned run, with each rule un-guarded first; gives the findings by rule.

    ``Costs (s)`` are the seconds by which a finding is ranked where it promises none.
    """
    analyser = plan.write(directory)
    run = RunFigures(analyser.run)
    for rule in RULES.values():
        list(rule(run))
    table = analyser.diagnose()
    against = refute(directory, table)
    assert not against, "\n".join(against)
    findings: dict[str, dict[str, Any]] = {}
    for finding in table.assign(**{"Costs (s)": table.attrs["costs"]}).to_dict("records"):
        findings.setdefault(str(finding["Rule"]), {str(k): v for k, v in finding.items()})
    return findings
