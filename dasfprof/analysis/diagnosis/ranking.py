"""All rules, applied to a run, and what they find, ranked: which finding brings about which."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.diagnosis.advice import changes_of, consistent
from dasfprof.analysis.diagnosis.registry import (
    EXPLAINS,
    FIRST,
    NEGLIGIBLE,
    ORDER,
    REGISTERED,
    SEVERITIES,
    SYMPTOMS,
    Finding,
    Ranked,
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
from dasfprof.analysis.wording import Figures, Share, Words, plain
from dasfprof.database.columns import Array
from dasfprof.text import excerpt

# A rule is a function under the decorator `registry.rule` in a module of this package.
for module in pkgutil.iter_modules(diagnosis.__path__):
    if module.name != "ranking":
        importlib.import_module(f"{diagnosis.__name__}.{module.name}")
#: By slug.
RULES = {name: REGISTERED[name] for name in (*ORDER, *sorted(REGISTERED.keys() - {*ORDER}))}

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
    words = f"{finding.function} ran in the step {excerpt(most)}{_part(share)}."
    said = finding.said.adding(words, step=excerpt(most), share_in_step=share)
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
    words = f"{finding.function} was built at {line_words(run.trace, most)}{_part(share)}."
    said = finding.said.adding(words, built_at=excerpt(most), share_of_line=share)
    return dataclasses.replace(finding, said=said)


def _part(share: Share) -> str:
    return f" for {share} of its time" if share < 1 else ""


def _most(function: str, run: RunFigures, codes: Array, names: Sequence[str]) -> tuple[str, Share]:
    """Return the group with most of a function's seconds, and its share; empty: it has none."""
    own = run.rows_of(function)
    seconds = np.bincount(codes[own], weights=run.working[own], minlength=len(names))
    most = int(seconds.argmax())
    if not seconds[most] > 0:
        return "", Share(0)
    return names[most], Share(seconds[most] / seconds.sum())


# --- Which finding brings about which, and the order in which they are told -----------------------

_COLUMNS = [
    *("Severity", "Finding", "Seconds at stake (s)", "Evidence", "Suggestion", "Rule"),
    *("Function", "Worker", "Start (s)", "Stop (s)", "Cause"),
]
#: What explains another finding has such a part of its seconds at least.
_A_PART = 0.25


def with_causes(findings: Sequence[Ranked]) -> list[Ranked]:
    """Put each finding that others bring about beneath the gravest of these.

    A cause has as many seconds at stake as its symptom, and of equal ones is the earlier; or it
    explains it, and has a part of them: then it comes before others. Nothing stands beneath
    itself.
    """
    order = sorted(range(len(findings)), key=lambda place: (-findings[place].seconds, place))
    ranked = [findings[place] for place in order]
    above: dict[int, list[int]] = {}
    for place, one in enumerate(ranked):
        causes = [
            other
            for other in range(len(ranked))
            if _brings_about(ranked[other], one, earlier=other < place)
            and place not in _line(other, above)
        ]
        if causes:
            explained = [one.rule in EXPLAINS.get(ranked[cause].rule, ()) for cause in causes]
            above[place] = [causes[n] for n in np.argsort(np.logical_not(explained), kind="stable")]
    done: dict[int, Ranked] = {}

    def beneath(place: int) -> Ranked:
        if place not in done:
            one, causes = ranked[place], above.get(place, [])
            if causes:
                names = list(dict.fromkeys(ranked[cause].rule for cause in causes))
                one = Ranked(one.rule, one.finding.as_symptom_of(names), beneath(causes[0]))
            done[place] = one
        return done[place]

    return [beneath(place) for place in range(len(ranked))]


def _brings_about(cause: Ranked, one: Ranked, earlier: bool) -> bool:
    if one.rule in FIRST and cause.rule not in FIRST:
        return False
    if one.rule in EXPLAINS.get(cause.rule, ()):
        return np.isnan(cause.finding.weight) or cause.seconds >= _A_PART * one.seconds
    return earlier and one.rule in SYMPTOMS.get(cause.rule, ())


def _line(place: int, above: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Return a finding and what it stands beneath, up to the first."""
    yield place
    while place in above:
        place = above[place][0]
        yield place


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
    rows = [
        {
            "Severity": one.finding.severity(wall),
            "Finding": one.finding.said.text,
            "Seconds at stake (s)": one.finding.seconds,
            "Evidence": one.finding.said.evidence,
            "Suggestion": one.finding.said.suggestion,
            "Rule": one.rule,
            "Function": one.finding.function,
            "Worker": one.finding.worker,
            "Start (s)": one.finding.start,
            "Stop (s)": one.finding.stop,
            "Cause": one.cause and one.cause.rule,
        }
        for one in findings
    ]
    table = pd.DataFrame(rows, columns=_COLUMNS, dtype=object)
    table = table.astype({name: float for name in _COLUMNS if name.endswith("(s)")})
    # For the report: of several places a row names the first, or the longest.
    table.attrs["places"] = [one.places and asdict(one.places) for one in found]
    table.attrs["figures"] = [plain(one.said.figures) for one in found]
    table.attrs["costs"] = [finding.weight for finding in found]
    return table
