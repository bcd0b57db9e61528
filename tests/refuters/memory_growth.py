"""Refuters of findings about growing memory."""

from collections.abc import Iterator

import numpy as np

from refuters.evidence import Evidence, Rows
from refuters.figures import Claim, exceeds
from refuters.registry import refuter


@refuter("memory-growth")
def memory_growth(claim: Claim, evidence: Evidence) -> Iterator[str]:
    if claim["of"] == "stays":
        yield from _stays(claim, evidence)
        return
    yield from exceeds(claim["least"], claim["each"], "its mean")
    yield from exceeds(claim["each"], claim["most"], "its most")
    rise = claim["last"] - claim["first"]
    yield from exceeds(claim["each"] * claim["computations"] / 1.01, rise, "the rise")
    if claim["of"] == "scheduler":
        series = [evidence.rows("Scheduler State").numbers("memory")]
    else:
        name = "size" if claim["of"] == "results" else "memory"
        event = "Managed Memory" if name == "size" else "Resource Usage"
        series = [rows.numbers(name) for rows in evidence.rows(event).by("label").values()]
    yield from exceeds(rise, sum(np.nanmax(one) - np.nanmin(one) for one in series), "any rise")
    thirds = [np.array_split(one, 3) for one in series]
    least = [sum(float(np.nanmin(parts[at])) for parts in thirds) for at in (0, -1)]
    if not least[0] < least[1]:
        yield "it was no more in the last third than in the first"
    arrivals = evidence.rows("Graph")
    if len(arrivals) and claim["computations"] > len(arrivals):
        yield f"only {len(arrivals)} graphs came"


def _stays(claim: Claim, evidence: Evidence) -> Iterator[str]:
    used = evidence.rows("Resource Usage").by("label").get(claim.worker, Rows([]))
    held = evidence.rows("Managed Memory").by("label").get(claim.worker, Rows([]))
    memory = used.numbers("memory")
    yield from exceeds(claim["left"] + claim["results"], np.nanmax(memory), "its memory")
    ran = evidence.runs.where(lambda row: row["label"] == claim.worker)
    last = float(ran.numbers("stop").max(initial=-np.inf))
    if held.numbers("timestamp")[-1] - claim["lasted"] < last - 1.0:
        yield "tasks ran there in that time"
    after = used.where(lambda row: row["timestamp"] >= last).numbers("memory")
    yield from exceeds(claim["left"] + claim["results"], np.nanmax(after), "its memory after tasks")
