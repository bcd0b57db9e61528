"""``dasfprof tune``: the workers, threads and parameters with which a script is fastest here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasfprof.cli.run import check_script, script_command
from dasfprof.cli.trials import COLOURS, LONGEST, exit_as, program_runs, trial_options
from dasfprof.errors import InvalidArgumentError
from dasfprof.report.documents import json_of, schema_of
from dasfprof.report.terminal.console import echo, print_entry, print_notes, say, verdict
from dasfprof.text import clean, elide, format_duration, format_size

if TYPE_CHECKING:
    from dasfprof.analysis.comparison.trial import Point, Tuning


@script_command("tune")
@click.option(
    "--parameter",
    "parameters",
    metavar="NAME=VALUE,...",
    multiple=True,
    help="Values to test. As in `dasfprof try --change`, NAME is an argument of the script such "
    "as --chunk, an environment variable, a setting of Dask's configuration such as "
    "array.chunk-size, or n_workers, threads_per_worker, processes or memory_limit of the "
    "cluster. If you give no values for the cluster, all combinations that fit this host's "
    "cores and memory are tested.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="tuned.yaml",
    show_default=True,
    help="File for the resource profile. It is written only if other settings are faster.",
)
@trial_options(time_limit="15 minutes")
def tune(
    ctx: click.Context,
    /,
    *,
    parameters: tuple[str, ...],
    output: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the workers, threads and memory limit with which a script runs fastest.

    You do not need to change the script. dasfprof runs it, and overrides the options that it passes
    to LocalCluster() or Client(). It records an unchanged run, and another run for each value
    that you pass with --parameter. It then simulates these runs to predict the time with each
    combination of workers and threads that fits on this host. If the time with a setting cannot be
    predicted, the script runs once with that setting. The script then runs several times in turn:
    unchanged, and with each of the three best settings. This is repeated three to nine times, until
    it is certain which is best. The script must print the same output each time.

    dasfprof tune prints a line of code to paste into your script, such as
    LocalCluster(n_workers=4), and the reason. It also writes a resource profile (-o): a Dask
    configuration file for `dasfprof run --config`. If the runs vary too much, nothing is advised.

    The script runs several times, in the working directory and with empty standard input. It
    writes its files each time.

    The JSON document has "schema", "program", "verdict", "settings", "line", "as_it_is", "best",
    "sentences", "limits", "notes", "profile" (the file) and "points" (all settings that were
    looked at: "change", "predicted", "measured", "memory", "left_out", "trial"). The exit code is 1
    if the script fails, or no other settings could be compared.

    \b
    Examples:
      dasfprof tune pipeline.py
      dasfprof tune --parameter --chunk=1000,5000,20000 pipeline.py --chunk 5000
      dasfprof tune --parameter n_workers=1,2,4 --parameter array.chunk-size=32MiB,1GiB pipeline.py
      dasfprof run --config tuned.yaml pipeline.py
    """
    command = options["command"]
    check_script(ctx, command[0], options["module"])
    from dasfprof.analysis.comparison.trial import MARK
    from dasfprof.handles.trial.settings import read_values
    from dasfprof.handles.trial.tuning import Tuner

    if output.exists() and not output.read_text(errors="replace").startswith(MARK):
        raise click.UsageError(
            f"{output} exists and is not a resource profile. Pass another file with -o."
        )
    with program_runs(options) as runs:
        try:
            tuner = Tuner(runs, dict(map(read_values, parameters)))
        except InvalidArgumentError as error:
            raise click.UsageError(clean(error)) from error
        tuning = tuner.tune()
    if tuning.profile:
        output.write_text(tuning.profile, encoding="utf-8")
    written = output if tuning.profile else None
    if as_json:
        about = {"schema": schema_of("tune"), "program": runs.program.name}
        file = None if written is None else str(written)
        click.echo(json_of({**about, **tuning.as_data(), "profile": file}))
    else:
        _print(tuning, written, command)
    exit_as(tuning.kind)


def _print(tuning: Tuning, profile: Path | None, command: Sequence[str]) -> None:
    """Print the line of code to use, the reason, and all settings that were considered."""
    from dasfprof.analysis.comparison.trial import in_words

    if tuning.settings:
        echo(clean(tuning.line or tuning.best.words if tuning.best else ""))
        others = {n: v for n, v in tuning.settings.items() if n not in tuning.line}
        if tuning.line and others:
            echo(clean(in_words(others)))
    sentences = (elide(sentence, LONGEST) for sentence in tuning.sentences)
    print_entry("  ", None, verdict(sentences, COLOURS.get(tuning.kind)))
    width = max((len(point.words) for point in tuning.points), default=0)
    echo(f"\n{'settings':{width}}  predicted  measured")
    echo(f"{'as it is':{width}}{'':10}{_seconds(tuning.seconds):>10}")
    for point in tuning.points:
        echo(f"{clean(point.words):{width}}{_figures(point)}")
    print_notes([*tuning.limits, *tuning.notes])
    if profile is not None:
        more_words = " ".join(command)
        say(
            f"Wrote {clean(profile)}: dasfprof run --config {clean(profile)} {clean(more_words)}",
            apart=True,
        )


def _figures(point: Point) -> str:
    text = f"{_seconds(point.predicted):>10}{_seconds(point.measured):>10}"
    why = point.left_out
    if point.trial is not None:
        said = point.trial.results
        why = point.trial.obstacle or (said.text if said and said.kind == "differ" else "")
    if not why and math.isfinite(point.memory):
        why = f"{format_size(point.memory)} per worker"
    return text + (f"  {clean(elide(why, 100))}" if why else "")


def _seconds(seconds: float) -> str:
    return format_duration(seconds) if math.isfinite(seconds) else "-"
