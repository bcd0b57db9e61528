"""Workers that died of want of memory, and what took it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.memory_kills import MemoryKill, Reason, UnderWay, memory_kills
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import exit_words
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question
from dasfprof.text import format_duration, format_size


@question(
    "Workers that died of want of memory",
    "balance",
    short="memory-kills",
    expendable=("Told By", "Group (MB)", "Group Limit (MB)", "Group Workers"),
)
def died_of_memory(run: Run) -> pd.DataFrame:
    """Say of each worker that died of want of memory which function took it, and how sure that is.

    Returns
    -------
    DataFrame
        A row a death, in their order; what a killed process would have needed nothing tells:

        - ``Worker``, ``Left (s)`` from begin; ``Told By``: its nanny, or how its process ended
        - ``Memory (MB)``, ``Limit (MB)``: of the process in its last sample; what it took after
          that is in none
        - ``Group (MB)``, ``Group Limit (MB)``: what the workers of its control group had in their
          last samples together, as of a Slurm job or a pod, and what they may; ``Group Workers``:
          how many; NA and 0: none limits it, or it was not recorded. What else is in the group
          counts for the kernel and is not in this
        - ``Results (MB)``: results in memory by then; ``Before (MB)``: what the process held when
          the first of the tasks under way began
        - ``Tasks``: those that ran there, for how long, and what a run usually takes
        - ``Suspect``: the function that took the memory, or whose results did; empty: none is
          named; ``Certainty``: *certain*, *likely*, *cannot tell*; ``Because``: what that rests on
    """
    kills = memory_kills(run)
    workers = run.workers["worker"].to_numpy(dtype=object)

    def megabytes(name: str) -> np.ndarray:
        return np.array([getattr(kill, name) for kill in kills], dtype=float) / 1e6

    def texts(values: list[str]) -> pd.Series:
        return text(np.array(values, dtype=object))

    return pd.DataFrame(
        {
            "Worker": texts([str(workers[kill.life]) for kill in kills]),
            "Left (s)": np.array([kill.left for kill in kills], dtype=float),
            "Told By": texts([exit_words(run, kill.life) for kill in kills]),
            "Memory (MB)": megabytes("memory"),
            "Limit (MB)": megabytes("limit"),
            "Group (MB)": np.array([one.group.memory for one in kills], dtype=float) / 1e6,
            "Group Limit (MB)": np.array([one.group.limit for one in kills], dtype=float) / 1e6,
            "Group Workers": np.array([one.group.workers for one in kills], dtype=np.int64),
            "Results (MB)": megabytes("results"),
            "Before (MB)": megabytes("before"),
            "Tasks": texts(["; ".join(map(_in_words, kill.tasks)) for kill in kills]),
            "Suspect": texts([kill.suspect or "" for kill in kills]),
            "Certainty": texts([kill.certainty.value for kill in kills]),
            "Because": texts([_because(kill) for kill in kills]),
        }
    )


def _in_words(tasks: UnderWay) -> str:
    parts = []
    if tasks.seen:
        parts.append(f"{tasks.seen} for {format_duration(tasks.seconds)}")
    if tasks.perhaps:
        parts.append(f"perhaps {tasks.perhaps}")
    usual = f"{format_size(tasks.rise)} each" if np.isfinite(tasks.rise) else "unknown"
    return f"{tasks.function}: {', '.join(parts)} (usually {usual})"


def _because(kill: MemoryKill) -> str:
    if kill.reason is Reason.RESULTS:
        return f"{kill.reason.value}: {format_size(kill.results)} of {format_size(kill.limit)}"
    return str(kill.reason.value)
