"""`TrialProcess`: one recorded run of a program in a separate process, and its result."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from dasfprof.analysis.comparison.runs import ComparedRun, open_side
from dasfprof.analysis.model.client_time import find_calls
from dasfprof.analysis.model.critical_path import find_path
from dasfprof.errors import DasfprofError
from dasfprof.handles.trial.results import files_below, written_since
from dasfprof.handles.trial.settings import Settings
from dasfprof.text import excerpt

#: Module that the process executes, with the path of a plan as its argument.
_MODULE = "dasfprof.handles.trial.trial_run"
#: Seconds that a program has to end, after Ctrl-C and after SIGTERM.
_GRACE = (10.0, 3.0)


@dataclass(frozen=True)
class Program:
    """The program of a trial: a script or a module with its arguments, or a pickled function."""

    name: str
    #: Path of a script or name of a module, followed by its arguments.
    command: tuple[str, ...] = ()
    as_module: bool = False
    #: Path of a file with a pickled function and the paths of modules from which it imports.
    function: str = ""
    #: Options of the recording.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Working directory of the program, or empty for the working directory of this process.
    directory: str = ""
    #: The copied directory and its copy. Empty if the program does not run in a copy.
    moved: tuple[str, ...] = ()
    #: Files of the copy that a patch has changed, relative to the copy.
    patched: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """How a run of a program ended, what the program printed and wrote, and what was recorded."""

    exit_code: int
    #: Whether the run was ended because it exceeded its time limit.
    is_late: bool
    #: Seconds from the start to the end of the program, or NaN if it did not reach its end.
    program_seconds: float

    #: The program's output, and the last line of its standard error.
    printed: str
    complaint: str
    #: Facts about each local cluster. See `ChangedOptions.clusters`.
    clusters: list[dict[str, Any]]
    #: Settings of Dask's config that had other values at the end.
    missed_config: list[str]
    #: Reasons why clusters were not recorded.
    refusals: list[str]
    #: Seconds of tasks and calls of Dask (`seconds_of`), summed over all clusters, or NaN if any
    #: cluster was not recorded to its end.
    seconds: float
    #: Number of recorded clusters.
    recorded: int
    #: Number of finished task runs.
    tasks: int
    #: The traces of the run.
    runs: list[ComparedRun]
    #: Path of the file with the value that the function returned.
    value: Path
    #: Contents of the files that the program wrote below its working directory, or None if there
    #: are too many files.
    written: Mapping[str, list[Any]] | None = field(default_factory=dict)
    #: Files that a patch changed in the copy, but that the program imported from their original
    #: place.
    unpatched: list[str] = field(default_factory=list)


def run_program(
    program: Program, settings: Settings, work: Path, traces: Path, limit: float
) -> Done:
    """Run a program with changed settings, and end it after a time limit.

    Parameters
    ----------
    work
        A new directory for the files through which this process and the program's process
        communicate.
    traces
        Directory for the trace files.
    limit
        Seconds after which the program is ended, first as with Ctrl-C.
    """
    work.mkdir(parents=True)
    traces.mkdir(parents=True)
    plan, result, value = work / "plan.json", work / "result.json", work / "value"
    options = {**program.options, "directory": str(traces.absolute())}
    directory = Path(program.directory or ".")
    files = files_below(directory)
    plan.write_text(
        json.dumps(
            {
                "program": {**asdict(program), "options": options},
                "settings": asdict(settings),
                "result": str(result),
                "value": str(value),
            }
        )
    )
    with (work / "stdout").open("wb") as printed, (work / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(plan)],
            env={**os.environ, **settings.variables},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=stderr,
            # A signal to the program must also reach its workers, and Ctrl-C in the terminal must
            # not reach it directly.
            start_new_session=True,
        )
        try:
            is_late = not _ended(process, limit)
            # If the program is ended below, it may still write its result.
            has_ended = result.exists()
        finally:
            _end(process)
            _end_group(process.pid)
    runs: list[ComparedRun] = []
    with contextlib.suppress(DasfprofError):
        runs = open_side(traces)
    # The last line of a traceback is its error. Indented lines are code that a warning quotes.
    errors = (work / "stderr").read_text(errors="replace").splitlines()
    complaints = [line for line in errors if line[:1].strip()]
    is_complete = bool(runs) and all(run.is_complete for run in runs)
    facts: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
    return Done(
        exit_code=facts["exit_code"] if facts else process.returncode,
        is_late=is_late,
        program_seconds=facts["seconds"] if facts and has_ended else float("nan"),
        printed=(work / "stdout").read_text(errors="replace"),
        complaint=excerpt(complaints[-1]) if complaints else "",
        clusters=facts.get("clusters", []),
        missed_config=facts.get("missed_config", []),
        unpatched=facts.get("unpatched", []),
        refusals=facts.get("refusals", []),
        seconds=sum(map(seconds_of, runs)) if is_complete else float("nan"),
        recorded=len(runs),
        tasks=sum(len(run.trace.tasks) for run in runs),
        runs=runs,
        value=value,
        written=written_since(files, directory, traces),
    )


def seconds_of(run: ComparedRun) -> float:
    """Return the seconds from the start to the end of a run's work, or NaN if it had no tasks.

    Work starts with the first submission, or with the client's call that prepared it. It ends when
    the last task finishes, or when the client's call that fetches the last result returns.
    """
    path, calls = find_path(run.trace), find_calls(run.trace)
    if not len(path.rows):
        return float("nan")
    calls = calls[((calls["keys"] > 0) | (calls["tokenising"] > 0)).to_numpy()]
    begin = run.trace.since_begin(calls["time"]).min(initial=float(path.begin[0]))
    return float(run.trace.since_begin(calls["stop"]).max(initial=float(path.end[-1])) - begin)


def _ended(process: subprocess.Popen[bytes], limit: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(limit)
    return process.returncode is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process if it is still running: with Ctrl-C, then with SIGTERM, then by force."""
    for number, grace in zip((signal.SIGINT, signal.SIGTERM), _GRACE, strict=True):
        if process.poll() is not None:
            return
        process.send_signal(number)
        _ended(process, grace)
    process.kill()
    process.wait()


def _end_group(group: int) -> None:
    """End the processes that a program left running."""
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                left.append(process)
    # Processes that end because the program ended, such as workers, first get some time to do so.
    # The other processes could disturb the next run, for example by occupying a port.
    for process in psutil.wait_procs(left, _GRACE[-1])[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()
