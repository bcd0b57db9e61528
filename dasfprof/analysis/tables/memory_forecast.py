"""What workers would hold at most on other numbers of them, and whether that fits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.changes import changed_cluster, worker_counts
from dasfprof.analysis.simulation.memory import MemoryPeaks, memory_forecast_of
from dasfprof.analysis.simulation.replay import is_positive, replay_of
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_size

#: Shares of the recorded workers that are asked about if none are given.
_USUAL = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Shares of its limit from which on a worker spills, pauses and is killed, as Dask's defaults.
SPILLS, _PAUSES, DIES = 0.6, 0.8, 0.95
#: By how much 0.333 may differ from a third.
_SAME = 0.01


@question("Memory on other numbers of workers", "predictions")
def memory_forecast(
    run: Run,
    workers: Sequence[int] | None = None,
    *,
    threads: int | None = None,
    memory_limit: float | None = None,
    chunks: float = 1,
) -> pd.DataFrame:
    """Foretell what the fullest worker would hold at most on other workers, or with other chunks.

    Parameters
    ----------
    workers
        Numbers of workers; None asks about a quarter to four times the recorded ones. Each takes
        some replays.
    threads
        Of each worker; None: as recorded.
    memory_limit
        Bytes that a worker may take; None: as recorded.
    chunks
        How many times as large chunks are: a whole number, or 1 through one (0.5 for half).

    Returns
    -------
    DataFrame
        A row a number of workers:

        - ``Workers``, ``Threads per Worker``; ``Times Larger``: the chunks
        - ``Results (MB)``: that the fullest worker would hold at once, in memory or spilled;
          ``Results at Least (MB)``, ``Results at Most (MB)``
        - ``Process (MB)``: of the fullest worker, if nothing were spilled; ``Process at Least
          (MB)``, ``Process at Most (MB)``
        - ``Limit (MB)`` of a worker; NA: none, or unknown
        - ``Verdict``, or why nothing can be foretold

    Notes
    -----
    Some 20 replays, with durations that vary as those of their function did, tell where results
    would be and when they would be let go; a process has beside them what it had at first, and what
    running tasks took beyond results. The interval is that of eight in ten of these peaks, wider to
    both sides by 7 %, of processes by 12 %; with other chunks by 12 % and 15 %. Where replays of
    the recorded cluster miss the peak that was recorded, it is wider to that side by the square
    root of that factor: half of it may be chance. Results that are together for less than 0.05 s do
    not count, as samples do not see them either. Tasks are taken to need as much memory elsewhere.
    Of 20 small runs on other clusters than the recorded one 18 had results, and all processes, in
    the interval; of 30 with other chunks 25, and 29.

    With chunks of another size each task takes time, and has results, in proportion to it; there
    are fewer or more tasks in every group that has several, and a part of one takes the same part
    of its inputs. What that leaves out is how an algorithm changes with its chunks: the plan of a
    rechunk, say, or the depth of a tree.

    Raises
    ------
    InvalidArgumentError
        If a number is out of range.
    """
    replay, forecast = replay_of(run), memory_forecast_of(run)
    counts = worker_counts(workers, max(replay.cluster.most_workers, 1), _USUAL)
    times, parts = _times_and_parts(chunks)
    limit = recorded_or_given_limit(run, memory_limit)
    clusters = [changed_cluster(replay, count, threads) for count in counts]
    obstacle = forecast.obstacle
    found = [None if obstacle else forecast.peaks(cluster, times, parts) for cluster in clusters]

    def figures(kind: str, bound: str) -> np.ndarray:
        values = [np.nan if one is None else getattr(getattr(one, kind), bound) for one in found]
        return np.array(values, dtype=float) / 1e6

    each = [int(np.median(one.threads)) if len(one.threads) else 1 for one in clusters]
    verdicts = [f"Not to be foretold: {obstacle}." if obstacle else "" for _ in counts]
    verdicts = [
        said if one is None else _verdict(one, limit)
        for said, one in zip(verdicts, found, strict=True)
    ]
    return pd.DataFrame(
        {
            "Workers": np.array(counts, dtype=np.int64),
            "Threads per Worker": np.array(each, dtype=np.int64),
            "Times Larger": np.full(len(counts), times / parts),
            "Results (MB)": figures("results", "likely"),
            "Results at Least (MB)": figures("results", "least"),
            "Results at Most (MB)": figures("results", "most"),
            "Process (MB)": figures("process", "likely"),
            "Process at Least (MB)": figures("process", "least"),
            "Process at Most (MB)": figures("process", "most"),
            "Limit (MB)": np.full(len(counts), limit / 1e6),
            "Verdict": text(np.array(verdicts, dtype=object)),
        }
    )


def recorded_or_given_limit(run: Run, memory_limit: float | None) -> float:
    """Return the bytes that a worker may take; NaN: unknown, or as many as there are."""
    if memory_limit is None:
        limits = run.workers["memory_limit"].dropna().to_numpy(dtype=float)
        return float(np.median(limits)) if len(limits) else float("nan")
    if not is_positive(memory_limit):
        raise InvalidArgumentError(
            f"memory_limit={memory_limit!r}: give the bytes that a worker may take, more than 0 "
            "(8e9 is 8 GB), or None for the recorded limit."
        )
    return float(memory_limit)


def _times_and_parts(chunks: float) -> tuple[int, int]:
    """Return how many times as large chunks are, and into how many parts each goes."""
    if is_positive(chunks):
        times, parts = max(round(chunks), 1), max(round(1 / chunks), 1)
        if abs(chunks * parts / times - 1) < _SAME:
            return times, parts
    raise InvalidArgumentError(
        f"chunks={chunks!r}: give how many times as large they are: a whole number, or 1 through "
        "one (0.5 for chunks half as large)."
    )


def _verdict(found: MemoryPeaks, limit: float) -> str:
    process = found.process
    if not limit > 0:
        return "No limit is known: give memory_limit."
    if process.least > DIES * limit:
        spilled = format_size(process.least - DIES * limit)
        return f"Would not fit: without {spilled} at least on disk the worker is killed."
    if process.most > DIES * limit:
        return "May not fit: at most it needs more than a worker may take before it is killed."
    if process.most > _PAUSES * limit:
        return "May not fit without spilling: at most a worker would pause."
    if process.most > SPILLS * limit:
        return "Fits, but may spill."
    return "Fits."
