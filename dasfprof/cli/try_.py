"""``dasfprof try``: a script as it is and with a change, in turns: what does it gain?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasfprof.cli.run import recording_flags
from dasfprof.errors import InvalidArgumentError
from dasfprof.report.terminal.console import (
    Part,
    echo,
    heading,
    print_entry,
    print_notes,
    say,
)
from dasfprof.text import clean, elide, format_duration

if TYPE_CHECKING:
    from dasfprof.analysis.comparison.trial import Trial

_FAILED = 1
_COLOURS = {"gained": "green", "lost": "red", "results differ": "red", "no result": "red"}
_LONGEST = 700


@click.command(
    "try",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]..."
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT names a module, as for `python -m`.")
@click.option(
    "--change",
    "changes",
    metavar="NAME=VALUE",
    multiple=True,
    help="What to change; several are changed together. NAME is n_workers, threads_per_worker, "
    "processes or memory_limit of local clusters, a variable of the environment, such as "
    "OMP_NUM_THREADS, a setting of Dask's config with its dots, such as array.chunk-size, or an "
    "argument of the script, such as --chunk. VALUE may be more or fewer: twice as many workers, "
    "threads or bytes, or half of them. Default: what the findings say.",
)
@click.option(
    "--parameter",
    metavar="NAME",
    default="",
    help="The argument of the script, such as --chunk, or the variable of the environment, by "
    "which it takes a whole number that says how large its chunks or batches are: what findings "
    "say of these is tried by it.",
)
@click.option(
    "--time-limit",
    default="10 minutes",
    show_default=True,
    help="Time for all runs, in seconds or with a unit. What still runs then is ended.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=1e-6,
    show_default=True,
    help="The share by which numbers that the script prints may differ. Whole ones may not.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@recording_flags(name="the script's name", directory="none, the traces are not kept")
@click.pass_context
def try_(
    ctx: click.Context,
    /,
    *,
    command: tuple[str, ...],
    module: bool,
    changes: tuple[str, ...],
    parameter: str,
    time_limit: str,
    tolerance: float,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a script as it is and with a change, in turns, and say what that gains.

    The script needs no change: the options of its LocalCluster, or of the Client that makes one,
    are others in its process, and each run is recorded. After a first run there are three to nine
    pairs, until it is certain that the change gains something, or nothing. What the script prints
    has to be the same. Without --change it tries what the findings of the first run say, the best
    first, until one gains.

    The script runs in the working directory, as often as that takes, and its standard input is
    empty: what it writes it writes each time.

    The JSON document has "schema", "program", "tried" (for each change "verdict", "change", "rule",
    "promised", "gain", "gain_of_program", "results", "obstacle", "sentences", "notes", "runs").
    The exit code is 1 if the script fails or its results differ with the change, or the change
    never reached its cluster.

    \b
    Examples:
      dasfprof try pipeline.py
      dasfprof try --change n_workers=4 --change threads_per_worker=1 pipeline.py --input data/
      dasfprof try --change --chunk=5000 pipeline.py --chunk 1000
      dasfprof try --parameter --chunk pipeline.py --chunk 1000
      dasfprof try --change OMP_NUM_THREADS=1 --time-limit 30m -d traces -m my_package.pipeline
    """
    target, *_ = command
    if target.startswith("-"):
        raise click.NoSuchOption(target, ctx=ctx)
    if not module and not Path(target).exists():
        raise click.UsageError(f"there is no script {target!r}.")
    from dasfprof.database.storage import is_url
    from dasfprof.handles.trial.process import Program
    from dasfprof.handles.trial.runs import ProgramRuns
    from dasfprof.handles.trial.settings import checked_parameter, read_change
    from dasfprof.handles.trial.trial import Trials

    try:
        change = dict(map(read_change, changes)) or None
        if parameter:
            checked_parameter(parameter)
    except InvalidArgumentError as error:
        raise click.UsageError(clean(error)) from error
    directory = options.pop("directory")
    if directory is not None and is_url(directory):
        raise click.UsageError("a trial reads its traces: give a directory of this host.")
    name = options.pop("name") or (target if module else Path(target).stem)
    program = Program(name, command, module, options=options)
    with tempfile.TemporaryDirectory(prefix="dasfprof-try-") as work:
        traces = Path(work, "traces") if directory is None else directory / name
        if directory is not None:
            traces = new_directory(traces)
        limit = seconds_of(time_limit)
        runs = ProgramRuns(program, Path(work, "runs"), traces, limit, tolerance, tell)
        tried = Trials(runs, parameter).try_all(change)
    if as_json:
        from dasfprof.report.documents import json_of, schema_of

        told = [trial.as_data() for trial in tried]
        click.echo(json_of({"schema": schema_of("try"), "program": name, "tried": told}))
    else:
        _print(tried)
    if directory is not None:
        sides = [clean(traces / side) for side in ("as-it-is", "changed")]
        say(f"More: dasfprof compare {sides[0]} -- {sides[1]}", apart=True, err=as_json)
    if tried[-1].kind in ("results differ", "no result"):
        raise click.exceptions.Exit(_FAILED)


def _print(trials: Sequence[Trial]) -> None:
    """Print each change that was tried: what the finding says, and what it gained."""
    for place, trial in enumerate(trials):
        if not trial.change:
            say(clean(trial.obstacle))
            continue
        heading(trial.words, f"  {trial.rule}" if trial.rule else "", apart=place > 0)
        first, *more = (elide(sentence, _LONGEST) for sentence in trial.sentences)
        parts = [Part(first, f"bold {_COLOURS.get(trial.kind, 'yellow')}")]
        parts += [Part(sentence) for sentence in more]
        if trial.finding:
            parts.append(Part(elide(trial.finding, _LONGEST), "dim", lead="of: "))
        if trial.runs:
            parts.append(Part(_runs(trial), "dim"))
        print_entry("  ", None, parts)
        print_notes(trial.notes)


def _runs(trial: Trial) -> str:
    sides = [
        ", ".join(format_duration(run.seconds) for run in trial.runs if run.changed is changed)
        for changed in (False, True)
    ]
    return f"As it is: {sides[0]}. With the change: {sides[1]}."


def tell(sentence: str) -> None:
    """Print what a run has come to."""
    echo(f"dasfprof: {sentence}", err=True)


def seconds_of(text: str) -> float:
    """Read a time limit."""
    from dask.utils import parse_timedelta

    try:
        seconds = float(parse_timedelta(text, default="s"))
    except (ValueError, KeyError):
        seconds = 0.0
    if not seconds > 0:
        raise click.UsageError(f"--time-limit {text!r}: give seconds, or a time such as 10m.")
    return seconds


def new_directory(directory: Path) -> Path:
    """Return a directory that is not there yet, with a number after its name if need be."""
    found, number = directory, 1
    while found.exists():
        number += 1
        found = directory.with_name(f"{directory.name}-{number}")
    return found
