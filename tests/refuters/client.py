"""Refuters of what is said about what the client's program calls and sends."""

from __future__ import annotations

import re
from collections.abc import Iterator

from refuters.evidence import Evidence, Rows
from refuters.figures import Said, differs, exceeds, is_at_most
from refuters.overheads import handling_seconds
from refuters.registry import refuter

#: Seconds within which a client knows that a task ended.
_KNOWN_WITHIN = 1.0


def _total(rows: Rows, name: str) -> float:
    return float(sum(row[name] or 0.0 for row in rows))


@refuter("repeated-gathers", "large-gathers")
def repeated_gathers(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with all calls in which results came."""
    came = evidence.rows("Client Calls").where(lambda row: row["receiving"] > 0)
    yield from exceeds(said["receiving"], _total(came, "receiving"), "seconds of receiving")
    yield from exceeds(said["calls"], _total(came, "calls"), "calls in which results came")
    yield from exceeds(said.seconds, said["receiving"], "seconds at stake")
    if said.rule == "large-gathers":
        yield from exceeds(said["received"], _total(came, "received"), "bytes that came")
        return
    line = came.where(lambda row: f"{row['file']}:{row['line']} " in said["line"])
    after = line.where(lambda row: row["timestamp"] > evidence.last_end + _KNOWN_WITHIN)
    if 0 < len(line) == len(after) and said["waiting"] > 0:
        yield f"it waits {said['waiting']:.3g} s for results after the last task had ended"
    if not is_at_most(_total(line, "keys"), 1.5 * _total(line, "calls")):
        yield "calls of that line ask for many results each"


@refuter("slow-tokenization")
def slow_tokenization(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with all seconds of it."""
    hashed = _total(evidence.rows("Client Calls"), "tokenising")
    yield from differs(said["hashing"], hashed, "seconds of making names")
    yield from exceeds(said["there"], said["hashing"], "those of a line")
    yield from exceeds(said.seconds, said["hashing"], "seconds at stake")


@refuter("large-objects-in-graph")
def large_objects_in_graph(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the values of that name."""
    sent = evidence.rows("Sent Value").where(lambda row: row["name"] == said["name"])
    whole = sum(row["size"] * row["tasks"] for row in sent)
    yield from exceeds(said["bytes"], 1.01 * whole, "bytes in all tasks")
    yield from exceeds(said["tasks"], _total(sent, "tasks"), "tasks that have it")
    yield from exceeds(said["handling"], handling_seconds(evidence), "seconds of handling tasks")
    if re.search(r"scatter\(\w+, (broadcast|hash)", said.suggestion):
        yield "of a dict or a list scatter() sends each item by itself"
    if said["held"] in ("builtins.dict", "builtins.list") and "scatter([" in said.suggestion:
        yield f"a {said['held']} is sent item by item where it is scattered"
    pickled = _total(evidence.rows("Client Calls"), "pickling")
    yield from exceeds(said["pickling"], pickled, "seconds of pickling")
    for figure, column in (("hashing", "tokenising"), ("transit", "waiting")):
        seconds = _total(evidence.rows("Client Calls"), column)
        yield from exceeds(said[figure], seconds, f"seconds of {figure}")
    parts = sum(said[name] for name in ("handling", "pickling", "hashing", "transit"))
    yield from exceeds(said.seconds, parts, "seconds at stake")
