"""The refuter of what is said of memory that stays in processes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refuters.evidence import Evidence, Rows
from refuters.figures import Said, exceeds
from refuters.registry import refuter


@refuter("unmanaged-memory")
def unmanaged_memory(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare with the process's memory, its results, and what ran there at its end."""
    used = evidence.rows("Resource Usage").by("label").get(said.worker, Rows([]))
    held = evidence.rows("Managed Memory").by("label").get(said.worker, Rows([]))
    memory = used.numbers("memory")
    yield from exceeds(said["left"] + said["results"], np.nanmax(memory), "its memory")
    ran = evidence.runs.where(lambda row: row["label"] == said.worker)
    last = float(ran.numbers("stop").max(initial=-np.inf))
    if held.numbers("timestamp")[-1] - said["lasted"] < last - 1.0:
        yield "tasks ran there in that time"
    after = used.where(lambda row: row["timestamp"] >= last).numbers("memory")
    yield from exceeds(said["left"] + said["results"], np.nanmax(after), "its memory after tasks")
