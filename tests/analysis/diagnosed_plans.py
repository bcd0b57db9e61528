"""Findings of planned runs by rule, which the runs' events must not contradict.

Tests name findings by rules and figures, never by sentences, so that sentences can be improved.
"""

from pathlib import Path
from typing import Any

import pytest
from refuters import refute
from refuters.figures import without_units
from traces import Plan

from dasfprof.analysis.diagnosis import RULES, find
from dasfprof.analysis.diagnosis.ranking import FAILED

#: Settings, and the words by which suggestions name them. Others are named as name=value.
SAID = {
    "n_workers": "workers",
    "distributed.scheduler.worker-saturation": "distributed.scheduler.worker-saturation to 1.0",
    "threads_per_worker": "threads",
    **{name: name for name in ("processes", "memory_limit")},
    "chunks": "chunks of",
    "batch": "inputs into each task",
    "persist": "persist()",
}


class Cases:
    """Planned runs by name. In some, a rule finds something, and in others, none does."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[Plan, str, dict[str, Any]]] = {}
        self.absent: dict[str, tuple[Plan, tuple[str, ...]]] = {}

    def finds(self, rule: str, name: str, plan: Plan, /, **expected: Any) -> None:
        """Add a run in which a rule has this finding; see `assert_found`."""
        assert name not in self.found
        self.found[name] = plan, rule, expected

    def spares(self, name: str, plan: Plan, *rules: str) -> None:
        """Add a run in which the given rules, or all rules, find nothing."""
        assert name not in self.absent
        self.absent[name] = plan, rules

    def tests(self) -> tuple[Any, Any]:
        """Return a test of the runs with findings, and a test of the runs without."""

        @pytest.mark.parametrize("name", self.found)
        def test_a_fault_is_found(name: str, tmp_path: Path) -> None:
            plan, rule, expected = self.found[name]
            assert_found(plan, tmp_path, rule, **expected)

        @pytest.mark.parametrize("name", self.absent)
        def test_what_looks_alike_is_not_found(name: str, tmp_path: Path) -> None:
            plan, rules = self.absent[name]
            assert not found(plan, tmp_path, *rules)

        return test_a_fault_is_found, test_what_looks_alike_is_not_found


#: Columns of a finding other than its figures.
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
    """Diagnose a planned run with these rules or all, and return the findings by rule.

    ``Costs (s)`` are the seconds that rank a finding without potential savings. ``Changes`` are the
    suggested settings, which must also be in its sentences. No rule may fail.
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
    """Return a finding's figures, columns, and suggested settings."""
    facts = {**without_units(finding["Figures"])}
    facts |= {name: finding[column] for column, name in COLUMNS.items()}
    return facts | {"settings": [change["settings"] for change in finding["Changes"]]}


def assert_found(
    plan: Plan, directory: Path, rule: str, **expected: Any
) -> dict[str, dict[str, Any]]:
    """Assert that a rule has this finding in a planned run; None means that a figure is missing.

    Fractional numbers may differ by 2 %. ``absent`` names rules that find nothing, and ``alone``
    requires that no other rule has a finding. Only the rules are applied that are named, or are in
    ``others``. With ``alone``, or if the finding must have no cause, all rules are applied. Returns
    the findings by rule.
    """
    alone, absent = expected.pop("alone", False), expected.pop("absent", ())
    rules = (rule, *absent, *expected.pop("others", ()), expected.get("cause", rule))
    findings = found(plan, directory, *(() if alone or None in rules else rules))
    assert not alone or findings.keys() == {rule}
    assert not findings.keys() & {*absent}
    facts = facts_of(findings[rule])
    told = {name: facts.get(name) for name in expected}
    wanted = {
        name: pytest.approx(value, rel=0.02, nan_ok=True) if isinstance(value, float) else value
        for name, value in expected.items()
    }
    assert told == wanted, f"{told} and not {wanted}"
    return findings
