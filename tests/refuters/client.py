"""Refuters of findings about client calls and embedded objects."""

import re
from collections.abc import Iterator

from refuters.evidence import Evidence, Rows
from refuters.figures import Claim, differs, exceeds, is_at_most
from refuters.overheads import handling_seconds
from refuters.registry import refuter

#: Seconds within which a client learns that a task has finished.
_KNOWN_WITHIN = 1.0


def _total(rows: Rows, name: str) -> float:
    return float(sum(row[name] or 0.0 for row in rows))


@refuter("repeated-gathers", "large-gathers")
def repeated_gathers(claim: Claim, evidence: Evidence) -> Iterator[str]:
    came = evidence.rows("Client Calls").where(lambda row: row["receiving"] > 0)
    yield from exceeds(claim["receiving"], _total(came, "receiving"), "seconds of receiving")
    yield from exceeds(claim["calls"], _total(came, "calls"), "calls in which results came")
    yield from exceeds(claim.seconds, claim["receiving"], "seconds at stake")
    if claim.rule == "large-gathers":
        yield from exceeds(claim["received"], _total(came, "received"), "bytes that came")
        return
    line = came.where(lambda row: f"{row['file']}:{row['line']} " in claim["line"])
    after = line.where(lambda row: row["timestamp"] > evidence.last_end + _KNOWN_WITHIN)
    if 0 < len(line) == len(after) and claim["waiting"] > 0:
        yield f"it waits {claim['waiting']:.3g} s for results after the last task had ended"
    if not is_at_most(_total(line, "keys"), 1.5 * _total(line, "calls")):
        yield "calls of that line ask for many results each"


@refuter("slow-tokenization")
def slow_tokenization(claim: Claim, evidence: Evidence) -> Iterator[str]:
    hashed = _total(evidence.rows("Client Calls"), "tokenising")
    yield from differs(claim["hashing"], hashed, "seconds of making names")
    yield from exceeds(claim["there"], claim["hashing"], "those of a line")
    yield from exceeds(claim.seconds, claim["hashing"], "seconds at stake")


@refuter("large-objects-in-graph")
def large_objects_in_graph(claim: Claim, evidence: Evidence) -> Iterator[str]:
    sent = evidence.rows("Sent Value").where(lambda row: row["name"] == claim["name"])
    total = sum(row["size"] * row["tasks"] for row in sent)
    yield from exceeds(claim["bytes"], 1.01 * total, "bytes in all tasks")
    yield from exceeds(claim["tasks"], _total(sent, "tasks"), "tasks that have it")
    yield from exceeds(claim["handling"], handling_seconds(evidence), "seconds of handling tasks")
    if re.search(r"scatter\(\w+, (broadcast|hash)", claim.suggestion):
        yield "of a dict or a list scatter() sends each item by itself"
    if claim["held"] in ("builtins.dict", "builtins.list") and "scatter([" in claim.suggestion:
        yield f"a {claim['held']} is sent item by item where it is scattered"
    pickled = _total(evidence.rows("Client Calls"), "pickling")
    yield from exceeds(claim["pickling"], pickled, "seconds of pickling")
    for figure, column in (("hashing", "tokenising"), ("transit", "waiting")):
        seconds = _total(evidence.rows("Client Calls"), column)
        yield from exceeds(claim[figure], seconds, f"seconds of {figure}")
    parts = sum(claim[name] for name in ("handling", "pickling", "hashing", "transit"))
    yield from exceeds(claim.seconds, parts, "seconds at stake")
