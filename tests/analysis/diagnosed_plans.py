"""What `diagnose` finds in a planned run, by rule; the run itself must not contradict it.

Tests name findings by their rules and figures, never by their sentences, which may be improved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refuters import refute
from refuters.figures import without_units
from traces import Plan

from dasfprof.analysis.diagnosis import RULES, find
from dasfprof.analysis.diagnosis.ranking import FAILED

#: Settings, and a word without which no suggestion speaks of them. Others are said as they are.
SAID = {
    "n_workers": "workers",
    "distributed.scheduler.worker-saturation": "distributed.scheduler.worker-saturation to 1.0",
    "threads_per_worker": "threads",
    "processes": "processes",
    "memory_limit": "memory_limit",
    "chunks": "chunks of",
    "batch": "inputs into each task",
    "persist": "persist()",
}
#: Columns of a finding that are not among its figures.
COLUMNS = {
    "Severity": "severity",
    "Cause": "cause",
    "Function": "function",
    "Worker": "worker",
    "Seconds at stake (s)": "seconds",
    "Costs (s)": "costs",
    "Start (s)": "start",
    "Stop (s)": "stop",
}


def found(plan: Plan, directory: Path, *rules: str) -> dict[str, dict[str, Any]]:
    """Diagnose a planned run by these rules or all; none may fail. Return the findings by rule.

    ``Costs (s)`` are the seconds by which a finding is ranked where it promises none; ``Changes``
    are what it says to set, of which its words have to say each.
    """
    told = find(plan.write(directory).run, {rule: RULES[rule] for rule in rules} or RULES)
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


def facts_of(finding: dict[str, Any]) -> dict[str, Any]:
    """Return a finding's figures, its columns, and what it says to set."""
    facts = {**without_units(finding["Figures"])}
    facts |= {name: finding[column] for column, name in COLUMNS.items()}
    return facts | {"settings": [change["settings"] for change in finding["Changes"]]}


def assert_found(
    plan: Plan, directory: Path, rule: str, **expected: Any
) -> dict[str, dict[str, Any]]:
    """Assert that a rule finds this in a planned run, None where it has no such figure.

    Numbers that are not whole may be off by 2 %. ``alone`` is whether nothing else is found, and
    ``absent`` has rules that find nothing. Returns the findings by rule.
    """
    findings = found(plan, directory)
    assert not expected.pop("alone", False) or findings.keys() == {rule}
    assert not findings.keys() & {*expected.pop("absent", ())}
    facts = facts_of(findings[rule])
    told = {name: facts.get(name) for name in expected}
    wanted = {
        name: pytest.approx(value, rel=0.02, nan_ok=True) if isinstance(value, float) else value
        for name, value in expected.items()
    }
    assert told == wanted, f"{told} and not {wanted}"
    return findings
