"""Refuters of findings about the trace itself, and about failed rules."""

from collections.abc import Iterator

from dasfprof.database.reader import TraceFile
from dasfprof.text import format_duration
from refuters.evidence import Evidence
from refuters.figures import Claim
from refuters.registry import refuter


@refuter("incomplete-trace")
def incomplete_trace(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Look for the data that the finding claims to be missing."""
    text = " ".join(claim["notes"])
    if "client-gone" in claim["kinds"]:
        yield from _client_gone(claim["notes"][0], evidence)
    if "no resource samples" in text and len(evidence.rows("Resource Usage")):
        yield "there are samples"
    if "no messages of P2P shuffles" in text and len(evidence.rows("Shuffle Message")):
        yield "there are messages of shuffles"
    for header in evidence.headers:
        plugin = header.get("plugin")
        if plugin == "SchedulerPlugin" and "no file of the scheduler" in text:
            yield "there is a file of the scheduler"
    if "ended without closing" in text and not evidence.unclosed:
        yield "each file was closed"
    if "ended without closing" in text and not claim["workers_died"]:
        left = {row["worker"] for row in evidence.rows("Worker Removed")}
        killed = {
            header["worker"]["address"]
            for header, name in zip(evidence.headers, evidence.names, strict=True)
            if name in evidence.unclosed and header.get("worker")
        }
        if killed and killed <= left and evidence.scheduler_closed:
            yield "their workers had left before recording ended: no stop() would have waited"


def _client_gone(note: str, evidence: Evidence) -> Iterator[str]:
    """Compare with the closing frames of files, and look for later events."""
    for path in evidence.paths:
        file = TraceFile(path)
        list(file.batches())
        end = file.end or {}
        if end and end.get("cause") != "client gone":
            yield f"{path.name} was closed for another reason"
        if file.header.get("plugin") == "SchedulerPlugin":
            if not end:
                yield "the scheduler's file was not closed"
            elif "gone for" in note:
                gone = format_duration(end["clock"][0] - end["since"])
                if f"gone for {gone}." not in note:
                    yield f"the client was gone for {gone}"


@refuter("rule-failed")
def rule_failed(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Yield a contradiction, since no rule may fail."""
    yield claim["error"]
