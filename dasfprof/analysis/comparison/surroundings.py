"""What differs around two sides of runs: software, settings, cluster, graph, sizes, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.comparison.runs import ComparedRun
from dasfprof.analysis.run import Run
from dasfprof.text import format_size

#: Shares below which numbers that vary from run to run are the same.
_SAME = 0.01
#: What differs by less than this share of what the wall time differs by, as factors, does not
#: explain that.
_ENOUGH = 0.4


class _Fact(NamedTuple):
    """A number of a run."""

    what: str
    of: Callable[[ComparedRun], float]
    #: 1: more of it makes a run longer; -1: shorter; 0: either.
    makes_longer: int = 0
    write: Callable[[float], str] = "{:,.6g}".format


def compare_surroundings(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun], change: float
) -> pd.DataFrame:
    """List what differs around the runs; see `RunComparison.surroundings`.

    Parameters
    ----------
    before, after
        The runs.
    change
        By which share the side after took longer; NaN: unknown, 0: there is nothing to explain.
    """
    may = "possibly" if change else ""
    rows = []
    for label, told in (
        ("Version of", attrgetter("trace.surroundings.versions")),
        ("Setting", attrgetter("trace.surroundings.settings")),
    ):
        sides = [[told(run) for run in side] for side in (before, after)]
        names = sorted({name for side in sides for run in side for name in run})
        for name in names if all(run for side in sides for run in side) else ():
            texts = [_joined({run.get(name, "none") for run in side}) for side in sides]
            if texts[0] != texts[1]:
                rows.append((f"{label} {name}", *texts, may))
    hosts = [_joined({host for run in side for host in _hosts(run)}) for side in (before, after)]
    if hosts[0] != hosts[1]:
        rows.append(("Hosts", *hosts, may))
    for fact in _FACTS:
        values = [np.array([fact.of(run) for run in side]) for side in (before, after)]
        means = [float(v.mean()) for v in values]
        if not np.isfinite(means).all() or _is_same(*means):
            continue
        texts = [_range(v, fact.write) for v in values]
        rows.append((fact.what, *texts, _explains(fact.makes_longer, means, change)))
    columns = ["What", "Before", "After", "Could explain it"]
    return pd.DataFrame(rows, columns=columns, dtype=object)


def _explains(makes_longer: int, means: list[float], change: float) -> str:
    if not np.isfinite(change) or change == 0:
        return ""
    if makes_longer == 0:
        return "possibly"
    if np.sign(means[1] - means[0]) * makes_longer != np.sign(change):
        return "no: it works the other way"
    enough = min(means) == 0 or abs(np.log(means[1] / means[0])) >= _ENOUGH * abs(np.log1p(change))
    return "yes" if enough else "in part at most"


def _is_same(before: float, after: float) -> bool:
    return abs(after - before) <= _SAME * max(abs(before), abs(after))


def _range(values: np.ndarray, write: Callable[[float], str]) -> str:
    least, most = float(values.min()), float(values.max())
    return write(least) if _is_same(least, most) else f"{write(least)} to {write(most)}"


def _joined(texts: set[str]) -> str:
    return ", ".join(sorted(texts))


def _workers(run: ComparedRun) -> pd.DataFrame:
    workers = run.trace.workers
    return workers[workers["kind"] == "worker"].drop_duplicates(["host", "worker"])


def _hosts(run: ComparedRun) -> set[str]:
    return {str(host) for host in _workers(run)["host"] if host}


def _threads(run: ComparedRun) -> float:
    return float(_workers(run)["nthreads"].astype(float).sum(min_count=1))


def _memory(run: ComparedRun) -> float:
    return float(_workers(run)["memory_limit"].astype(float).sum(min_count=1))


def _edges(run: ComparedRun) -> float:
    return float(len(run.trace.dependencies[1]))


def _inputs(run: ComparedRun) -> float:
    return float(run.trace.tasks["input_size"].astype(float).sum(min_count=1))


def _result(run: ComparedRun) -> float:
    return float(run.trace.tasks["size"].astype(float).median())


def _moved(run: ComparedRun) -> float:
    arrived = run.trace.transfers
    return float(arrived.loc[arrived["state"] == "success", "size"].sum())


def _sampled(run: ComparedRun) -> float:
    return float(len(run.trace.task_samples) > 0)


_FACTS = (
    _Fact("Workers", lambda run: float(len(_workers(run))), -1),
    _Fact("Threads", _threads, -1),
    _Fact("Memory limit of all workers", _memory, -1, format_size),
    _Fact("Task runs", lambda run: float(len(run.trace.tasks)), 1),
    _Fact("Functions", lambda run: float(run.trace.tasks["function"].nunique())),
    _Fact("Dependencies in the graph", _edges, 1),
    _Fact("Graphs submitted", lambda run: float(len(run.trace.graphs)), 1),
    _Fact("Median size of a result", _result, 0, format_size),
    _Fact("Bytes of all inputs of tasks", _inputs, 1, format_size),
    _Fact("Bytes of all results", lambda run: float(run.trace.tasks["size"].sum()), 1, format_size),
    _Fact("Bytes moved between workers", _moved, 1, format_size),
    _Fact("Stacks sampled", _sampled, 0, lambda share: "yes" if share else "no"),
    _Fact("Failed tasks", lambda run: float((run.trace.tasks["state"] == "erred").sum())),
)


def compare_memory(before: Sequence[Run], after: Sequence[Run]) -> pd.DataFrame:
    """List what was held in memory; see `RunComparison.memory`."""
    rows = []
    for what, of in _FIGURES.items():
        means = [float(np.mean([of(trace) for trace in side])) / 1e6 for side in (before, after)]
        if np.isfinite(means).all() and max(means) > 0:
            change = (means[1] / means[0] - 1) * 100 if means[0] > 0 else np.nan
            rows.append((what, *means, change))
    columns = ["What", "Before (MB)", "After (MB)", "Change (%)"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype(dict.fromkeys(columns[1:], float))


def _highest_process(trace: Run) -> float:
    """Return the most that a worker's process had at a sample, in bytes; NaN: not sampled."""
    return float(_of_workers(trace, trace.samples, "memory").max())


def _usual_process(trace: Run) -> float:
    """Return what a worker's process had in the mean of its samples, and of the workers."""
    known = _of_workers(trace, trace.samples, "memory")
    return float(known.groupby(level=0).mean().mean())


def _most_held(trace: Run) -> float:
    """Return the most that results of tasks took on one worker."""
    return float(_of_workers(trace, trace.managed_memory, "size").max())


def _of_workers(trace: Run, samples: pd.DataFrame, column: str) -> pd.Series[float]:
    """Return a column of samples of workers' processes, by worker."""
    if column not in samples or not len(samples):
        return pd.Series(dtype=float)
    of = samples["worker_id"].to_numpy()
    kept = (trace.workers["kind"] == "worker").to_numpy()[of]
    known: pd.Series[float] = samples[column].astype(float).set_axis(of)[kept]
    return known


_FIGURES: dict[str, Callable[[Run], float]] = {
    "Process of a worker, at most": _highest_process,
    "Process of a worker, mean": _usual_process,
    "Results held by a worker, at most": _most_held,
}
