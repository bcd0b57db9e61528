"""The rule about memory that stays in workers' processes when their tasks have ended."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.wording import Bytes, Count, Figures, Seconds, Share, Words

#: Bytes, and the share of a worker's limit, that are much, and seconds for which nothing runs.
_MUCH, _OF_LIMIT, _QUIET = 200_000_000, 0.2, 2.0


@rule("unmanaged-memory")
def unmanaged_memory(run: RunFigures) -> Iterator[Finding]:
    """Find processes that keep memory which is of no result, after they had run tasks."""
    trace = run.trace
    if not len(trace.samples) or not len(trace.managed_memory):
        return
    found: list[tuple[float, float, float, float, int]] = []
    for life in np.unique(trace.tasks["worker_id"].to_numpy()).tolist():
        quiet = _quiet(trace.managed_memory, life)
        memory = trace.samples.reindex(columns=["worker_id", "time", "memory"]).dropna()
        memory = memory[(memory["worker_id"] == life).to_numpy(dtype=bool)]
        if quiet is None or not len(memory):
            continue
        begin, end, results = quiet
        within = memory[memory["time"].between(begin, end).to_numpy(dtype=bool)]
        if not len(within):
            continue
        began = trace.begin + float(run.slots.times.start[_first(run, life)])
        before = memory["memory"].to_numpy(dtype=float)[(memory["time"] <= began).to_numpy()]
        first = float(before.max(initial=0.0)) if len(before) else float(memory["memory"].iloc[0])
        # The least within that time: what is freed late is not kept.
        left = float(within["memory"].min()) - results - first
        limit = float(trace.workers["memory_limit"].iloc[life])
        if left >= _MUCH and not left < _OF_LIMIT * limit:
            found.append((left, results, limit, end - begin, life))
    if not found:
        return
    left, results, limit, lasted, life = max(found)
    yield Finding.of(
        _say_unmanaged_memory,
        worker=str(trace.workers["worker"].iloc[life]),
        left=Bytes(left),
        results=Bytes(results),
        limit=Bytes(limit) if np.isfinite(limit) and limit > 0 else None,
        share=Share(left / limit) if np.isfinite(limit) and limit > 0 else None,
        lasted=Seconds(lasted),
        workers=Count(len(found)),
        at_least="medium",
        at_most="medium",
    )


def _say_unmanaged_memory(f: Figures) -> Words:
    limit = f", {f.share} of its limit of {f.limit}" if f.limit is not None else ""
    return (
        f"Memory stays in workers' processes when no task runs: {f.left} in that of {f.worker}, "
        f"beyond what it had before its first task and the results that it holds{limit}.",
        f"Results: {f.results}. Nothing ran there for {f.lasted}, and no less was used meanwhile. "
        f"So on {f.workers:worker}. Dask calls such memory unmanaged, and can neither spill nor "
        "free it. See processes_resource_usage().",
        "Whether the allocator keeps what was freed, or something still refers to it, this trace "
        "cannot tell; client.run(lambda: ctypes.CDLL('libc.so.6').malloc_trim(0)), with import "
        "ctypes within it, would. What that frees the allocator kept: call it now and then "
        "(MALLOC_TRIM_THRESHOLD_, which Dask's nannies set, frees what lies at the end alone). "
        "What it does not free is in module globals, caches and reference cycles of what tasks "
        "use.",
    )


def _quiet(held: pd.DataFrame, life: int) -> tuple[float, float, float] | None:
    """Return a time in which a worker ran nothing and its results stayed, and what they took.

    That is the last one that is long, after its last task; None: there was none. What results that
    are released give back, as at the end of the program, was not kept.
    """
    own = held[(held["worker_id"] == life).to_numpy(dtype=bool)]
    times = own["time"].to_numpy(dtype=float)
    spilled = np.nan_to_num(own["spilled_size"].to_numpy(dtype=float))
    # A few bytes are more as they are spilled.
    results = np.maximum(own["size"].to_numpy(dtype=float) - spilled, 0.0)
    busy = np.flatnonzero(~(own["executing"].to_numpy(dtype=float) == 0))
    first = int(busy[-1]) + 1 if len(busy) else 0
    changes = np.flatnonzero(np.diff(results[first:])) + first + 1
    bounds = [first, *changes.tolist(), len(times)]
    for begin, end in reversed(list(itertools.pairwise(bounds))):
        long = end > begin and times[end - 1] - times[begin] >= _QUIET
        if long and np.isfinite(results[begin]):
            return float(times[begin]), float(times[end - 1]), float(results[begin])
    return None


def _first(run: RunFigures, life: int) -> int:
    """Return a worker's first task run."""
    rows = np.flatnonzero(run.trace.tasks["worker_id"].to_numpy() == life)
    return int(rows[np.argmin(run.slots.times.start[rows])])
