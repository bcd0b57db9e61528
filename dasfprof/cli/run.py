"""``dasfprof run``: records an unmodified script."""

from __future__ import annotations

import importlib.abc
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasfprof.cli.recording_flags import recording_flags
from dasfprof.cli.script import run_script
from dasfprof.errors import DasfprofError
from dasfprof.report.terminal.answers import DEFAULT_ROWS, print_answers
from dasfprof.report.terminal.output import echo
from dasfprof.report.terminal.paragraphs import say
from dasfprof.text import clean, count_of, format_size

if TYPE_CHECKING:
    from dasfprof.preload import ClientRecorder
    from dasfprof.recording import ProfiledRun

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
    until the script ends. Findings and tables are then printed on standard error; standard output
    and the exit code are the script's.

    \b
    Examples:
      dasfprof run pipeline.py --input data/
      dasfprof run --directory traces --stack-frequency 20 -m my_package.pipeline
    """
    target, *args = command
    if not module and not Path(target).exists():
        raise click.UsageError(f"there is no script {target!r}.")
    if isinstance(directory := options["directory"], Path):
        directory.mkdir(parents=True, exist_ok=True)
        options["directory"] = directory.absolute()
    name = options.pop("name") or (target if module else Path(target).stem)
    recorder = _observe_clients(name, options)
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


def _observe_clients(name: str, options: dict[str, Any]) -> ClientRecorder:
    """Register the cluster of every client of this process with a recorder."""
    from dasfprof import preload

    preload.recorder = preload.ClientRecorder(name, options)
    if "distributed.client" in sys.modules:
        _add_preload()
    else:
        sys.meta_path.insert(0, _BeforeImport("distributed.client", _add_preload))
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
            f"dasfprof: {clean(target)} connected no distributed.Client in its own process, or "
            "replaced distributed.client.preload in Dask's config, so nothing was recorded. What "
            "runs without one cannot be observed: on Dask's threaded or process scheduler, by a "
            "client in another process, or on a scheduler that is not distributed's. Make a "
            "distributed.Client() in the script.",
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
        keep_summary(files, analyser.trace)
    echo(f"\nMore: dasfprof analyse {source}", err=True)
