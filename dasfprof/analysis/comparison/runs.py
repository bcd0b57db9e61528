"""The runs of a comparison, how those of each side are found, and other runs of the same graph."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.analyser import Analyser
from dasfprof.analysis.history.over_time import changes_of, kept_runs
from dasfprof.analysis.history.summary import pipeline_of, shape_of
from dasfprof.analysis.model.critical_path import path_seconds
from dasfprof.analysis.numeric.significance import student_quantile
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace import Trace
from dasfprof.database import MultiEventDatabase, find_runs, open_run
from dasfprof.database.columns import Array
from dasfprof.database.reader import TraceFile, is_dasf_trace
from dasfprof.errors import InvalidArgumentError, SourceNotFoundError
from dasfprof.text import count_of

#: One run, or several of the same program.
Source = str | os.PathLike[str] | MultiEventDatabase | Trace | Analyser
Sources = Source | Iterable[Source]


@dataclass(frozen=True)
class ComparedRun:
    """A run of one side."""

    name: str
    trace: Run
    #: What tells whether two are the same run; empty: only that the trace is the same object.
    uuid: str = ""
    #: Where its files are; None: unknown.
    directory: Path | None = None

    @cached_property
    def seconds(self) -> float:
        """The wall time from the first submission to the last finish; NaN if nothing ended."""
        return path_seconds(self.trace)

    @cached_property
    def findings(self) -> pd.DataFrame:
        """What the diagnosis finds."""
        return diagnosis.diagnose(self.trace)

    @cached_property
    def faults(self) -> list[str]:
        """What makes the run's wall time another thing than that of a whole run, in words."""
        trace, found = self.trace, []
        failed = int((trace.tasks["state"] == "erred").sum())
        if not len(trace.tasks):
            found.append("has no task runs")
        if trace.ending is not None:
            found.append("did not end")
        if failed:
            found.append(f"has {count_of(failed, 'failed task')}")
        if any(note.kind in ("damaged-file", "header-lost") for note in trace.notes):
            found.append("has damaged files, so that tasks may be missing")
        return found

    @property
    def is_whole(self) -> bool:
        """Whether it ended, so that its wall time can be compared."""
        return bool(np.isfinite(self.seconds)) and self.trace.ending is None

    def is_same(self, other: ComparedRun) -> bool:
        """Return whether two are the same run."""
        return self.trace is other.trace or bool(self.uuid and self.uuid == other.uuid)


def open_side(source: Sources) -> list[ComparedRun]:
    """Open the runs of one side, the oldest first.

    Raises
    ------
    SourceNotFoundError, NotATraceError
        If there is no such trace.
    InvalidArgumentError
        If there is none at all, or something that is no source.
    """
    if isinstance(source, str | os.PathLike | MultiEventDatabase | Trace | Analyser):
        source = [source]
    runs: list[ComparedRun] = []
    files: list[Path] = []
    for item in source:
        if isinstance(item, Analyser | Trace):
            trace = item.run if isinstance(item, Analyser) else Run.of(item)
            runs.append(ComparedRun(trace.run or "run", trace))
        elif isinstance(item, MultiEventDatabase):
            runs.append(_run_of(item))
        elif isinstance(item, str | os.PathLike):
            files += _files(item)
        else:
            raise InvalidArgumentError(
                f"cannot compare {item!r} of type {type(item).__name__}: give a source of a run, a "
                "TraceAnalyser, or a list of those."
            )
    runs += [_run_of(MultiEventDatabase(group)) for group in _by_run(files)]
    distinct: list[ComparedRun] = []
    for run in runs:
        if not any(run.is_same(other) for other in distinct):
            distinct.append(run)
    if not distinct:
        raise InvalidArgumentError("one side has no run: give at least one source of each side.")
    return sorted(distinct, key=lambda run: float(np.nan_to_num(run.trace.begin)))


def list_runs(before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> pd.DataFrame:
    """List the runs of both sides; see `RunComparison.runs`."""
    sides = [("before", run) for run in before] + [("after", run) for run in after]
    rows = [
        (side, run.name, run.seconds, len(run.trace.tasks), "; ".join(run.faults))
        for side, run in sides
    ]
    columns = ["Side", "Run", "Wall Time (s)", "Task Runs", "Remarks"]
    return pd.DataFrame(rows, columns=columns)


def typical_run(side: Sequence[ComparedRun]) -> ComparedRun:
    """Return the run whose wall time is nearest to the median of its side."""
    seconds = np.nan_to_num([run.seconds for run in side])
    return side[int(np.argmin(np.abs(seconds - np.median(seconds))))]


def _files(source: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a source: of all runs in a directory, else as `open_run` finds them."""
    path = Path(source)
    if path.is_dir():
        found = [file for run in find_runs(path) for file in run.files]
        for inner in sorted(path.iterdir()) if not found else ():
            if inner.is_dir():  # each run in a directory of its own
                found += [file for run in find_runs(inner) for file in run.files]
        if not found:
            raise SourceNotFoundError(
                f"there is no run in the directory {os.fspath(source)!r}: no trace file there, nor "
                "in the directories in it."
            )
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of several with that name the newest is opened
        database = open_run(source)
    return [item.path for item in database.databases]  # type: ignore[attr-defined]


def _by_run(files: list[Path]) -> list[list[Path]]:
    """Group files by the run that they are of."""
    wanted = {path.resolve() for path in files}
    groups = []
    for directory in dict.fromkeys(path.parent for path in files):
        for run in find_runs(directory):
            own = [path for path in run.files if path.resolve() in wanted]
            if own:
                groups.append(own)
    return groups


def _run_of(database: MultiEventDatabase) -> ComparedRun:
    headers: list[dict[str, Any]] = []
    for item in database.databases:
        path = getattr(item, "path", None)
        if path is not None and not is_dasf_trace(Path(path)):
            headers.append(TraceFile(Path(path)).read_header())
    trace = Run.of(Trace.from_database(database, progress=False))
    uuid = next((str(h["run_uuid"]) for h in headers if h.get("run_uuid")), "")
    paths = [Path(path) for item in database.databases if (path := getattr(item, "path", None))]
    name = trace.run or (paths[0].stem if paths else "run")
    directory = paths[0].parent if paths else None
    return ComparedRun(name, trace, uuid, directory)


#: So few runs say too little of how much others vary; more than these are too long ago.
_ENOUGH, _MOST = 5, 20


def other_walls(before: ComparedRun, after: ComparedRun) -> Array:
    """Return the wall times of the last other runs of the graph of the run before.

    Those that the history of its directory has summed up, since the wall time last changed; none,
    if they are too few to tell how much runs vary.
    """
    if before.directory is None:
        return np.empty(0)
    pipeline, shape = pipeline_of(before.name), shape_of(before.trace)
    runs = [
        run
        for run in kept_runs(before.directory)
        if (run["pipeline"], run["shape"]) == (pipeline, shape)
        and run["run"] not in (before.name, after.name)
        and run["ended"]
        and not run["failed"]
        and run["seconds"]
    ]
    changed = [at for at, change in enumerate(changes_of(runs)) if change.text]
    seconds = [run["seconds"] for run in runs[changed[-1] if changed else 0 :]]
    return np.array(seconds[-_MOST:] if len(seconds) >= _ENOUGH else [], dtype=float)


def least_of_others(walls: Array, p: float) -> float:
    """Return the share by which two single runs differ as rarely as `p`, if others took so long.

    Of a normal spread of the logarithms, of which the walls are a sample.
    """
    deviation = float(np.log(walls).std(ddof=1))
    return float(np.expm1(student_quantile(p, len(walls) - 1) * np.sqrt(2) * deviation))
