"""Refuters of findings about the time before the first task."""

from collections.abc import Iterator
from typing import Any

from refuters.evidence import Evidence
from refuters.figures import Claim, differs, exceeds, lies
from refuters.registry import refuter

#: Parts of file paths of programs that may wait for their user.
_PROMPTS = ("ipykernel", "IPython", "_pyrepl", "prompt_toolkit")


@refuter("slow-startup")
def slow_startup(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Compare with the start of the client's recording and the arrival of the first graph."""
    graph = min(evidence.rows("Graph"), key=lambda row: row["timestamp"])
    known = float(graph["timestamp"])
    begun = [*evidence.runs.numbers("executing"), *evidence.runs.numbers("timestamp")]
    if min(begun, default=known) < known - 0.01:
        yield "a task ran before the first graph was known"
    if claim["by_value"] is not None:
        values = evidence.rows("Sent Value").where(lambda row: row["timestamp"] <= known)
        size = sum(row["size"] * row["tasks"] for row in values)
        yield from exceeds(claim["by_value"], 1.01 * size, "bytes by value in the first graph")
        if claim["holds"] not in {row["name"] for row in values}:
            yield f"the first graph holds nothing of {claim['holds']}"
    parts = {stage: part for stage, part in claim["stages"].items() if part == part}
    sent = [row for row in evidence.rows("Graph Sent") if row["client"] == graph["client"]]
    hosts = {header["host"] for header in evidence.headers if "SchedulerPlugin" in str(header)}
    if not sent or sent[0]["host"] not in hosts:
        total = sum(parts.values())
        yield from lies(claim["late"], 0.99 * total, 1.01 * total, "its parts")
        return
    late = known - float(sent[0]["since"])
    # For unfinished runs, the end is the subject of other findings.
    lengths = [end - float(sent[0]["since"]) for end in (evidence.last_end, evidence.span[1])]
    if _has_prompts(evidence):
        yield from exceeds(claim["late"], late, "seconds before the first graph was known")
        return
    yield from differs(claim["late"], late, "seconds before the first graph was known")
    shares = 0.98 * late / max(lengths), 1.02 * late / min(lengths)
    yield from lies(claim["share"], *shares, "their share")
    actual = _parts(sent[0], graph)
    for stage, part in parts.items():
        yield from differs(part, actual[stage], f"seconds of {stage}")


def _parts(sent: dict[str, Any], graph: dict[str, Any]) -> dict[str, float]:
    optimising = sent["optimising"] or 0.0
    taken_up = float(str(graph["stimulus"]).rpartition("-")[2])
    handed_over = max(min(sent["timestamp"], taken_up), sent["start"])
    return {
        "program": sent["start"] - sent["since"] - optimising,
        "optimising": optimising,
        "pickling": handed_over - sent["start"],
        "sending": taken_up - handed_over,
        "scheduler": graph["timestamp"] - taken_up,
    }


def _has_prompts(evidence: Evidence) -> bool:
    return any(
        prompt in str(row["frames"]) for row in evidence.rows("Stack") for prompt in _PROMPTS
    )
