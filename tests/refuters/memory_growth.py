"""The refuter of what is said of memory that grows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refuters.evidence import Evidence
from refuters.figures import Said, exceeds
from refuters.registry import refuter


@refuter("memory-grows")
def memory_grows(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with what processes had in each third of the run, whatever ran then."""
    yield from exceeds(said["least"], said["each"], "its mean")
    yield from exceeds(said["each"], said["most"], "its most")
    rise = said["last"] - said["first"]
    yield from exceeds(said["each"] * said["computations"] / 1.01, rise, "the rise")
    if said["of"] == "scheduler":
        whole = [evidence.rows("Scheduler State").numbers("memory")]
    else:
        name = "size" if said["of"] == "results" else "memory"
        event = "Managed Memory" if name == "size" else "Resource Usage"
        whole = [rows.numbers(name) for rows in evidence.rows(event).by("label").values()]
    yield from exceeds(rise, sum(np.nanmax(one) - np.nanmin(one) for one in whole), "any rise")
    if said["of"] == "scheduler" and said["tasks"] and said["tasks"] > 0:
        known = [
            sum(sum(states.values()) for states in tasks.values())
            for tasks in evidence.rows("Scheduler State").values("tasks")
        ]
        yield from exceeds(said["tasks"], max(known) - min(known), "any rise of known tasks")
    thirds = [np.array_split(one, 3) for one in whole]
    least = [sum(float(np.nanmin(parts[at])) for parts in thirds) for at in (0, -1)]
    if not least[0] < least[1]:
        yield "it was no more in the last third than in the first"
    arrivals = evidence.rows("Graph")
    if len(arrivals) and said["computations"] > len(arrivals):
        yield f"only {len(arrivals)} graphs came"
