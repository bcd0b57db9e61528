"""Application of all rules to a run, and the ranking of findings by severity and cause."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import pkgutil
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.diagnosis.registry import (
    ADVICE,
    NEGLIGIBLE,
    REGISTERED,
    SEVERITIES,
    Find,
    Finding,
    names_of,
)
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.steps import (
    NO_CLIENT,
    NO_LINES,
    NO_STEP,
    client_groups,
    has_clients,
    has_lines,
    has_steps,
    line_groups,
    line_words,
    step_groups,
)
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.run import Run
from dasfprof.analysis.wording import Seconds, Share
from dasfprof.database.columns import Array
from dasfprof.text import excerpt

for module in pkgutil.iter_modules(diagnosis.__path__):
    if module.name != "ranking":
        importlib.import_module(f"{diagnosis.__name__}.{module.name}")

#: Of equally severe findings with equal seconds, the finding of the earlier rule comes first.
ORDER = names_of("""
lost-workers cancelled-tasks recomputation unfinished-run killed-worker-errors
retried-tasks failed-tasks swallowed-errors slow-startup warm-up
repeated-gathers large-gathers slow-tokenization large-objects-in-graph distributed-lock
missing-secede resource-limit
tasks-too-small scheduler-bound slow-dispatch slow-deserialization client-bound
work-outside-tasks sequential-submission no-workers
slowing-functions data-skew stragglers slow-worker load-imbalance poor-placement
memory-growth transfer-bound spilling paused-workers host-memory-full serial-chain
too-few-tasks row-wise dominant-function gil-contention cpu-quota cpu-oversubscribed
garbage-collection per-process-lock chunk-mismatch small-requests io-bound shared-bottleneck
blocked-tasks gpu-idle gpu-memory-full descriptor-limit idle-threads incomplete-trace clock-skew
""")
RULES = {slug: REGISTERED[slug] for slug in (*ORDER, *sorted(REGISTERED.keys() - {*ORDER}))}

#: Findings of these rules come first among equally severe ones, in this order, because the run has
#: no results. They are symptoms only of each other.
FIRST = ("failed-tasks", "killed-worker-errors", "unfinished-run", "lost-workers")
#: The rule of findings about rules that failed.
FAILED = "rule-failed"
#: Rules about the recording.
OF_RECORDING = (FAILED, "incomplete-trace", "clock-skew")

logger = logging.getLogger(__name__)


def find(run: Run, rules: Mapping[str, Find] = RULES, least: float = NEGLIGIBLE) -> list[Finding]:
    """Return the problems of a run, most severe first. See `TraceAnalyser.diagnose`."""
    figures = RunFigures(run)
    found = [one for slug, rule in rules.items() for one in _ask(slug, rule, figures)]
    wall = figures.wall if found else 0.0
    found = [one.within(wall) for one in found]
    found = [one for one in found if one.rule in FIRST or not one.weight < least]
    found = without_general(found, wall)
    priced = [_priced(one) for one in without_refuted(found, _facts(figures))]
    return in_order(with_causes(priced), wall)


def table_of(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return findings as the table of `TraceAnalyser.diagnose`."""
    columns = list(Finding("", "", "", ()).row())
    table = pd.DataFrame([one.row() for one in findings], columns=columns, dtype=object)
    if any("wanted_by" in one.figures for one in findings):
        table["Client"] = [one.figures.get("wanted_by") for one in findings]
    return table.astype({name: float for name in columns if name.endswith("(s)")})


def diagnose(
    run: Run, rules: Mapping[str, Find] = RULES, least: float = NEGLIGIBLE
) -> pd.DataFrame:
    """Return `find` as a table."""
    return table_of(find(run, rules, least))


def _ask(slug: str, rule: Find, run: RunFigures) -> list[Finding]:
    """Return the findings of a rule, or a single finding that the rule failed."""
    try:
        # For example, times that no clock can have.
        with np.errstate(over="ignore", invalid="ignore"):
            found = [dataclasses.replace(one, rule=one.rule or slug) for one in rule(run)]
        return [located(one, run) for one in found if one.rule == slug]
    except Exception as error:
        logger.debug("the rule %s failed", slug, exc_info=True)
        text = f"The rule {slug} could not be applied to this trace."
        words = f"{type(error).__name__}: {error}"
        todo = "Report it with the trace. This is a bug in dasfprof and not a problem of the run."
        return [Finding.of(FAILED, text, words, todo, of_rule=slug, error=words, at_most="info")]


def located(finding: Finding, run: RunFigures) -> Finding:
    """Add the pipeline step and the source line with most of the function's seconds."""
    name = finding.function
    if name is not None and has_steps(run.trace):
        step, share = _most(name, run, *step_groups(run.trace.tasks))
        if step not in ("", NO_STEP):
            words = f"{name} ran in the step {excerpt(step)}{_part(share)}."
            finding = finding.adding(words, step=excerpt(step), share_in_step=share)
    if name is not None and has_lines(run.trace):
        line, share = _most(name, run, *line_groups(run.trace.tasks))
        if line not in ("", *NO_LINES):
            words = f"{name} was built at {line_words(run.trace, line)}{_part(share)}."
            finding = finding.adding(words, built_at=excerpt(line), share_of_line=share)
    if name is not None and has_clients(run.trace):
        client, share = _most(name, run, *client_groups(run.trace.tasks))
        if not client:  # none of its task runs ended
            only = run.trace.scheduler_only
            wanted = only["client"][(only["function"] == name).to_numpy()].dropna()
            client, share = (str(wanted.iloc[0]), Share(1)) if len(wanted) else ("", share)
        if client not in ("", NO_CLIENT):
            words = f"{name} is of the client {excerpt(client)}{_part(share)}."
            finding = finding.adding(words, wanted_by=client, share_of_client=share)
    return finding


def _part(share: Share) -> str:
    return f" for {share} of its time" if share < 1 else ""


def _most(function: str, run: RunFigures, codes: Array, names: Sequence[str]) -> tuple[str, Share]:
    """Return the group with most of a function's seconds and its fraction of them.

    The name is empty if the function has no seconds.
    """
    own = run.rows_of(function)
    seconds = np.bincount(codes[own], weights=run.working[own], minlength=len(names))
    most = int(seconds.argmax())
    if not seconds[most] > 0:
        return "", Share(0)
    return names[most], Share(seconds[most] / seconds.sum())


def without_general(findings: Sequence[Finding], wall: float) -> list[Finding]:
    """Leave out findings of general rules about what others explain.

    Others explain a function if their rules explain such findings, and they are not low. They
    explain idle threads if they are not about the recording.
    """
    others = [one for one in findings if not _is_general(one) and one.rule not in OF_RECORDING]
    severe = [one for one in others if one.severity_in(wall) in {"high", "medium"}]

    def is_explained(general: Finding) -> bool:
        if general.function is None:
            return len(others) > 0
        return any(
            _explains(one, general) and one.function in {None, general.function} for one in severe
        )

    return [one for one in findings if not (_is_general(one) and is_explained(one))]


def _is_general(one: Finding) -> bool:
    return one.rule in RULES and RULES[one.rule].general


def _priced(one: Finding) -> Finding:
    """Explain in a finding why it is ranked by measured seconds and has no potential savings."""
    if one.rule in FIRST or not np.isnan(one.seconds) or np.isnan(one.costs):
        return one
    measured = Seconds(one.costs)
    words = f"Measured: {measured}. How much of this a change would save cannot be predicted."
    return one.adding(words, measured=measured)


# --- Findings that refute advice ------------------------------------------------------------------

#: Reasons to refute advice that do not come from findings: facts of a run, and other advice.
_FACTS = {
    "died-of-memory": ("more-threads", "memory ran out on a worker"),
    "p2p": ("move-data", "a P2P shuffle decides which worker gets each of its outputs"),
    "more-threads": (
        "fewer-threads",
        ("tasks wait without using a core, so more of them could run in parallel"),
    ),
}


def _facts(run: RunFigures) -> set[str]:
    times, rows = run.slots.times, p2p_runs(run.trace)
    queued = (times.executing - times.ready)[: len(rows)]
    # Most of the tasks that queue on workers belong to shuffles.
    of_p2p = rows.any() and queued[rows].sum() >= 0.5 * queued.sum()
    return {name for name, so in (("p2p", of_p2p), ("died-of-memory", run.died_of_memory)) if so}


def without_refuted(findings: Sequence[Finding], facts: set[str]) -> list[Finding]:
    """Replace advice that other findings refute by the reason. Refuted advice refutes no other."""
    kept = list(findings)
    for kind in ADVICE:
        known = facts | {part.kind for one in kept for part in one.advice}
        why = {name: why for name, (own, why) in _FACTS.items() if own == kind and name in known}
        for one in kept:
            rule = RULES.get(one.rule)
            if rule and kind in rule.refutes:
                why.setdefault(one.rule, rule.because)
        kept = [_refuted(one, kind, why) for one in kept]
    return kept


def _refuted(one: Finding, kind: str, why: Mapping[str, str]) -> Finding:
    reasons = [because for name, because in why.items() if name != one.rule]
    refuted = [part for part in one.advice if part.kind == kind] if reasons else []
    if not refuted:
        return one
    instead = f"{ADVICE[kind]}: {reasons[0]}."
    parts = [instead if part in refuted else part for part in one.suggestion]
    promised = any(part.promises for part in refuted)
    seconds = float("nan") if promised else one.seconds
    return dataclasses.replace(one, suggestion=parts, seconds=seconds)


# --- Findings that cause other findings, and their order ------------------------------------------

#: Minimum seconds of a cause, as a fraction of the seconds of a finding that it explains.
_A_PART = 0.25


def with_causes(findings: Sequence[Finding]) -> list[Finding]:
    """Assign each finding that others cause to the most severe of its causes.

    A cause has at least as many seconds of potential savings as its symptom, and comes first if the
    seconds are equal. Or its rule explains the symptom, and it has at least a fraction of the
    symptom's seconds: such a cause comes before other causes. No finding is its own cause.
    """
    ranked = sorted(findings, key=lambda one: -_seconds(one))
    above: dict[int, list[int]] = {}
    for place, one in enumerate(ranked):
        causes = [
            other
            for other in range(len(ranked))
            if _causes(ranked[other], one, earlier=other < place)
            and place not in _line(other, above)
        ]
        if causes:
            above[place] = sorted(causes, key=lambda n: not _explains(ranked[n], one))
    done: dict[int, Finding] = {}

    def beneath(place: int) -> Finding:
        if place not in done:
            one, causes = ranked[place], above.get(place, [])
            if causes:
                names = list(dict.fromkeys(ranked[cause].rule for cause in causes))
                explained = _explains(ranked[causes[0]], one)
                one = one.beneath(beneath(causes[0]), names, explained)
            done[place] = one
        return done[place]

    return [beneath(place) for place in range(len(ranked))]


def _seconds(one: Finding) -> float:
    return float(np.nan_to_num(one.weight))


def _explains(cause: Finding, one: Finding) -> bool:
    rule = RULES.get(cause.rule)
    return rule is not None and one.rule in rule.explains


def _causes(cause: Finding, one: Finding, earlier: bool) -> bool:
    if cause.isolated or (one.rule in FIRST and cause.rule not in FIRST):
        return False
    if _explains(cause, one):
        # A cause without seconds does not outweigh a symptom that has some.
        known = not np.isnan(cause.weight)
        return np.isnan(one.weight) or (known and _seconds(cause) >= _A_PART * _seconds(one))
    rule = RULES.get(cause.rule)
    return earlier and rule is not None and one.rule in rule.causes


def _line(place: int, above: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Return a finding, its cause, the cause of that, and so on."""
    yield place
    while place in above:
        place = above[place][0]
        yield place


def in_order(findings: Sequence[Finding], wall: float) -> list[Finding]:
    """Sort findings by severity, then by potential savings. Each comes after its cause."""

    def rank(one: Finding) -> tuple[bool, int, int, float]:
        place = FIRST.index(one.rule) if one.rule in FIRST else len(FIRST)
        severity = SEVERITIES.index(one.severity_in(wall))
        return _is_general(one), severity, place, -_seconds(one)

    ordered: list[Finding] = []
    waiting = sorted(findings, key=rank)
    while waiting:
        following = next(one for one in waiting if not any(one.cause is each for each in waiting))
        waiting = [one for one in waiting if one is not following]
        ordered.append(following)
    return [dataclasses.replace(one, severity=one.severity_in(wall)) for one in ordered]
