"""``dasfprof estimate``: the first computation of a script, and its expected cost."""

from __future__ import annotations

import contextlib
import sys

import click

from dasfprof.cli.run import check_script, of_script, script_command
from dasfprof.handles.estimation.first_compute import FirstCompute
from dasfprof.handles.script import run_script
from dasfprof.report.terminal.console import echo
from dasfprof.text import clean


@script_command("estimate")
@of_script
@click.option(
    "--workers", type=click.IntRange(min=1), help="Number of workers. [default: the script's]"
)
@click.option(
    "--memory-limit",
    metavar="SIZE",
    help=(
        "Memory of each worker, such as 4GiB. With this option, the exit code is 1 if the graph "
        "certainly needs more."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def estimate(
    ctx: click.Context,
    command: tuple[str, ...],
    workers: int | None,
    memory_limit: str | None,
    *,
    module: bool,
    as_json: bool,
) -> None:
    """Estimate the tasks and memory of a script's first computation, without computing anything.

    The script runs up to its first compute, persist or submit, and ends there. For each layer, the
    estimate shows the number of tasks, the bytes, and the line that built it. It also shows the
    peak memory, and warns of operations that need too much memory. Dask reads only the metadata of
    files.

    The JSON document has "schema", "tasks", "peak_bytes", "peak_unknown", "graph_bytes",
    "optimize_seconds", "threads", "memory_limit", and the tables "warnings" and "layers".

    \b
    Examples:
      dasfprof estimate pipeline.py --input data/
      dasfprof estimate --workers 4 --memory-limit 8GiB pipeline.py
    """
    target, *arguments = command
    check_script(ctx, target, module)
    first = FirstCompute(workers, memory_limit)
    first.listen()
    output = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with output:
        outcome = run_script(target, tuple(arguments), as_module=module)
    sys.stdout.flush()
    if first.error is not None:
        raise first.error
    if first.estimate is None:
        if outcome.exit_code:
            ctx.exit(outcome.exit_code)
        raise click.ClickException(f"{clean(target)} computed nothing with Dask in this process.")
    from dasfprof.handles.estimation.estimate import check_memory
    from dasfprof.report.documents import json_of

    lines = str(first.estimate).splitlines()
    echo(json_of(first.estimate.to_dict()) if as_json else "\n".join(map(clean, lines)))
    if memory_limit is not None:
        check_memory(first.estimate)
