"""`refute`: asks of each finding the refuter of its rule what contradicts it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask.utils import key_split

from refuters.evidence import Evidence
from refuters.figures import Figure, NotUnderstoodError, taken_apart


@dataclass(frozen=True)
class Said:
    """What a finding says."""

    rule: str
    finding: str
    evidence: str
    suggestion: str
    severity: str
    seconds: float
    function: str | None
    worker: str | None

    @classmethod
    def of(cls, row: dict[Any, Any]) -> Said:
        """Read a row of the table of findings."""
        texts = (row[name] for name in ("Rule", "Finding", "Evidence", "Suggestion", "Severity"))
        return cls(*texts, row["Seconds at stake (s)"], row["Function"], row["Worker"])

    def figures(self, pattern: str) -> dict[str, Figure]:
        """Return what stands at the places of a pattern that has to be in one of the texts."""
        found = self.figures_if_any(pattern)
        if not found:
            raise NotUnderstoodError(f"the refuter finds no {pattern!r}")
        return found

    def figures_if_any(self, pattern: str) -> dict[str, Figure]:
        """Return them of a pattern that may be in one of the texts; else nothing."""
        for text in (self.finding, self.evidence, self.suggestion):
            found = taken_apart(pattern, text)
            if found:
                return found
        return {}


#: Contradictions that are known and not yet mended: the rule, words of the refuter, and the cause.
KNOWN: tuple[tuple[str, str, str], ...] = ()
#: What may be told before the errors that users saw.
_BEFORE_ERRORS = {"unfinished-run", "killed-workers", "lost-workers"}
#: Seconds under which nothing is grave, if it is under such a share of the run as well.
_LITTLE, _LITTLE_SHARE = 1.0, 0.05
#: Yields what contradicts a finding.
Refuter = Callable[[Said, Evidence], Iterator[str]]
REFUTERS: dict[str, Refuter] = {}


def refuter(*rules: str) -> Callable[[Refuter], Refuter]:
    """Register the refuter of rules."""

    def register(function: Refuter) -> Refuter:
        REFUTERS.update(dict.fromkeys(rules, function))
        return function

    return register


def differs(figure: Figure, actual: float, what: str) -> Iterator[str]:
    """Yield a contradiction unless a figure shows the actual number."""
    if not figure.shows(actual):
        yield f"{what}: {figure.text} is said, the events have {actual:.6g}"


def exceeds(figure: Figure, bound: float, what: str) -> Iterator[str]:
    """Yield a contradiction if a figure is more than there can be."""
    if not figure.is_at_most(bound):
        yield f"{what}: {figure.text} is said, the events have {bound:.6g} at most"


def lies(figure: Figure, low: float, high: float, what: str) -> Iterator[str]:
    """Yield a contradiction unless a figure is between two numbers."""
    if not (figure.is_at_least(low) and figure.is_at_most(high)):
        yield f"{what}: {figure.text} is said, the events have {low:.6g} to {high:.6g}"


def fits(share: Figure, part: Figure, whole: Figure | float, what: str) -> Iterator[str]:
    """Yield a contradiction if no numbers that are shown so have such a share."""
    low, high = (whole, whole) if isinstance(whole, float) else whole.bounds
    least, most = part.bounds[0] / high, min(part.bounds[1] / max(low, 1e-12), 1.0)
    if not (share.is_at_most(most) and share.is_at_least(min(least, 1.0))):
        yield f"{what}: {share.text} is said beside {part.text}, of {high:.6g} s"


def refute(source: Path | Iterable[Path], findings: Any, *, known: bool = False) -> list[str]:
    """Return what the raw events of a run say against its findings, a sentence each.

    Parameters
    ----------
    source
        Directory of the trace files, or these.
    findings
        The table of `TraceAnalyser.diagnose`.
    known
        Whether contradictions that are known, and not yet mended, are returned as well.
    """
    files = source.glob("*.msgpack") if isinstance(source, Path) else source
    evidence = Evidence(files)
    against = []
    for row in findings.to_dict("records"):
        said = Said.of(row)
        try:
            own = REFUTERS.get(said.rule, _no_refuter)
            found = [*_in_general(said, evidence), *own(said, evidence)]
        except NotUnderstoodError as error:
            found = [str(error)]
        found = [text for text in found if known or not is_known(said.rule, text)]
        against += [f"{said.rule}: {text} ({said.finding} {said.evidence})" for text in found]
    return [*against, *_among_themselves(findings)]


def is_known(rule: str, text: str) -> bool:
    """Tell whether a contradiction is one of those that are known."""
    return any(rule == one and words in text for one, words, _ in KNOWN)


def _in_general(said: Said, evidence: Evidence) -> Iterator[str]:
    """Yield what contradicts any finding."""
    if said.seconds < 0 or said.seconds > 1.01 * evidence.wall:
        yield f"{said.seconds:.3g} s are at stake in a run of {evidence.wall:.3g} s"
    if said.severity == "high" and said.seconds < min(_LITTLE, _LITTLE_SHARE * evidence.wall):
        yield f"{said.seconds:.3g} s are no grave loss"
    for share in _shares(f"{said.finding} {said.evidence}"):
        if not share.is_at_most(1.0):
            yield f"a share of {share.text}"
    known = {*evidence.functions, *(row["function"] for row in _sent(evidence))}
    known |= {key_split(row["key"]) for row in evidence.rows("Task Under Way")}
    if said.function is not None and known and said.function not in known:
        yield f"no task of {said.function} was sent to a worker"


def _no_refuter(said: Said, evidence: Evidence) -> Iterator[str]:
    yield "the rule has no refuter"


def _shares(text: str) -> Iterator[Figure]:
    while found := taken_apart("{share}", text):
        yield found["share"]
        text = text.partition(found["share"].text)[2]


def _sent(evidence: Evidence) -> Iterator[dict[str, Any]]:
    for row in evidence.rows("Task Run"):
        yield {"function": key_split(row["key"])}
    for row in evidence.rows("Unsent Tasks"):
        yield {"function": row["name"]}


def _among_themselves(findings: Any) -> Iterator[str]:
    """Yield what is wrong with the findings as a list: each is beneath its cause, if it has one."""
    order = ["high", "medium", "low", "info"]
    last, seen = 0, set()
    for row in findings.to_dict("records"):
        causes = _causes(row["Evidence"])
        if not causes:
            if order.index(row["Severity"]) < last:
                yield f"{row['Rule']} is graver than what comes before it"
            last = order.index(row["Severity"])
        elif not causes & seen:
            yield f"{row['Rule']} may follow from {causes}, none of which comes before it"
        seen.add(row["Rule"])
    rules = findings["Rule"].tolist()
    if "errors" in rules and set(rules[: rules.index("errors")]) - _BEFORE_ERRORS:
        yield f"errors come after {rules[0]}"


def _causes(evidence: str) -> set[str]:
    found = taken_apart("It may follow from {name}.", evidence)
    return set(found["name"].text.split(", ")) if found else set()
