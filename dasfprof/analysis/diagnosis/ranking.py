"""All rules, applied to a run, and what they find, ranked."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import pkgutil
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.diagnosis.advice import Ranked, as_table, consistent, in_order, with_causes
from dasfprof.analysis.diagnosis.changes import changes_of
from dasfprof.analysis.diagnosis.registry import (
    FIRST,
    NEGLIGIBLE,
    REGISTERED,
    SYMPTOMS,
    Finding,
    Rule,
)
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.steps import (
    NO_LINES,
    NO_STEP,
    has_lines,
    has_steps,
    line_groups,
    line_words,
    step_groups,
)
from dasfprof.analysis.run import Run
from dasfprof.analysis.wording import Figures, Share, Words
from dasfprof.database.columns import Array
from dasfprof.text import excerpt

# --- All rules of the diagnosis -------------------------------------------------------------------
#
# A rule is a function under the decorator `registry.rule` in a module of this package.

__all__ = ["RULES", "SYMPTOMS", "Rule"]

#: Modules whose rules come first, in this order; those of others follow by the modules' names.
_ORDER = (
    "unfinished",
    "outcomes",
    "lost_results",
    "start_up",
    "client",
    "limits",
    "overheads",
    "over_time",
    "balance",
    "placement",
    "data_movement",
    "parallelism",
    "cores",
    "waiting",
    "gpus",
    "trace_quality",
)


def _all_rules() -> dict[str, Rule]:
    names = {module.name for module in pkgutil.iter_modules(diagnosis.__path__)}
    for name in (*_ORDER, *sorted(names - {*_ORDER, "ranking"})):
        importlib.import_module(f"{diagnosis.__name__}.{name}")
    return REGISTERED


#: By slug. Of equally grave findings with equal seconds the earlier rule's comes first.
RULES = _all_rules()


# --- Applies the rules to a run, and ranks what they find -----------------------------------------

logger = logging.getLogger(__name__)

#: The rule's name of findings about rules that failed.
FAILED = "rule-failed"


def diagnose(
    run: Run, rules: Mapping[str, Rule] = RULES, least: float = NEGLIGIBLE
) -> pd.DataFrame:
    """Look for known faults of a run; see `TraceAnalyser`.

    A finding that another brings about is kept beneath that one, but is not grave: what is to be
    changed is the cause. Advice that other findings refute is not given.
    """
    figures = RunFigures(run)
    findings = [found for name in rules for found in _found(name, rules[name], figures)]
    wall = figures.wall if findings else 0.0
    kept = [Ranked(name, finding.within(wall)) for name, finding in findings]
    kept = [one for one in kept if one.rule in FIRST or not one.finding.weight < least]
    ranked = in_order(with_causes(consistent(kept, figures)), wall)
    table = as_table(ranked, wall)
    found = [changes_of(one.rule, one.finding.said, figures) for one in ranked]
    table.attrs["changes"] = [[change.as_data() for change in changes] for changes in found]
    return table


def _found(name: str, rule: Rule, run: RunFigures) -> list[tuple[str, Finding]]:
    """Ask one rule; that it failed is a finding as well, and keeps none of the others."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # of times beyond any clock
            return [(name, with_line(with_step(finding, run), run)) for finding in rule(run)]
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
    most, share = _most(finding.function, run, *step_groups(run.trace.tasks))
    if most in ("", NO_STEP):
        return finding
    step = excerpt(most)
    part = f" for {share} of its time" if share < 1 else ""
    words = f"{finding.function} ran in the step {step}{part}."
    said = finding.said.adding(words, step=step, share_in_step=share)
    return dataclasses.replace(finding, said=said)


def with_line(finding: Finding, run: RunFigures) -> Finding:
    """Let the evidence of a finding about a function name the line that built its tasks.

    Of several lines it is the one with most of the function's seconds, with its share of them.
    """
    if finding.function is None or not has_lines(run.trace):
        return finding
    most, share = _most(finding.function, run, *line_groups(run.trace.tasks))
    if most in ("", *NO_LINES):
        return finding
    part = f" for {share} of its time" if share < 1 else ""
    words = f"{finding.function} was built at {line_words(run.trace, most)}{part}."
    said = finding.said.adding(words, built_at=excerpt(most), share_of_line=share)
    return dataclasses.replace(finding, said=said)


def _most(function: str, run: RunFigures, codes: Array, names: Sequence[str]) -> tuple[str, Share]:
    """Return the group with most of a function's seconds, and its share; empty: it has none."""
    own = np.flatnonzero((run.function_names == function)[run.functions.codes])
    seconds = np.bincount(codes[own], weights=run.working[own], minlength=len(names))
    most = int(seconds.argmax())
    if not seconds[most] > 0:
        return "", Share(0)
    return names[most], Share(seconds[most] / seconds.sum())
