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
)
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.steps import (
    NO_CLIENT,
    NO_LINES,
    NO_STEP,
    groups_by,
    has_clients,
    has_lines,
    has_steps,
    line_groups,
    line_words,
    step_groups,
)
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import NEAR_LIMIT
from dasfprof.analysis.wording import Seconds, Share
from dasfprof.database.columns import Array
from dasfprof.text import excerpt

for module in pkgutil.iter_modules(diagnosis.__path__):
    if module.name != "ranking":
        importlib.import_module(f"{diagnosis.__name__}.{module.name}")

#: Order of the rules. It decides between findings of equal severity and equal seconds.
_ORDER = """
lost-workers cancelled-tasks recomputation unfinished-run killed-worker-errors
retried-tasks failed-tasks swallowed-errors slow-startup warm-up
repeated-gathers large-gathers slow-tokenization large-objects-in-graph distributed-lock
missing-secede resource-limit
tasks-too-small scheduler-bound slow-dispatch client-bound
work-outside-tasks sequential-submission no-workers
data-skew stragglers slow-worker load-imbalance poor-placement
memory-growth transfer-bound spilling paused-workers host-memory-full serial-chain
too-few-tasks row-wise dominant-function gil-contention cpu-quota cpu-oversubscribed
garbage-collection per-process-lock exploding-join repeated-reads chunk-mismatch small-requests
io-bound shared-bottleneck blocked-tasks gpu-idle gpu-memory-full descriptor-limit idle-threads
filter-without-effect unused-columns resources-not-needed incomplete-trace
"""
ORDER = _ORDER.split()
RULES = {slug: REGISTERED[slug] for slug in (*ORDER, *sorted(REGISTERED.keys() - {*ORDER}))}

#: If a rule in this list has a finding, the run lacks results. Therefore its findings precede other
#: findings of the same severity, in this order. Only rules in the list can cause such findings.
FIRST = ("failed-tasks", "killed-worker-errors", "unfinished-run", "lost-workers")
#: Name of the rule whose findings report that another rule failed.
FAILED = "rule-failed"
#: Rules about the recording itself.
OF_RECORDING = (FAILED, "incomplete-trace")

logger = logging.getLogger(__name__)


def find(run: Run, rules: Mapping[str, Find] = RULES, least: float = NEGLIGIBLE) -> list[Finding]:
    """Return the problems of a run, most severe first. See `TraceAnalyser.diagnose`."""
    figures = RunFigures(run)
    findings = [finding for slug, rule in rules.items() for finding in _ask(slug, rule, figures)]
    wall = figures.wall if findings else 0.0
    findings = [finding.within(wall) for finding in findings]
    findings = [each for each in findings if each.rule in FIRST or not each.weight < least]
    findings = without_general(findings, wall)
    priced = [_priced(finding) for finding in without_refuted(findings, _facts(figures))]
    return in_order(with_causes(priced), wall)


def table_of(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return findings as the table of `TraceAnalyser.diagnose`."""
    columns = list(Finding("", "", "", ()).row())
    table = pd.DataFrame([finding.row() for finding in findings], columns=columns, dtype=object)
    if any("wanted_by" in finding.figures for finding in findings):
        clients = [finding.figures.get("wanted_by") for finding in findings]
        table["Client"] = pd.Series(clients, dtype=object)
    return table.astype({name: float for name in columns if name.endswith("(s)")})


def diagnose(
    run: Run, rules: Mapping[str, Find] = RULES, least: float = NEGLIGIBLE
) -> pd.DataFrame:
    """Return the result of `find` as a table."""
    return table_of(find(run, rules, least))


def _ask(slug: str, rule: Find, run: RunFigures) -> list[Finding]:
    """Return the findings of a rule, or a single finding that reports an exception in the rule."""
    try:
        # Damaged traces may have impossible times, for example.
        with np.errstate(over="ignore", invalid="ignore"):
            findings = [dataclasses.replace(each, rule=each.rule or slug) for each in rule(run)]
        return [located(each, run) for each in findings if each.rule == slug]
    except Exception as error:
        logger.debug("the rule %s failed", slug, exc_info=True)
        text = f"The rule {slug} could not be applied to this trace."
        why = f"{type(error).__name__}: {error}"
        todo = "Report this with the trace: it is a bug in dasfprof, not a problem of your run."
        return [Finding.of(text, why, todo, rule=FAILED, of_rule=slug, error=why, at_most="info")]


#: Names that Dask gives to tasks of dataframes, and that programs do not contain.
_OF_DASK = {"operation": "a method of a dataframe or column", "chunk": "a part of a reduction"}


def located(finding: Finding, run: RunFigures) -> Finding:
    """Add to a finding what its function calls, and its main step, line and client by seconds."""
    name = finding.function
    if name is None:
        return finding
    if calls := run.called_by(name):
        finding = finding.adding(f"{name} calls {calls}.", calls=calls)
    elif calls is None and name in _OF_DASK:
        finding = finding.adding(f"{name} is Dask's name for {_OF_DASK[name]}.")
    if has_steps(run.trace):
        step, share = _most(name, run, *step_groups(run.trace.tasks))
        if step not in ("", NO_STEP):
            words = f"{name} ran in the step {excerpt(step)}{_part(share)}."
            finding = finding.adding(words, step=excerpt(step), share_in_step=share)
    if has_lines(run.trace):
        line, share = _most(name, run, *line_groups(run.trace.tasks))
        if line not in ("", *NO_LINES):
            words = f"{name} was built at {line_words(run.trace, line)}{_part(share)}."
            finding = finding.adding(words, built_at=excerpt(line), share_of_line=share)
    if has_clients(run.trace):
        client, share = _most(name, run, *groups_by("client", run.trace.tasks))
        if not client:  # None of the function's task runs has ended.
            only = run.trace.scheduler_only
            wanted = only["client"][(only["function"] == name).to_numpy()].dropna()
            client, share = (str(wanted.iloc[0]), Share(1)) if len(wanted) else ("", share)
        if client not in ("", NO_CLIENT):
            words = f"{name} belongs to the client {excerpt(client)}{_part(share)}."
            finding = finding.adding(words, wanted_by=client, share_of_client=share)
    return finding


def _part(share: Share) -> str:
    return f" ({share} of its time)" if share < 1 else ""


def _most(function: str, run: RunFigures, codes: Array, names: Sequence[str]) -> tuple[str, Share]:
    """Return the step, line or client with most seconds of a function, and its fraction of them.

    `names` lists all steps, lines or clients, and task run ``i`` belongs to ``names[codes[i]]``.
    The returned name is empty if the function has no seconds.
    """
    rows = run.rows_of(function)
    seconds = np.bincount(codes[rows], weights=run.working[rows], minlength=len(names))
    most = int(seconds.argmax())
    if not seconds[most] > 0:
        return "", Share(0)
    return names[most], Share(seconds[most] / seconds.sum())


def without_general(findings: Sequence[Finding], wall: float) -> list[Finding]:
    """Leave out findings without a reason, and lower foreign ones, if others give a reason."""
    others = [
        finding
        for finding in findings
        if not (_is_general(finding) or finding.foreign or finding.rule in OF_RECORDING)
    ]
    severe = [finding for finding in others if finding.severity_in(wall) in {"high", "medium"}]

    def is_explained(general: Finding) -> bool:
        if general.function is None:
            return len(others) > 0
        return any(
            _explains(finding, general) and finding.function in {None, general.function}
            for finding in severe
        )

    return [
        dataclasses.replace(finding, at_most="low") if finding.foreign and severe else finding
        for finding in findings
        if not (_is_general(finding) and is_explained(finding))
    ]


def _is_general(finding: Finding) -> bool:
    return finding.rule in RULES and RULES[finding.rule].general


def _priced(finding: Finding) -> Finding:
    """Add the measured cost to the evidence of a finding whose potential savings are unknown."""
    if finding.rule in FIRST or not np.isnan(finding.seconds) or np.isnan(finding.costs):
        return finding
    measured = Seconds(finding.costs)
    words = (
        f"This cost about {measured} of the run. It is unknown how much of this a change would "
        "save."
    )
    return finding.adding(words, measured=measured)


#: Reasons to refute advice that do not come from findings: facts about the run, or other advice.
#: For each reason: the kind of advice that it refutes, and the explanation.
_FACTS = {
    "died-of-memory": ("more-threads", "memory ran out on a worker"),
    "near-limit": ("more-threads", "a worker came near its memory limit"),
    "p2p": ("move-data", "a P2P shuffle decides which worker gets each of its outputs"),
    "more-threads": (
        "fewer-threads",
        "tasks wait without using a core, so more of them could run in parallel",
    ),
}


def _facts(run: RunFigures) -> set[str]:
    times, rows = run.slots.times, p2p_runs(run.trace)
    queued = (times.executing - times.ready)[: len(rows)]
    # P2P shuffles count if at least half of the waiting time on workers is that of their tasks.
    of_p2p = rows.any() and queued[rows].sum() >= 0.5 * queued.sum()
    facts = {
        "p2p": of_p2p,
        "died-of-memory": run.died_of_memory,
        "near-limit": (run.highest("memory") >= NEAR_LIMIT * run.memory_limits).any(),
    }
    return {name for name, is_fact in facts.items() if is_fact}


def without_refuted(findings: Sequence[Finding], facts: set[str]) -> list[Finding]:
    """Replace each refuted advice by a warning that gives the reason not to follow it.

    Advice is refuted by other findings, by other advice, or by `facts` about the run.
    """
    remaining = list(findings)
    for kind in ADVICE:
        # Advice that was replaced cannot refute other advice.
        known = facts | {part.kind for finding in remaining for part in finding.advice}
        facts_of_kind = {name: why for name, (of, why) in _FACTS.items() if of == kind}
        why = {name: because for name, because in facts_of_kind.items() if name in known}
        for finding in remaining:
            rule = RULES.get(finding.rule)
            if rule and kind in rule.refutes:
                why.setdefault(finding.rule, rule.because)
        remaining = [_refuted(finding, kind, why) for finding in remaining]
    return remaining


def _refuted(finding: Finding, kind: str, why: Mapping[str, str]) -> Finding:
    reasons = [because for name, because in why.items() if name != finding.rule]
    refuted = [part for part in finding.advice if part.kind == kind] if reasons else []
    if not refuted:
        return finding
    instead = f"{ADVICE[kind]}, because {reasons[0]}."
    parts = [instead if part in refuted else part for part in finding.suggestion]
    promised = any(part.promises for part in refuted)
    seconds = float("nan") if promised else finding.seconds
    return dataclasses.replace(finding, suggestion=parts, seconds=seconds)


#: Minimum seconds of a cause, as a fraction of the seconds of the finding that it explains.
_A_PART = 0.25


def with_causes(findings: Sequence[Finding]) -> list[Finding]:
    """Assign to each finding the most severe finding that causes it, without cycles of causes."""
    ranked = sorted(findings, key=lambda finding: -_seconds(finding))
    above: dict[int, list[int]] = {}
    for place, finding in enumerate(ranked):
        causes = [
            other
            for other in range(len(ranked))
            if _causes(ranked[other], finding, earlier=other < place)
            and place not in _line(other, above)
        ]
        if causes:
            # A cause that explains the finding has priority.
            above[place] = sorted(causes, key=lambda n: not _explains(ranked[n], finding))
    done: dict[int, Finding] = {}

    def beneath(place: int) -> Finding:
        if place not in done:
            finding, causes = ranked[place], above.get(place, [])
            if causes:
                names = list(dict.fromkeys(ranked[cause].rule for cause in causes))
                explained = _explains(ranked[causes[0]], finding)
                finding = finding.beneath(beneath(causes[0]), names, explained)
            done[place] = finding
        return done[place]

    return [beneath(place) for place in range(len(ranked))]


def _seconds(finding: Finding) -> float:
    return float(np.nan_to_num(finding.weight))


def _explains(cause: Finding, finding: Finding) -> bool:
    rule = RULES.get(cause.rule)
    return rule is not None and finding.rule in rule.explains


def _causes(cause: Finding, finding: Finding, earlier: bool) -> bool:
    if cause.isolated or cause.foreign or (finding.rule in FIRST and cause.rule not in FIRST):
        return False
    if _explains(cause, finding):
        # If only the symptom has known seconds, the cause is not severe enough to explain it.
        known = not np.isnan(cause.weight)
        return np.isnan(finding.weight) or (
            known and _seconds(cause) >= _A_PART * _seconds(finding)
        )
    rule = RULES.get(cause.rule)
    # A finding that may be the cause must have at least as many seconds, so it comes earlier.
    return earlier and rule is not None and finding.rule in rule.causes


def _line(place: int, above: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Yield the index of a finding, and then the indices in its chain of first causes.

    `above` contains the indices of each finding's causes.
    """
    yield place
    while place in above:
        place = above[place][0]
        yield place


def in_order(findings: Sequence[Finding], wall: float) -> list[Finding]:
    """Sort findings by severity, then by potential savings, but each of them after its cause."""

    def rank(finding: Finding) -> tuple[bool, int, int, bool, float]:
        place = FIRST.index(finding.rule) if finding.rule in FIRST else len(FIRST)
        severity = SEVERITIES.index(finding.severity_in(wall))
        return _is_general(finding), severity, place, finding.foreign, -_seconds(finding)

    ordered: list[Finding] = []
    waiting = sorted(findings, key=rank)
    while waiting:
        following = next(
            finding for finding in waiting if not any(finding.cause is each for each in waiting)
        )
        waiting = [finding for finding in waiting if finding is not following]
        ordered.append(following)
    return [dataclasses.replace(finding, severity=finding.severity_in(wall)) for finding in ordered]
