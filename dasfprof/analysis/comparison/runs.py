"""The runs of a comparison: how they are opened, and how their surroundings differ."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.analyser import Analyser
from dasfprof.analysis.diagnosis.registry import Finding
from dasfprof.analysis.model.critical_path import path_seconds
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace import Trace
from dasfprof.database import MultiEventDatabase, find_runs, open_run
from dasfprof.database.reader import TraceFile, is_dasf_trace
from dasfprof.errors import InvalidArgumentError, SourceNotFoundError
from dasfprof.text import count_of, format_size

#: A run, or several runs of the same program.
Source = str | os.PathLike[str] | MultiEventDatabase | Trace | Analyser
Sources = Source | Iterable[Source]


@dataclass(frozen=True)
class ComparedRun:
    """A run in one of the two groups of a comparison."""

    name: str
    trace: Run
    #: Identity of the run. If it is empty, two objects are the same run only if they have the same
    #: trace object.
    uuid: str = ""

    @cached_property
    def seconds(self) -> float:
        """Seconds from the first submission to the last finish, or NaN if no task finished."""
        return path_seconds(self.trace)

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings of the run."""
        return diagnosis.find(self.trace)

    @cached_property
    def faults(self) -> list[str]:
        """Reasons why the wall time of the run is not suitable for a comparison, as clauses."""
        trace, faults = self.trace, []
        failed = int((trace.tasks["state"] == "erred").sum())
        if not len(trace.tasks):
            faults.append("has no task runs")
        if trace.ending is not None:
            faults.append("did not end")
        if failed:
            faults.append(f"has {count_of(failed, 'failed task')}")
        if any(note.kind in ("damaged-file", "header-lost") for note in trace.notes):
            faults.append("has damaged files, so that tasks may be missing")
        return faults

    @property
    def is_complete(self) -> bool:
        """Whether the run ended, so that its wall time can be compared."""
        return bool(np.isfinite(self.seconds)) and self.trace.ending is None

    def is_same(self, other: ComparedRun) -> bool:
        """Return whether this object and another one describe the same run."""
        return self.trace is other.trace or bool(self.uuid and self.uuid == other.uuid)


def open_side(source: Sources) -> list[ComparedRun]:
    """Open the runs of one group, oldest first.

    Raises
    ------
    SourceNotFoundError, NotATraceError
        If a trace does not exist.
    InvalidArgumentError
        If there is no source, or if an item is not a source.
    """
    if isinstance(source, str | os.PathLike | MultiEventDatabase | Trace | Analyser):
        source = [source]
    runs: list[ComparedRun] = []
    files: list[Path] = []
    for item in source:
        if isinstance(item, Analyser | Trace):
            trace = item.run if isinstance(item, Analyser) else Run.from_trace(item)
            runs.append(ComparedRun(trace.run or "run", trace))
        elif isinstance(item, MultiEventDatabase):
            runs.append(_run_of(item))
        elif isinstance(item, str | os.PathLike):
            files += _files(item)
        else:
            raise InvalidArgumentError(
                f"cannot compare {item!r} of type {type(item).__name__}: expected the source of "
                "a run, a TraceAnalyser, or a list of these."
            )
    runs += [_run_of(MultiEventDatabase(group)) for group in _by_run(files)]
    distinct: list[ComparedRun] = []
    for run in runs:
        if not any(run.is_same(other) for other in distinct):
            distinct.append(run)
    if not distinct:
        raise InvalidArgumentError("one side has no runs: pass at least one source for each side.")
    return sorted(distinct, key=lambda run: float(np.nan_to_num(run.trace.begin)))


def _files(source: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a source. If it is a directory, return the files of all its runs."""
    path = Path(source)
    if path.is_dir():
        files = [file for run in find_runs(path) for file in run.files]
        for inner in sorted(path.iterdir()) if not files else ():
            if inner.is_dir():  # Runs have separate directories.
                files += [file for run in find_runs(inner) for file in run.files]
        if not files:
            raise SourceNotFoundError(
                f"there is no run in the directory {os.fspath(source)!r}: it contains no trace "
                "files, and neither do its subdirectories."
            )
        return files
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # If several runs have this name, the newest is opened.
        database = open_run(source)
    return [item.path for item in database.databases]  # type: ignore[attr-defined]


def _by_run(files: list[Path]) -> list[list[Path]]:
    """Group files by run."""
    wanted = {path.resolve() for path in files}
    groups = []
    for directory in dict.fromkeys(path.parent for path in files):
        for run in find_runs(directory):
            paths = [path for path in run.files if path.resolve() in wanted]
            if paths:
                groups.append(paths)
    return groups


def _run_of(database: MultiEventDatabase) -> ComparedRun:
    trace = Run.from_database(database, progress=False)
    paths = [Path(path) for item in database.databases if (path := getattr(item, "path", None))]
    headers = [TraceFile(path).read_header() for path in paths if not is_dasf_trace(path)]
    uuid = next((str(h["run_uuid"]) for h in headers if h.get("run_uuid")), "")
    name = trace.run or (paths[0].stem if paths else "run")
    return ComparedRun(name, trace, uuid)


#: Tolerance (fraction): numbers that vary from run to run count as equal if they differ by less.
_SAME = 0.01
#: Threshold (fraction of the logarithm of the change in wall time): the logarithm of a difference
#: is large enough to explain the change.
_IN_PART = 0.4


class _Fact(NamedTuple):
    """A number that describes a run, and whether a larger number makes a run longer."""

    what: str
    of: Callable[[Run], float]
    #: 1 if a larger number makes a run longer, -1 if it makes a run shorter, and 0 if either is
    #: possible.
    makes_longer: int = 0
    write: Callable[[float], str] = "{:,.6g}".format


def compare_surroundings(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun], change: float
) -> pd.DataFrame:
    """Return differences between the groups. See `RunComparison.surroundings`.

    `change` is the fraction by which the runs after the change took longer. It is NaN if unknown,
    and 0 if there is nothing to explain.
    """
    may = "possibly" if change else ""
    rows = []
    for label, values_of in (
        ("Version of", attrgetter("trace.surroundings.versions")),
        ("Setting", attrgetter("trace.surroundings.settings")),
    ):
        sides = [[values_of(run) for run in side] for side in (before, after)]
        names = sorted({name for side in sides for run in side for name in run})
        for name in names if all(run for side in sides for run in side) else ():
            texts = [_joined({run.get(name, "none") for run in side}) for side in sides]
            if texts[0] != texts[1]:
                rows.append((f"{label} {name}", *texts, may))
    hosts = [
        _joined({str(host) for run in side for host in _workers(run.trace)["host"] if host})
        for side in (before, after)
    ]
    if hosts[0] != hosts[1]:
        rows.append(("Hosts", *hosts, may))
    for fact in _FACTS:
        values = [np.array([fact.of(run.trace) for run in side]) for side in (before, after)]
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
        return "no: it has the opposite effect"
    enough = min(means) == 0 or abs(np.log(means[1] / means[0])) >= _IN_PART * abs(np.log1p(change))
    return "yes" if enough else "in part at most"


def _is_same(before: float, after: float) -> bool:
    return abs(after - before) <= _SAME * max(abs(before), abs(after))


def _range(values: np.ndarray, write: Callable[[float], str]) -> str:
    least, most = float(values.min()), float(values.max())
    return write(least) if _is_same(least, most) else f"{write(least)} to {write(most)}"


def _joined(texts: set[str]) -> str:
    return ", ".join(sorted(texts))


def _workers(run: Run) -> pd.DataFrame:
    workers = run.workers
    return workers[workers["kind"] == "worker"].drop_duplicates(["host", "worker"])


def _sum(column: pd.Series[float]) -> float:
    return float(column.astype(float).sum(min_count=1))


_FACTS = (
    _Fact("Workers", lambda run: float(len(_workers(run))), -1),
    _Fact("Threads", lambda run: _sum(_workers(run)["nthreads"]), -1),
    _Fact(
        "Memory limit of all workers",
        lambda run: _sum(_workers(run)["memory_limit"]),
        -1,
        format_size,
    ),
    _Fact("Task runs", lambda run: float(len(run.tasks)), 1),
    _Fact("Functions", lambda run: float(run.tasks["function"].nunique())),
    _Fact("Dependencies in the graph", lambda run: float(len(run.dependencies[1])), 1),
    _Fact("Graphs submitted", lambda run: float(len(run.graphs)), 1),
    _Fact("Median size of a result", lambda run: run.tasks["size"].median(), 0, format_size),
    _Fact(
        "Bytes of all inputs of tasks", lambda run: _sum(run.tasks["input_size"]), 1, format_size
    ),
    _Fact("Bytes of all results", lambda run: float(run.tasks["size"].sum()), 1, format_size),
    _Fact(
        "Bytes moved between workers",
        lambda run: run.transfers.loc[run.transfers["state"] == "success", "size"].sum(),
        1,
        format_size,
    ),
    _Fact(
        "Stacks sampled",
        lambda run: float(len(run.task_samples) > 0),
        0,
        lambda share: "yes" if share else "no",
    ),
    _Fact("Failed tasks", lambda run: float((run.tasks["state"] == "erred").sum())),
)


def compare_memory(before: Sequence[Run], after: Sequence[Run]) -> pd.DataFrame:
    """Return a table of the memory of workers. See `RunComparison.memory`."""
    rows = []
    for what, of in _FIGURES.items():
        means = [float(np.mean([of(trace) for trace in side])) / 1e6 for side in (before, after)]
        if np.isfinite(means).all() and max(means) > 0:
            change = (means[1] / means[0] - 1) * 100 if means[0] > 0 else np.nan
            rows.append((what, *means, change))
    columns = ["What", "Before (MB)", "After (MB)", "Change (%)"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype(dict.fromkeys(columns[1:], float))


def _of_workers(trace: Run, samples: pd.DataFrame, column: str) -> pd.Series[float]:
    """Return a column of the samples of worker processes, indexed by worker."""
    if column not in samples:
        return pd.Series(dtype=float)
    of = samples["worker_id"].to_numpy()
    of_workers = (trace.workers["kind"] == "worker").to_numpy()[of]
    return samples[column].astype(float).set_axis(of)[of_workers]


def _memory(trace: Run) -> pd.Series[float]:
    return _of_workers(trace, trace.samples, "memory")


_FIGURES: dict[str, Callable[[Run], float]] = {
    "Process of a worker, at most": lambda trace: _memory(trace).max(),
    "Process of a worker, mean": lambda trace: _memory(trace).groupby(level=0).mean().mean(),
    "Results held by a worker, at most": lambda trace: _of_workers(
        trace, trace.managed_memory, "size"
    ).max(),
}
