"""Applies the rules to a run, and ranks what they find."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.causes import Ranked, as_table, in_order, with_causes
from dasfprof.analysis.diagnosis.findings import NEGLIGIBLE, Finding
from dasfprof.analysis.diagnosis.registry import FIRST
from dasfprof.analysis.diagnosis.rules import RULES, Rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.steps import NO_STEP, has_steps, step_groups
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.wording import Figures, Share, Words
from dasfprof.text import excerpt

logger = logging.getLogger(__name__)

#: The rule's name of findings about rules that failed.
FAILED = "rule-failed"


def diagnose(
    trace: Trace, rules: Mapping[str, Rule] = RULES, least: float = NEGLIGIBLE
) -> pd.DataFrame:
    """Look for known faults of a run; see `TraceAnalyser`.

    A finding that another brings about is kept beneath that one, but is not grave: what is to be
    changed is the cause.
    """
    run = RunFigures(trace)
    findings = [found for name in rules for found in _found(name, rules[name], run)]
    wall = run.wall if findings else 0.0
    kept = [Ranked(name, finding.within(wall)) for name, finding in findings]
    kept = [one for one in kept if one.rule in FIRST or not one.finding.seconds < least]
    return as_table(in_order(with_causes(kept), wall), wall)


def _found(name: str, rule: Rule, run: RunFigures) -> list[tuple[str, Finding]]:
    """Ask one rule; that it failed is a finding as well, and keeps none of the others."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # of times beyond any clock
            return [(name, with_step(finding, run)) for finding in rule(run)]
    except Exception as error:
        logger.debug("the rule %s failed", name, exc_info=True)
        words = f"{type(error).__name__}: {error}"
        return [(FAILED, Finding.of(_say_failed, rule=name, error=words, at_most="info"))]


def _say_failed(f: Figures) -> Words:
    return (
        f"The rule {f.rule} could not be applied to this trace.",
        f.error,
        "Report it with the trace: it is a fault of dasfprof, not of the run.",
    )


def with_step(finding: Finding, run: RunFigures) -> Finding:
    """Let the evidence of a finding about a function name its step, where steps are known.

    Of several steps it is the one with most of the function's seconds, with its share of them.
    """
    if finding.function is None or not has_steps(run.trace):
        return finding
    own = np.flatnonzero((run.function_names == finding.function)[run.functions.codes])
    codes, names = step_groups(run.trace.tasks)
    seconds = np.bincount(codes[own], weights=run.working[own], minlength=len(names))
    most = int(seconds.argmax())
    if not seconds[most] > 0 or names[most] == NO_STEP:
        return finding
    share, step = Share(seconds[most] / seconds.sum()), excerpt(names[most])
    part = f" for {share} of its time" if share < 1 else ""
    words = f"{finding.function} ran in the step {step}{part}."
    said = finding.said.adding(words, step=step, share_in_step=share)
    return dataclasses.replace(finding, said=said)
