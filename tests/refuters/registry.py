"""Registry of refuters, and `refute`, which applies them to all findings of a run."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dask.utils import key_split

from refuters.evidence import Evidence
from refuters.figures import CLOCKS, Claim

#: Rules whose findings may come before errors that users saw.
_BEFORE_ERRORS = {"unfinished-run", "killed-worker-errors", "lost-workers"}
#: Thresholds (s, and fraction of the run): a finding below both is not severe.
_LITTLE, _LITTLE_SHARE = 1.0, 0.05
#: Rules about clients.
_CLIENTS = {"repeated-gathers", "large-gathers", "slow-tokenization", "large-objects-in-graph"}
#: Rules whose seconds may include all time of workers, also without tasks.
_OF_RECORDINGS = {"work-outside-tasks", "idle-threads"}
#: Rules that contradict advice for more threads, which would lack memory, cores, tasks, or a lock.
_NO_MORE_THREADS = {
    *("killed-worker-errors", "paused-workers", "spilling", "per-process-lock", "distributed-lock"),
    *("resource-limit", "missing-secede", "shared-bottleneck", "cpu-oversubscribed", "no-workers"),
    *("client-bound", "sequential-submission", "too-few-tasks", "poor-placement"),
}
#: Function that yields contradictions of a finding.
Refuter = Callable[[Claim, Evidence], Iterator[str]]
REFUTERS: dict[str, Refuter] = {}


def refuter(*rules: str) -> Callable[[Refuter], Refuter]:
    def register(function: Refuter) -> Refuter:
        REFUTERS.update(dict.fromkeys(rules, function))
        return function

    return register


def refute(source: Path | Iterable[Path], findings: Any) -> list[str]:
    """Return the contradictions between the raw events of a run and its findings, as sentences.

    Parameters
    ----------
    source
        Directory of the trace files, or the files.
    findings
        Findings from `TraceAnalyser.findings`.
    """
    files = source.glob("*.msgpack") if isinstance(source, Path) else source
    evidence, against = Evidence(files), []
    claims = [Claim.of(x.to_dict(), x.to_dict()["Figures"], x.weight) for x in findings]
    for claim in claims:
        by_rule = REFUTERS.get(claim.rule, _no_refuter)
        contradictions = [*_in_general(claim, evidence), *by_rule(claim, evidence)]
        against += [f"{claim.rule}: {text} ({claim.sentences})" for text in contradictions]
    return [*against, *_among_themselves(claims)]


def _in_general(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Yield contradictions that do not depend on the rule."""
    of_client = claim.rule in _CLIENTS or claim["fetching"] or claim["graphs"]
    run_seconds = (
        evidence.end - evidence.begin if claim.rule in _OF_RECORDINGS else evidence.walls[1]
    )
    maximum = run_seconds + (_of_clients(evidence) if of_client else 0.0)
    # This time is before the first task; the rule's refuter compares it with the events.
    maximum += claim["late"] if claim.rule == "slow-startup" else 0.0
    # If processes were killed, the end of the run depends on clocks of several processes.
    maximum += 0.0 if evidence.scheduler_closed else CLOCKS
    if claim.seconds < 0 or claim.seconds > 1.01 * maximum:
        yield f"{claim.seconds:.3g} s are at stake in a run of {evidence.wall:.3g} s"
    if claim.severity == "high" and claim.seconds < min(_LITTLE, _LITTLE_SHARE * evidence.wall):
        yield f"{claim.seconds:.3g} s are not a severe loss"
    for size in re.findall(r"-[\d.,]+ [kMGT]?B\b", claim.sentences):
        yield f"{size} of bytes"
    for name in claim.figures:
        if f"{{{name}}}" in claim.sentences:
            yield f"{{{name}}} is not filled in"
    for share in claim.shares:
        if share > 1.0 + 1e-9:
            yield f"a share of {share:.6g}"
    known = {*evidence.functions, *evidence.rows("Unsent Tasks").values("name")}
    for event in ("Task Run", "Task Under Way"):
        known |= set(map(key_split, evidence.rows(event).values("key")))
    if claim.function is not None and known and claim.function not in known:
        yield f"no task of {claim.function} was sent to a worker"


def _of_clients(evidence: Evidence) -> float:
    """Return the seconds of client calls, which may be before or after all tasks."""
    calls = evidence.rows("Client Calls").where(lambda row: row["call"] != "recording")
    return calls.sum("seconds")


def _no_refuter(claim: Claim, evidence: Evidence) -> Iterator[str]:
    yield "the rule has no refuter"


def _among_themselves(findings: list[Claim]) -> Iterator[str]:
    """Yield contradictions between findings: order of severity, causes, and advice."""
    order = ["high", "medium", "low", "info"]
    last, seen = 0, set()
    for claim in findings:
        causes = claim["may_follow_from"]
        if not causes:
            if order.index(claim.severity) < last:
                yield f"{claim.rule} is more severe than the previous finding"
            last = order.index(claim.severity)
        elif not seen.intersection(causes):
            yield f"{claim.rule} may follow from {causes}, none of which comes before it"
        seen.add(claim.rule)
    rules = [claim.rule for claim in findings]
    yield from _advised(findings, {*rules})
    # Errors of tasks that a client had cancelled are not severe.
    anybodys = next((n for n, one in enumerate(findings) if one.rule == "failed-tasks"), 0)
    if anybodys and not findings[anybodys]["nobodys"] and {*rules[:anybodys]} - _BEFORE_ERRORS:
        yield f"failed tasks come after {rules[0]}"


def _advised(findings: list[Claim], rules: set[str]) -> Iterator[str]:
    """Yield advice of a finding that contradicts another finding of the run."""
    more = [
        claim.rule
        for claim in findings
        for number in re.findall(r"threads_per_worker=(\d+)", claim.suggestion)
        if int(number) > 1
    ]
    if more and rules & _NO_MORE_THREADS:
        yield f"{more[0]} advises more threads beside {rules & _NO_MORE_THREADS}"
    fewer = [claim.rule for claim in findings if "un fewer threads" in claim.suggestion]
    if more and fewer:
        yield f"{more[0]} advises more threads, and {fewer[0]} fewer"
