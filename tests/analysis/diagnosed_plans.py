"""What `diagnose` finds in a planned run, by rule; the run itself must not contradict it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refuters import refute
from traces import Plan

from dasfprof.analysis.diagnosis.ranking import FAILED

#: Settings, and a word without which no suggestion speaks of them. Others are said as they are.
SAID = {
    "n_workers": "workers",
    "distributed.scheduler.worker-saturation": "distributed.scheduler.worker-saturation: 1.0",
    "threads_per_worker": "threads",
    "processes": "processes",
    "memory_limit": "memory_limit",
    "chunks": "chunks of",
    "batch": "inputs into each task",
    "persist": "persist()",
}


def found(plan: Plan, directory: Path) -> dict[str, dict[str, Any]]:
    """Diagnose a planned run, in which no rule may fail; return the findings by rule.

    ``Costs (s)`` are the seconds by which a finding is ranked where it promises none; ``Changes``
    are what it says to set, of which its words have to say each.
    """
    analyser = plan.write(directory)
    told = analyser.findings()
    against = refute(directory, told)
    assert not against, "\n".join(against)
    findings: dict[str, dict[str, Any]] = {}
    for one in told:
        finding = {**one.to_dict(), "Costs (s)": one.weight}
        for change in finding["Changes"]:
            for name, value in change["settings"].items():
                assert SAID.get(name, f"{name}={value}") in finding["Suggestion"]
        findings.setdefault(one.rule, finding)
    assert FAILED not in findings, findings[FAILED]
    return findings
