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
from dasfprof.errors import DasfprofError
from dasfprof.handles.trial.results import files_below, written_since
from dasfprof.handles.trial.settings import Settings
from dasfprof.text import excerpt

#: Code that the process runs. It gets the path of a plan.
_MODULE = "dasfprof.handles.trial.trial_run"
#: Seconds that a program has to end after Ctrl-C, and after SIGTERM.
_GRACE = (10.0, 3.0)
#: Parts of the commands of processes that Python itself starts. On a busy host, they end a while
#: later.
_HELPER = "from multiprocessing."


@dataclass(frozen=True)
class Program:
    """The program of a trial: a script or a module with its arguments, or a pickled function."""

    name: str
    #: A script's path or a module's name, and its arguments.
    command: tuple[str, ...] = ()
    as_module: bool = False
    #: File of a pickled function. The paths are those of the process that pickled it.
    function: str = ""
    #: Options of the recording.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Its working directory, or empty for that of this process.
    directory: str = ""
    #: The directory that was copied, and the copy, or empty if it does not run in a copy.
    moved: tuple[str, ...] = ()
    #: The files of the copy that a patch changed, relative to the copy.
    patched: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """How a run ended, and what it left."""

    exit_code: int
    #: Whether it was ended because it took too long.
    is_late: bool
    #: Seconds from the program's start to its end, or NaN if it did not reach its end.
    program_seconds: float
    #: Commands of processes that it left behind, which were ended.
    left_behind: list[str]
    #: Its output, and the end of its standard error.
    printed: str
    complaint: str
    #: Facts about each local cluster. See `ChangedOptions.clusters`.
    clusters: list[dict[str, Any]]
    #: Settings of Dask's config that had other values at the end.
    missed_config: list[str]
    #: Reasons why clusters were not recorded.
    refusals: list[str]
    #: Seconds from the first submission to the last finish, over all its clusters, or NaN if none
    #: was recorded to its end.
    seconds: float
    #: Number of recorded clusters.
    recorded: int
    #: Number of finished task runs.
    tasks: int
    #: Its traces.
    runs: list[ComparedRun]
    #: File with the value that a function returned.
    value: Path
    #: Contents of the files that it wrote below its working directory, or None if too many.
    written: Mapping[str, list[Any]] | None = field(default_factory=dict)
    #: Files that a patch changes in the copy, but which were imported from their original place.
    unpatched: list[str] = field(default_factory=list)


def run_program(
    program: Program, settings: Settings, work: Path, traces: Path, limit: float
) -> Done:
    """Run a program in the working directory, with a change, for at most this number of seconds.

    Parameters
    ----------
    program
        The program.
    settings
        The settings to change.
    work
        A new directory for files that the two processes exchange.
    traces
        Directory for the trace files.
    limit
        Seconds after which the program is interrupted, as with Ctrl-C.
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
    with (work / "stdout").open("wb") as printed, (work / "stderr").open("wb") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(plan)],
            env={**os.environ, **settings.variables},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=complaints,
            # A signal to it must also end its workers, and Ctrl-C must reach it only from here.
            start_new_session=True,
        )
        try:
            is_late = not _ended(process, limit)
            # A program that is interrupted below writes its result as well.
            has_ended = result.exists()
        finally:
            _end(process)
            left_behind = _end_group(process.pid)
    runs = _recorded(traces)
    is_complete = bool(runs) and all(run.is_complete for run in runs)
    facts: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
    return Done(
        exit_code=facts["exit_code"] if facts else process.returncode,
        is_late=is_late,
        program_seconds=facts["seconds"] if facts and has_ended else float("nan"),
        left_behind=[] if is_late else left_behind,
        printed=(work / "stdout").read_text(errors="replace"),
        complaint=_last_line((work / "stderr").read_text(errors="replace")),
        clusters=facts.get("clusters", []),
        missed_config=facts.get("missed_config", []),
        unpatched=facts.get("unpatched", []),
        refusals=facts.get("refusals", []),
        seconds=sum(run.seconds for run in runs) if is_complete else float("nan"),
        recorded=len(runs),
        tasks=sum(len(run.trace.tasks) for run in runs),
        runs=runs,
        value=value,
        written=written_since(files, directory, traces),
    )


def _ended(process: subprocess.Popen[bytes], limit: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(limit)
    return process.returncode is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that is still running, with Ctrl-C or else by force."""
    for number, grace in zip((signal.SIGINT, signal.SIGTERM), _GRACE, strict=True):
        if process.poll() is not None:
            return
        process.send_signal(number)
        _ended(process, grace)
    process.kill()
    process.wait()


def _end_group(group: int) -> list[str]:
    """End what a program started and left behind, and return its commands.

    Otherwise the next run would find it, for example at its port. Processes that end with the
    program, such as its workers, have some time to do so.
    """
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                left.append(process)
    _, left = psutil.wait_procs(left, _GRACE[-1])
    commands = []
    for process in left:
        with contextlib.suppress(psutil.Error):
            commands.append(" ".join(process.cmdline()))
            process.terminate()
    for process in psutil.wait_procs(left, _GRACE[-1])[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return [command for command in commands if command and _HELPER not in command]


def _last_line(text: str) -> str:
    # A traceback ends with its error. Indented lines are code that a warning is about.
    lines = [line for line in text.splitlines() if line[:1].strip()]
    return excerpt(lines[-1]) if lines else ""


def _recorded(traces: Path) -> list[ComparedRun]:
    try:
        return open_side(traces)
    except DasfprofError:
        return []
