"""`refute`: asks of each finding the refuter of its rule what contradicts it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dask.utils import key_split

from refuters.evidence import Evidence
from refuters.figures import CLOCKS, Said

#: What may be told before the errors that users saw.
_BEFORE_ERRORS = {"unfinished-run", "killed-worker-errors", "lost-workers"}
#: Seconds under which nothing is grave, if it is under such a share of the run as well.
_LITTLE, _LITTLE_SHARE = 1.0, 0.05
#: Rules about what clients do.
_CLIENTS = {"repeated-gathers", "large-gathers", "slow-tokenization", "large-objects-in-graph"}
#: Rules about all the time of workers.
_OF_RECORDINGS = {"work-outside-tasks", "idle-threads"}
#: Beside these findings more threads find no memory, no core, no task, or a lock.
_NO_MORE_THREADS = {
    *("killed-worker-errors", "paused-workers", "spilling", "per-process-lock", "distributed-lock"),
    *("resource-limit", "missing-secede", "shared-bottleneck", "cpu-oversubscribed", "no-workers"),
    *("client-bound", "sequential-submission", "too-few-tasks", "poor-placement"),
}
#: Yields what contradicts a finding.
Refuter = Callable[[Said, Evidence], Iterator[str]]
REFUTERS: dict[str, Refuter] = {}


def refuter(*rules: str) -> Callable[[Refuter], Refuter]:
    """Register the refuter of rules."""

    def register(function: Refuter) -> Refuter:
        REFUTERS.update(dict.fromkeys(rules, function))
        return function

    return register


def refute(source: Path | Iterable[Path], findings: Any) -> list[str]:
    """Return what the raw events of a run say against its findings, a sentence each.

    Parameters
    ----------
    source
        Directory of the trace files, or these.
    findings
        Those of `TraceAnalyser.findings`.
    """
    files = source.glob("*.msgpack") if isinstance(source, Path) else source
    evidence, against = Evidence(files), []
    said = [Said.of(one.to_dict(), one.to_dict()["Figures"], one.weight) for one in findings]
    for one in said:
        by_rule = REFUTERS.get(one.rule, _no_refuter)
        contradictions = [*_in_general(one, evidence), *by_rule(one, evidence)]
        against += [f"{one.rule}: {text} ({one.sentences})" for text in contradictions]
    return [*against, *_among_themselves(said)]


def _in_general(said: Said, evidence: Evidence) -> Iterator[str]:
    """Yield what contradicts any finding."""
    of_client = said.rule in _CLIENTS or said["fetching"] or said["graphs"]
    whole = evidence.end - evidence.begin if said.rule in _OF_RECORDINGS else evidence.walls[1]
    most = whole + (_of_clients(evidence) if of_client else 0.0)
    # All of it is before the first task; the rule's refuter compares it with the events.
    most += said["late"] if said.rule == "slow-startup" else 0.0
    # Where processes were killed, the last of their events is compared with the scheduler's.
    most += 0.0 if evidence.scheduler_closed else CLOCKS
    if said.seconds < 0 or said.seconds > 1.01 * most:
        yield f"{said.seconds:.3g} s are at stake in a run of {evidence.wall:.3g} s"
    if said.severity == "high" and said.seconds < min(_LITTLE, _LITTLE_SHARE * evidence.wall):
        yield f"{said.seconds:.3g} s are no grave loss"
    for size in re.findall(r"-[\d.,]+ [kMGT]?B\b", said.sentences):
        yield f"{size} of bytes"
    for name in said.figures:
        if f"{{{name}}}" in said.sentences:
            yield f"{{{name}}} is not filled in"
    for share in said.shares:
        if share > 1.0 + 1e-9:
            yield f"a share of {share:.6g}"
    known = {*evidence.functions, *evidence.rows("Unsent Tasks").values("name")}
    for event in ("Task Run", "Task Under Way"):
        known |= set(map(key_split, evidence.rows(event).values("key")))
    if said.function is not None and known and said.function not in known:
        yield f"no task of {said.function} was sent to a worker"


def _of_clients(evidence: Evidence) -> float:
    """Return for how long clients were in calls, which may be before or after all tasks."""
    calls = evidence.rows("Client Calls").where(lambda row: row["call"] != "recording")
    return calls.sum("seconds")


def _no_refuter(said: Said, evidence: Evidence) -> Iterator[str]:
    yield "the rule has no refuter"


def _among_themselves(findings: list[Said]) -> Iterator[str]:
    """Yield what is wrong with the findings as a list: each is beneath its cause, if it has one."""
    order = ["high", "medium", "low", "info"]
    last, seen = 0, set()
    for said in findings:
        causes = said["may_follow_from"]
        if not causes:
            if order.index(said.severity) < last:
                yield f"{said.rule} is graver than what comes before it"
            last = order.index(said.severity)
        elif not seen.intersection(causes):
            yield f"{said.rule} may follow from {causes}, none of which comes before it"
        seen.add(said.rule)
    rules = [said.rule for said in findings]
    yield from _advised(findings, {*rules})
    # Errors of tasks that a client had given up are nobody's, and no grave matter.
    anybodys = next((n for n, one in enumerate(findings) if one.rule == "failed-tasks"), 0)
    if anybodys and not findings[anybodys]["nobodys"] and {*rules[:anybodys]} - _BEFORE_ERRORS:
        yield f"failed tasks come after {rules[0]}"


def _advised(findings: list[Said], rules: set[str]) -> Iterator[str]:
    """Yield advice of one finding that another of the same report refutes."""
    more = [
        said.rule
        for said in findings
        for number in re.findall(r"threads_per_worker=(\d+)", said.suggestion)
        if int(number) > 1
    ]
    if more and rules & _NO_MORE_THREADS:
        yield f"{more[0]} advises more threads beside {rules & _NO_MORE_THREADS}"
    fewer = [said.rule for said in findings if "un fewer threads" in said.suggestion]
    if more and fewer:
        yield f"{more[0]} advises more threads, and {fewer[0]} fewer"
