"""Summary of a run in a few figures, and durations that are expected from earlier runs.

Summaries are plain data that are stored in a file next to the files of runs. A summary is valid as
long as the sizes and modification times of the run's files do not change. The file with summaries
is written by the analysis, and never while recording. If it cannot be written or read, runs are
summarized again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from dasfprof.analysis import diagnosis
from dasfprof.analysis.model.accounting import hours_of_run, make_accounts
from dasfprof.analysis.model.critical_path import path_seconds
from dasfprof.analysis.model.thread_time import RUNNING
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.lines import plan
from dasfprof.database.ends import End
from dasfprof.database.runs import TraceFiles

#: Matches the suffix that registration adds to the name of a pipeline: the Unix time at which the
#: run was created.
_CREATED = re.compile(r"-\d{9,}$")


def summarise_run(run: TraceFiles, trace: Run) -> dict[str, Any]:
    """Return the summary of a run as JSON-compatible data.

    The keys are ``run``, ``pipeline``, ``shape`` (see `shape_of`), ``begin`` (Unix seconds),
    ``seconds`` (from the first submission to the last finish), ``efficiency`` (fraction of thread
    time in which functions ran), ``tasks`` and ``failed`` (numbers of task runs), ``ended``
    (whether no work was left), ``findings`` (number by severity), ``versions``, ``goes_on``
    (whether recording continues), ``hours`` (worker-hours and thread-hours), and ``idle`` (the
    worker-hours and thread-hours in which threads had no task). Unknown values are None.
    """
    findings = diagnosis.diagnose(trace)["Severity"].value_counts()
    hours = hours_of_run(trace)
    without_task = [hours[name] for name in ("idle", "waiting") if name in hours]
    return {
        "run": run.name,
        "pipeline": _CREATED.sub("", run.name),
        "shape": shape_of(trace),
        "begin": _known(run.created or trace.begin),
        "seconds": _known(path_seconds(trace)),
        "efficiency": _known(_efficiency(trace)),
        "tasks": len(trace.tasks),
        "failed": int((trace.tasks["state"] == "erred").sum()),
        "ended": trace.ending is None,
        "findings": {str(name): int(count) for name, count in findings.items()},
        "versions": trace.surroundings.versions,
        "goes_on": trace.recording is End.GOES_ON,
        "hours": (hours["total"].workers, hours["total"].threads),
        "idle": tuple(sum(getattr(x, of) for x in without_task) for of in ("workers", "threads")),
    }


def shape_of(trace: Run) -> str:
    """Return a text that is equal for runs with the same number of keys per function."""
    codes, names = trace.keys.functions()
    ran = np.unique(trace.tasks["key_id"].to_numpy())
    counts = np.bincount(codes[ran], minlength=len(names))
    text = repr(sorted((names[code], int(counts[code])) for code in np.flatnonzero(counts)))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _efficiency(trace: Run) -> float:
    of_lives = make_accounts(trace).of_lives
    total = float(of_lives.sum())
    return float(of_lives[:, list(RUNNING)].sum()) / total if total > 0 else math.nan


def _known(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


logger = logging.getLogger(__name__)

#: Name of the file with summaries. It differs from names of trace files.
FILE = ".dasfprof-history.json"
#: Version of the file's contents. Files of other versions are ignored.
_VERSION = 4

#: Size and modification time in ns of each file of a run, by name.
State = dict[str, list[int]]


def file_states(directory: Path) -> State:
    """Return the size and modification time of each file that may be a trace file, by name."""
    states = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".msgpack") and entry.is_file():
                facts = entry.stat()
                states[entry.name] = [facts.st_size, facts.st_mtime_ns]
    return states


def read_stored(directory: Path, states: State) -> list[tuple[State, dict[str, Any]]]:
    """Return the files and the stored summary of each run whose files have not changed.

    `states` are the current states of all files. See `file_states`.
    """
    try:
        stored = json.loads((directory / FILE).read_text(encoding="utf-8"))
        if stored["version"] != _VERSION:
            return []
        return [
            (dict(run["files"]), dict(run["summary"]))
            for run in stored["runs"]
            if run["files"] and all(states.get(name) == was for name, was in run["files"].items())
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def keep(directory: Path, runs: list[tuple[State, dict[str, Any]]]) -> None:
    """Write the summaries of runs."""
    text = json.dumps(
        {
            "version": _VERSION,
            "runs": [{"files": files, "summary": summary} for files, summary in runs],
        }
    )
    try:
        number, name = tempfile.mkstemp(dir=directory, prefix=FILE)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            # Another process that reads the file gets either the old or the new contents.
            Path(name).replace(directory / FILE)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError:  # The directory may be read-only, or the disk full.
        logger.debug("cannot keep the summaries of %s", directory, exc_info=True)


#: What an expectation is based on: task runs of the function that the same line built, task runs of
#: the function from any line, or nothing.
Basis = Literal["line", "function", "nothing recorded"]

#: A source line of the program: file, line number.
Place = tuple[str, int]


@dataclass(frozen=True)
class Expectation:
    """Expected duration of a task run, from earlier runs."""

    #: Expected thread-seconds: the mean of each earlier run is computed, and then the median of
    #: these means. None if unknown.
    seconds: float | None
    basis: Basis
    #: Number of runs, and number of task runs, on which the expectation is based.
    runs: int = 0
    tasks: int = 0


class Experience:
    """Durations of task runs in earlier runs, by function and source line.

    Parameters
    ----------
    traces
        The earlier runs.
    """

    def __init__(self, traces: Iterable[Run]) -> None:
        #: For each run: thread-seconds and number of task runs, by function and line. The line None
        #: has the sum of a function.
        self._runs = [_sums(trace) for trace in traces]

    def expect(self, function: str, place: Place | None) -> Expectation:
        """Return the expected duration of a task run of `function` that line `place` built."""
        levels: list[tuple[Basis, Place | None]] = [("function", None)]
        if place is not None:
            levels.insert(0, ("line", place))
        for basis, at in levels:
            sums = [run[function, at] for run in self._runs if (function, at) in run]
            if sums:
                means = [seconds / tasks for seconds, tasks in sums]
                return Expectation(median(means), basis, len(sums), sum(each[1] for each in sums))
        return Expectation(None, "nothing recorded")


def _sums(trace: Run) -> dict[tuple[str, Place | None], tuple[float, int]]:
    """Return the thread-seconds and the number of task runs by function and line.

    The entry with the line None is the sum over all lines of the function.
    """
    noted = trace.lines
    place_of = {
        line: (str(file), int(number))
        for line, file, number in zip(noted["line"], noted["file"], noted["number"], strict=True)
    }
    nodes = plan(trace)
    sums: dict[tuple[str, Place | None], tuple[float, int]] = {}
    columns = (nodes[name] for name in ("Function", "Line", "Tasks", "Thread Time (s)"))
    for function, line, tasks, seconds in zip(*columns, strict=True):
        if tasks and np.isfinite(seconds):
            for key in {(function, None), (function, place_of.get(line))}:
                before = sums.get(key, (0.0, 0))
                sums[key] = before[0] + float(seconds), before[1] + int(tasks)
    return sums
