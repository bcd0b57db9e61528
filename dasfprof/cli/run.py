"""``dasfprof run``: runs an unmodified script or module as Python would, and records it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dasfprof.cli import ScriptInterrupted
from dasfprof.cli.sources import head_option
from dasfprof.config.kinds import Choice, Duration, Frequency, Integer, Option, Size, Switch
from dasfprof.config.options import RECORDING
from dasfprof.errors import DasfprofError, InvalidArgumentError
from dasfprof.handles.script import apply_config, observe_clients, run_script
from dasfprof.report.terminal.answers import DEFAULT_ROWS, print_answers
from dasfprof.report.terminal.console import echo, say
from dasfprof.text import clean, count_of, format_size

if TYPE_CHECKING:
    from dasfprof.handles.script import ClientRecorder

#: Pattern of a duration in Dask's syntax.
_WITH_UNIT = re.compile(r"\s*[\d.]+\s*[a-zA-Z]+\s*")

Command = TypeVar("Command", bound=Callable[..., Any])


class DirectoryOrURL(click.Path):
    """Parameter type: a directory, or a URL as text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a directory as a path, and a URL as text."""
        from dasfprof.database.storage import is_url

        return value if is_url(value) else super().convert(value, param, ctx)


class Checked(click.ParamType):  # type: ignore[type-arg]
    """Parameter type: a value of a recording option."""

    def __init__(self, option: Option) -> None:
        self._option = option
        self._number: type[float] | type[int] | None = None
        # Dask parses sizes and durations with units. But Dask must not be imported before the
        # script sets options that Dask reads on import. Such values are therefore checked when
        # recording starts.
        if isinstance(option, Duration | Frequency | Integer):
            self._number = int if isinstance(option, Integer) else float
        self.name = "number" if self._number else "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a text or a number."""
        has_unit = isinstance(self._option, Duration) and _WITH_UNIT.fullmatch(str(value))
        if has_unit or isinstance(self._option, Size):
            return str(value)
        try:
            return self._option.check(self._number(value) if self._number else value)
        except InvalidArgumentError as error:
            self.fail(str(error), param, ctx)
        except ValueError:
            self.fail(f"{value!r} is not a number.", param, ctx)


def recording_flags(**defaults: str) -> Callable[[Command], Command]:
    """Return a decorator that adds a flag for each recording option to a command.

    A flag that the user does not pass has the value None. `defaults` contains descriptions of
    defaults, for options whose default for this command differs from Dask's config.
    """

    def decorate(command: Command) -> Command:
        for option in reversed(RECORDING.values()):
            command = _flag(option, defaults.get(option.name, option.default))(command)
        return command

    return decorate


def _flag(option: Option, default: Any) -> Callable[[Command], Command]:
    names = [f"--{option.config_name}"]
    if isinstance(option, Switch):
        names[0] += f"/--no-{option.config_name}"
        return click.option(*names, default=None, help=option.summary)
    kind: Any = Checked(option)
    if isinstance(option, Choice):
        kind = click.Choice(option.choices, case_sensitive=False)
    elif option.name == "directory":
        names.insert(0, "-d")
        kind = DirectoryOrURL(file_okay=False, writable=True, path_type=Path)
    return click.option(*names, type=kind, help=option.summary, show_default=str(default))


_INTERRUPTED = 130


def of_script(command: Command) -> Command:
    """Add the script and its arguments to the arguments of a command.

    Options after the script belong to the script.
    """
    module = click.option(
        "-m", "--module", is_flag=True, help="SCRIPT names a module, as for `python -m`."
    )
    script = click.argument(
        "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]..."
    )
    return script(module(command))


def check_script(ctx: click.Context, target: str, module: bool) -> None:
    """Raise a UsageError if the script or module does not exist."""
    if target.startswith("-"):
        raise click.NoSuchOption(target, ctx=ctx)
    if not module and not Path(target).exists():
        raise click.UsageError(f"there is no script {target!r}.")


def script_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that turns a function into a command which runs a script."""
    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    return click.command(name, context_settings=settings, options_metavar="[OPTIONS]")


@script_command("run")
@of_script
@recording_flags(name="the script's name", directory="the working directory")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Dask configuration file for the script, such as the resource profile that "
    "dasfprof tune writes. Its numbers of workers and threads, and its memory limit, apply "
    "only to local clusters. Arguments in it are passed to the script.",
)
@head_option(DEFAULT_ROWS)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    command: tuple[str, ...],
    module: bool,
    config: Path | None,
    head: int,
    **options: Any,
) -> None:
    """Run a Python script and record every Dask cluster that it uses.

    You do not need to change the script. The cluster of each distributed.Client that it creates is
    recorded until the script ends, and so is work on Dask's local schedulers. Findings and tables
    are then printed to standard error. The script's standard output and exit code do not change.

    \b
    Examples:
      dasfprof run pipeline.py --input data/
      dasfprof run -d traces --stack-frequency 20 -m my_package.pipeline
      dasfprof run --config tuned.yaml pipeline.py
    """
    target, *args = command
    check_script(ctx, target, module)
    if isinstance(directory := options["directory"], Path):
        directory.mkdir(parents=True, exist_ok=True)
        options["directory"] = directory.absolute()
    name = options.pop("name") or (target if module else Path(target).stem)
    arguments = apply_config(config, args)
    recorder = observe_clients(name, options)
    outcome = run_script(target, arguments, as_module=module)
    sys.stdout.flush()
    try:
        recorder.finish()
        _report(recorder, target, head)
    # The exit code is that of the script, even if the report fails.
    except Exception as error:
        echo(f"dasfprof: {type(error).__name__}: {clean(error)}", err=True)
    if outcome.interrupted:
        raise ScriptInterrupted(_INTERRUPTED)
    ctx.exit(outcome.exit_code)


#: Environment variables with the rank of an MPI process. With dask-mpi, only one rank runs the
#: client. The other ranks are the scheduler and the workers.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")


def _report(recorder: ClientRecorder, target: str, head: int) -> None:
    for refusal in recorder.refusals:
        echo(f"dasfprof: {clean(refusal)}", err=True)
    if not recorder.clusters and not recorder.refusals:
        say(f"dasfprof: {_nothing_recorded(clean(target))}", err=True)
    for run in (cluster.run for cluster in recorder.clusters):
        try:
            files, source = run.files(), clean(run.source)
            size = format_size(sum(path.stat().st_size for path in files))
            about = f"{count_of(len(files), 'trace file')}, {size}"
            echo(f"\ndasfprof recorded {source}: {about}", err=True)
            print_answers(run.analyser(), head, err=True, unlimited=head != DEFAULT_ROWS)
            echo(f"\nMore: dasfprof analyse {source}", err=True)
        except DasfprofError as error:
            echo(f"dasfprof: {clean(error)}", err=True)


def _nothing_recorded(target: str) -> str:
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), None)
    if rank is not None:
        return (
            f"Rank {clean(rank)} of {target} did not connect a distributed.Client. If another "
            "rank did, it has recorded the run."
        )
    return (
        f"{target} computed nothing with Dask in its own process, so nothing was recorded. "
        "Either it created no distributed.Client and used none of Dask's local schedulers "
        "(threads, processes, sync), or it replaced distributed.client.preload in Dask's config. "
        "Work in other processes, or on schedulers that do not belong to Dask, cannot be "
        "recorded."
    )
