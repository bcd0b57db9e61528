"""``dasfprof try``: the time that a change of settings saves, measured in alternating runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasfprof.cli.run import check_script, script_command
from dasfprof.cli.trials import COLOURS, LONGEST, exit_as, program_runs, trial_options
from dasfprof.errors import InvalidArgumentError, TrialError
from dasfprof.report.terminal.console import (
    Paragraph,
    heading,
    print_entry,
    print_notes,
    say,
    verdict,
)
from dasfprof.text import clean, elide, format_duration

if TYPE_CHECKING:
    from dasfprof.analysis.comparison.trial import Trial
    from dasfprof.analysis.diagnosis.registry import Value
    from dasfprof.handles.trial.runs import ProgramRuns


@script_command("try")
@click.option(
    "--change",
    "changes",
    metavar="NAME=VALUE",
    multiple=True,
    help="Change to test. Repeat the option to combine several. NAME is an argument "
    "of the script such as --chunk, an environment variable such as OMP_NUM_THREADS, a setting of "
    "Dask's configuration such as array.chunk-size, or n_workers, threads_per_worker, processes or "
    'memory_limit of a local cluster. VALUE may also be "more" (twice the current value) or '
    '"fewer" (half of it). Default: the changes that the findings suggest.',
)
@click.option(
    "--parameter",
    metavar="NAME",
    default="",
    help="Argument (such as --chunk) or environment variable that sets the script's chunk or batch "
    "size to an integer. The sizes that the findings suggest are assigned to it, and tested.",
)
@click.option(
    "--patch",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Unified diff to test. It is applied to a copy of the git work tree that contains the "
    "script or, outside of git, to a copy of the script's directory. Your files stay unchanged.",
)
@click.option(
    "--with",
    "other",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Changed script to test. It gets the same arguments.",
)
@trial_options(time_limit="10 minutes")
def try_(
    ctx: click.Context,
    /,
    *,
    changes: tuple[str, ...],
    parameter: str,
    patch: Path | None,
    other: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a script with and without a change, and report the time that the change saves.

    A change is a setting (--change), a patch of the code (--patch), or another script (--with). To
    test a setting, dasfprof runs the script and overrides the options that it passes to
    LocalCluster() or Client(). After a first run, three to nine pairs of runs follow, until it is
    certain whether the change saves time. If you name no change, the changes that the findings
    suggest are tested, the most promising first, until one saves time.

    The script must print the same output each time, and write the same files below its working
    directory. Files are compared by content. --tolerance applies to floating-point numbers in
    text, .npy and .parquet files. For a patch or another script, the findings of both sides are
    compared.

    The script runs several times, in the working directory and with empty standard input. It
    writes its files each time. With --patch, each side runs in a copy of the files.

    The JSON document has "schema", "program", "tried" (for each change "verdict", "change", "rule",
    "promised", "gain", "gain_of_program", "results", "findings", "obstacle", "sentences", "notes",
    "runs"). The exit code is 1 if the script fails, if its results differ with the change, if
    the patch does not apply, or if the script created no cluster to which the change applies.

    \b
    Examples:
      dasfprof try pipeline.py
      dasfprof try --change n_workers=4 --change threads_per_worker=1 pipeline.py --input data/
      dasfprof try --change --chunk=5000 pipeline.py --chunk 1000
      dasfprof try --parameter --chunk pipeline.py --chunk 1000
      dasfprof try --patch fix.diff pipeline.py --input data/
      dasfprof try --with pipeline_fixed.py pipeline.py --input data/
      dasfprof try --change OMP_NUM_THREADS=1 --time-limit 30m -d traces -m my_package.pipeline
    """
    check_script(ctx, options["command"][0], options["module"])
    from dasfprof.handles.trial.settings import checked_parameter, read_change

    try:
        change = dict(map(read_change, changes)) or None
        if parameter:
            checked_parameter(parameter)
    except InvalidArgumentError as error:
        raise click.UsageError(clean(error)) from error
    if patch and other:
        raise click.UsageError("--patch and --with cannot be combined.")
    with program_runs(options) as runs:
        tried = _tried(runs, change, parameter, patch, other)
    if as_json:
        from dasfprof.report.documents import json_of, schema_of

        listed = [trial.as_data() for trial in tried]
        about = {"schema": schema_of("try"), "program": runs.program.name}
        click.echo(json_of({**about, "tried": listed}))
    else:
        _print(tried)
    if options["directory"] is not None:
        sides = [clean(runs.traces / side) for side in ("as-it-is", "changed")]
        say(f"More: dasfprof compare {sides[0]} -- {sides[1]}", apart=True, err=as_json)
    exit_as(tried[-1].kind)


def _tried(
    runs: ProgramRuns,
    change: dict[str, Value] | None,
    parameter: str,
    patch: Path | None,
    other: Path | None,
) -> list[Trial]:
    """Test a change of settings, of code, or of both. Return the resulting trials."""
    from dasfprof.analysis.comparison.trial import Trial
    from dasfprof.handles.trial.code import with_patch
    from dasfprof.handles.trial.trial import try_all

    program = None
    if other:
        change = {**(change or {}), "script": str(other)}
        command = (str(other), *runs.program.command[1:])
        program = replace(runs.program, command=command, as_module=False)
    if patch:
        change = {**(change or {}), "patch": str(patch)}
        try:
            runs.program, program = with_patch(runs.program, patch, runs.work / "copies")
        except TrialError as error:
            return [Trial(change, obstacle=str(error))]
    return try_all(runs, change, program, parameter)


def _print(trials: Sequence[Trial]) -> None:
    """Print each change that was tested, with its finding and the time that it saved."""
    for place, trial in enumerate(trials):
        if not trial.change:
            say(clean(trial.obstacle))
            continue
        heading(trial.words, f"  {trial.rule}" if trial.rule else "", apart=place > 0)
        sentences = (elide(sentence, LONGEST) for sentence in trial.sentences)
        parts = verdict(sentences, COLOURS.get(trial.kind))
        if trial.finding:
            parts.append(Paragraph(elide(trial.finding, LONGEST), "dim", lead="of: "))
        if trial.runs:
            parts.append(Paragraph(_runs(trial), "dim"))
        print_entry("  ", None, parts)
        print_notes(trial.notes)


def _runs(trial: Trial) -> str:
    sides = [
        ", ".join(format_duration(run.seconds) for run in trial.runs if run.changed is changed)
        for changed in (False, True)
    ]
    return f"Baseline: {sides[0]}. With the change: {sides[1]}."
