"""``dasfprof run``: records an unmodified script or module, run as the interpreter would."""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import logging
import os
import re
import runpy
import sys
import types
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dasfprof.config.kinds import Choice, Frequency, Option, Seconds, Size, Switch, Whole
from dasfprof.config.options import RECORDING
from dasfprof.errors import DasfprofError, InvalidArgumentError
from dasfprof.recording.storage_calls.when_imported import WhenImported
from dasfprof.report.terminal.answers import DEFAULT_ROWS, print_answers
from dasfprof.report.terminal.console import echo, say
from dasfprof.text import clean, count_of, format_size

if TYPE_CHECKING:
    from dasfprof.handles.run import ProfiledRun
    from dasfprof.preload import ClientRecorder

# --- The options of a recording as flags of a command ---------------------------------------------

#: A time as Dask reads it.
_WITH_UNIT = re.compile(r"\s*[\d.]+\s*[a-zA-Z]+\s*")

Command = TypeVar("Command", bound=Callable[..., Any])


class DirectoryOrURL(click.Path):
    """A directory, or a URL as text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path, or the URL."""
        from dasfprof.database.storage import is_url

        return value if is_url(value) else super().convert(value, param, ctx)


class Checked(click.ParamType):  # type: ignore[type-arg]
    """A value that an option of a recording takes.

    Dask reads sizes, and times with units, and is not to be imported before the script changes what
    it reads when it is imported. So these are checked as recording begins.
    """

    def __init__(self, option: Option) -> None:
        self._option = option
        self._number: type[float] | type[int] | None = None
        if isinstance(option, Seconds | Frequency | Whole):
            self._number = int if isinstance(option, Whole) else float
        self.name = "number" if self._number else "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, or the number."""
        has_unit = isinstance(self._option, Seconds) and _WITH_UNIT.fullmatch(str(value))
        if has_unit or isinstance(self._option, Size):
            return str(value)
        try:
            return self._option.check(self._number(value) if self._number else value)
        except InvalidArgumentError as error:
            self.fail(str(error), param, ctx)
        except ValueError:
            self.fail(f"{value!r} is no number.", param, ctx)


def recording_flags(**defaults: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the flags of a recording, None where not given.

    Parameters
    ----------
    **defaults
        Words for the defaults of options that have another than that of Dask's config.
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


@dataclass
class Outcome:
    """How a script ended."""

    exit_code: int
    #: By Ctrl-C.
    interrupted: bool = False
    #: Holds the script's globals: dropping them would close the clients and clusters in them.
    remains: Any = None


def run_script(target: str, args: tuple[str, ...], *, as_module: bool) -> Outcome:
    """Run a file (or a directory or zip file with a ``__main__``) or a module as ``__main__``.

    ``sys.argv``, ``sys.path[0]`` and ``__main__`` are what the interpreter would make of them, and
    stay so. An exception that the script lets out is shown as the interpreter shows it, without
    frames of dasfprof.
    """
    sys.argv = [target, *args]
    try:
        if as_module:
            _set_first_path(os.getcwd())
            remains: Any = runpy.run_module(target, run_name="__main__", alter_sys=True)
        elif os.path.isdir(target) or zipfile.is_zipfile(target):
            _set_first_path(None)  # runpy puts the target there
            remains = runpy.run_path(target, run_name="__main__")
        else:
            _set_first_path(os.path.dirname(os.path.realpath(target)))
            remains = _run_file(os.path.abspath(target))
    except SystemExit as end:
        return Outcome(_exit_code(end.code), remains=end)
    except BaseException as error:
        error.__traceback__ = _of_script(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return Outcome(1, isinstance(error, KeyboardInterrupt), remains=error)
    return Outcome(0, remains=remains)


def _set_first_path(path: str | None) -> None:
    """Replace the directory of the `dasfprof` command, which the interpreter put first."""
    if not getattr(sys.flags, "safe_path", False):  # there only since Python 3.11
        sys.path[:1] = [] if path is None else [path]


def _run_file(path: str) -> types.ModuleType:
    """Execute a file in a new ``__main__``; `runpy.run_path` would give it another argv[0]."""
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(module).update(__file__=path, __loader__=loader, __cached__=None, __builtins__=builtins)
    code = compile(loader.get_data(path), path, "exec", dont_inherit=True)
    sys.modules["__main__"] = module
    exec(code, vars(module))
    return module


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _of_script(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Leave out the frames of this module and of runpy, which come first."""
    ours = (__name__, "runpy")
    while traceback is not None and traceback.tb_frame.f_globals.get("__name__") in ours:
        traceback = traceback.tb_next
    return traceback


_INTERRUPTED = 130


class ScriptInterrupted(SystemExit):
    """Ctrl-C ended the script, and its traceback was printed."""


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]..."
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT names a module, as for `python -m`.")
@recording_flags(name="the script's name", directory="the working directory")
@click.option(
    "--head",
    type=click.IntRange(min=1),
    default=DEFAULT_ROWS,
    show_default=True,
    help="Number of rows to print of each table.",
)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    command: tuple[str, ...],
    module: bool,
    head: int,
    **options: Any,
) -> None:
    """Run a Python script and record every Dask cluster that it uses.

    The script needs no change: the cluster of each distributed.Client that it makes is recorded
    until the script ends, and what it computes without one, on Dask's own schedulers. Findings and
    tables are then printed on standard error; standard output and the exit code are the script's.

    \b
    Examples:
      dasfprof run pipeline.py --input data/
      dasfprof run -d traces --stack-frequency 20 -m my_package.pipeline
    """
    target, *args = command
    if target.startswith("-"):
        raise click.NoSuchOption(target, ctx=ctx)
    if not module and not Path(target).exists():
        raise click.UsageError(f"there is no script {target!r}.")
    if isinstance(directory := options["directory"], Path):
        directory.mkdir(parents=True, exist_ok=True)
        options["directory"] = directory.absolute()
    name = options.pop("name") or (target if module else Path(target).stem)
    recorder = observe_clients(name, options)
    outcome = run_script(target, tuple(args), as_module=module)
    sys.stdout.flush()
    try:
        recorder.finish()
        _report(recorder, target, head)
    except Exception as error:  # the script's outcome counts, whatever becomes of the report
        echo(f"dasfprof: {type(error).__name__}: {clean(error)}", err=True)
    if outcome.interrupted:
        raise ScriptInterrupted(_INTERRUPTED)
    ctx.exit(outcome.exit_code)


def observe_clients(name: str, options: dict[str, Any]) -> ClientRecorder:
    """Register the cluster of every client of this process with a recorder."""
    from dasfprof import preload

    preload.recorder = preload.ClientRecorder(name, options)
    if "distributed.client" in sys.modules:
        _add_preload()
    else:
        sys.meta_path.insert(0, _BeforeImport("distributed.client", _add_preload))
    if "dask" in sys.modules:
        preload.recorder.listen()
    else:
        WhenImported(("dask",), preload.recorder.listen).start()
    return preload.recorder


def _add_preload() -> None:
    import dask

    # Dask logs each preload that it imports at INFO, and shows it.
    logging.getLogger("distributed.preloading").addFilter(
        lambda record: "dasfprof.preload" not in record.getMessage()
    )
    modules = dask.config.get("distributed.client.preload", default=[])
    modules = [modules] if isinstance(modules, str) else list(modules)
    arguments = dask.config.get("distributed.client.preload-argv", default=[])
    if arguments and not isinstance(arguments[0], str):  # a list for each module
        arguments = [*arguments, []]
    dask.config.set(
        {
            "distributed.client.preload": [*modules, "dasfprof.preload"],
            "distributed.client.preload-argv": arguments,
        }
    )


class _BeforeImport(importlib.abc.MetaPathFinder):
    """Calls a function once, when a module is imported for the first time.

    Dask reads its config from the environment when it is imported, which the script may change
    before it imports Dask: so nothing of Dask is imported for it.
    """

    def __init__(self, module: str, call: Callable[[], None]) -> None:
        self._module = module
        self._call = call

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Return None, so that the import goes on as usual."""
        if name == self._module:
            sys.meta_path.remove(self)
            self._call()


def _report(recorder: ClientRecorder, target: str, head: int) -> None:
    for refusal in recorder.refusals:
        echo(f"dasfprof: {clean(refusal)}", err=True)
    if not recorder.clusters and not recorder.refusals:
        say(
            f"dasfprof: {clean(target)} computed nothing with Dask in its own process, so nothing "
            "was recorded: it connected no distributed.Client, or replaced "
            "distributed.client.preload in Dask's config, and nothing ran on Dask's own schedulers "
            "(threads, processes, sync). What another process computes, or a scheduler that is not "
            "Dask's, cannot be observed from here.",
            err=True,
        )
    if "frisky" in sys.modules and not recorder.clusters:
        say(
            "dasfprof: this program imported Frisky, whose scheduler takes no plugins: pass its "
            "client to dasfprof.profile() for what Frisky records itself, or use a "
            "distributed.Client.",
            err=True,
        )
    for cluster in recorder.clusters:
        try:
            _report_run(cluster.run, head)
        except DasfprofError as error:
            echo(f"dasfprof: {clean(error)}", err=True)


def _report_run(run: ProfiledRun, head: int) -> None:
    from dasfprof.analysis.history import keep_summary
    from dasfprof.database.storage import is_url

    files = run.files()
    size = format_size(sum(path.stat().st_size for path in files))
    source = clean(run.source)
    echo(f"\ndasfprof recorded {source}: {count_of(len(files), 'trace file')}, {size}", err=True)
    analyser = run.analyser()
    print_answers(analyser, head, err=True, whole=head != DEFAULT_ROWS)
    if not is_url(run.source):  # these files are copies
        keep_summary(files, analyser.run)
    echo(f"\nMore: dasfprof analyse {source}", err=True)
