"""Parts that ``dasfprof try`` and ``dasfprof tune`` share: options, and runs of a script."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasfprof.cli.run import Command, of_script, recording_flags
from dasfprof.report.terminal.console import echo

if TYPE_CHECKING:
    from dasfprof.handles.trial.runs import ProgramRuns

#: Maximum number of characters of a printed sentence.
LONGEST = 700
#: Colours of verdicts by their kinds. Other kinds are yellow.
COLOURS = {
    **dict.fromkeys(("gained", "tuned", "as it is"), "green"),
    **dict.fromkeys(("lost", "no result", "results differ"), "red"),
}
#: Names of parameters that are not recording options.
_OF_TRIALS = ("command", "module", "time_limit", "tolerance", "directory", "name")


def trial_options(time_limit: str) -> Callable[[Any], Any]:
    """Return a decorator that adds the script, the options of trials and the context to a command.

    `time_limit` is the default of the time limit.
    """
    of_trials: tuple[Callable[[Command], Command], ...] = (
        of_script,
        click.option(
            "--time-limit",
            default=time_limit,
            show_default=True,
            help="Time limit for all runs together, in seconds or with a unit. A run is stopped "
            "when the limit is reached.",
        ),
        click.option(
            "--tolerance",
            type=click.FloatRange(min=0),
            default=1e-6,
            show_default=True,
            help="Relative difference allowed between floating-point numbers that the script "
            "prints or writes. Integers must be equal.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        recording_flags(name="the script's name", directory="none, the traces are not kept"),
    )

    def decorate(function: Any) -> Any:
        command = click.pass_context(function)
        for option in reversed(of_trials):
            command = option(command)
        return command

    return decorate


@contextmanager
def program_runs(options: dict[str, Any]) -> Iterator[ProgramRuns]:
    """Yield the runs of a script. Their traces are deleted, unless `options` has a directory.

    `options` has values by name. All options except those of `trial_options` are recording options.
    """
    from dasfprof.database.storage import is_url
    from dasfprof.handles.trial.process import Program
    from dasfprof.handles.trial.runs import ProgramRuns

    directory, command, module = options["directory"], options["command"], options["module"]
    if directory is not None and is_url(directory):
        raise click.UsageError(
            "the traces of these runs are read on this host, so pass a directory on this host."
        )
    name = options["name"] or (command[0] if module else Path(command[0]).stem)
    recording = {name: value for name, value in options.items() if name not in _OF_TRIALS}
    program = Program(name, command, module, options=recording)
    limit = _seconds_of(options["time_limit"])
    with tempfile.TemporaryDirectory(prefix="dasfprof-trials-") as work:
        traces = Path(work, "traces") if directory is None else _new_directory(directory / name)
        yield ProgramRuns(program, Path(work, "runs"), traces, limit, options["tolerance"], _tell)


def exit_as(kind: str) -> None:
    """Exit with code 1 if the kind of a verdict is ``no result`` or ``results differ``."""
    if kind in ("results differ", "no result"):
        raise click.exceptions.Exit(1)


def _tell(sentence: str) -> None:
    echo(f"dasfprof: {sentence}", err=True)


def _seconds_of(text: str) -> float:
    from dask.utils import parse_timedelta

    try:
        seconds = float(parse_timedelta(text, default="s"))
    except (ValueError, KeyError):
        seconds = 0.0
    if not seconds > 0:
        raise click.UsageError(
            f"--time-limit {text!r}: expected a number of seconds, or a duration such as 10m."
        )
    return seconds


def _new_directory(directory: Path) -> Path:
    """Return the path of a directory that does not exist. If necessary, its name gets a number."""
    free, number = directory, 1
    while free.exists():
        number += 1
        free = directory.with_name(f"{directory.name}-{number}")
    return free
