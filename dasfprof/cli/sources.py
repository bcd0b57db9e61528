"""The run that a command works on, and its findings and tables as one JSON document."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dasfprof.documentation import finding_page, finding_url
from dasfprof.errors import NoSchedulerError
from dasfprof.report.documents import json_of, records, schema_of
from dasfprof.report.terminal.console import echo, heading, say, terminal_width
from dasfprof.report.terminal.tables import format_table
from dasfprof.text import clean, elide

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

    from dasfprof.analysis.tables.questions import Request
    from dasfprof.database import MultiEventDatabase
    from dasfprof.handles.analyser import TraceAnalyser


# --- The run that a command works on, and its findings and tables as one JSON document ------------

_Command = TypeVar("_Command", bound=Callable[..., object])

#: The option of commands that read a run, for a part of it.
between_option = click.option(
    "--between",
    nargs=2,
    metavar="BEGIN END",
    help="Read only what overlaps the time between two times, in UTC unless they name a zone, such "
    "as '2026-03-01 12:00' '2026-03-01 13:00'.",
)


def _one_source(ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> str:
    """Return the one source that a command's arguments stand for, files of one run as its name."""
    if len(given) < 2:
        return given[0] if given else "."
    from dasfprof.database import find_runs

    files = [path for path in map(Path, given) if path.suffix == ".msgpack"]
    directories = {path.parent for path in files}
    runs = [run for place in directories for run in find_runs(place, among=files)]
    if len(runs) != 1:
        names = ", ".join(clean(run.name) for run in runs[:5])
        found = f"these are files of {len(runs)} runs ({names})" if runs else "none is a trace file"
        raise click.UsageError(
            f"Got {len(given)} sources, and `dasfprof {ctx.info_name}` takes one run: {found}."
        )
    return str(directories.pop() / runs[0].name)


def source_argument(*, required: bool = True) -> Callable[[_Command], _Command]:
    """Return the argument of commands that read a run: one source, or the files of one run.

    Not required is that there is any: the source is then the current directory.
    """
    return click.argument(
        "source", metavar="SOURCE", nargs=-1, required=required, callback=_one_source
    )


def open_source(source: str, between: tuple[str, str] | None = None) -> MultiEventDatabase:
    """Open the files of a run; Python warnings are printed as notes."""
    from dasfprof.database import open_run

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        database = open_run(source, between=between)
    for warning in caught:
        echo(f"Note: {clean(warning.message)}", err=True)
    return database


def open_analyser(
    source: str, between: tuple[str, str] | None = None, *, client: Client | None = None
) -> tuple[TraceAnalyser, str]:
    """Open a run for analysis; returns the analyser and the run's name, or that of the source.

    With a client its cluster analyses the run.
    """
    # A wrong source is an error before pandas is loaded.
    database = open_source(source, between) if client is None else source
    from dasfprof.handles.analyser import TraceAnalyser
    from dasfprof.report.run_summary import title_of

    analyser = TraceAnalyser(database, client=client)
    return analyser, title_of(analyser.in_memory, default=Path(source).resolve().name)


@contextmanager
def connected(address: str | None) -> Iterator[Client | None]:
    """Connect to the scheduler at an address; no address, no client.

    Raises
    ------
    NoSchedulerError
        If none answers there.
    """
    if address is None:
        yield None
        return
    from distributed import Client

    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise NoSchedulerError(
            f"no Dask scheduler answers at {address!r}: {error}. Give its address, such as "
            "tcp://10.0.0.5:8786; client.scheduler_info() tells it."
        ) from error
    with client:
        yield client


#: Rows that are text at a time.
_BLOCK = 1 << 12


def document(
    analyser: TraceAnalyser,
    title: str,
    requests: Iterable[Request],
    rows: int | None,
    where: str,
) -> Iterator[str]:
    """Write answers as JSON, in ASCII, piece by piece.

    The whole is an object of ``schema`` (its name and version), ``run`` (its name), ``summary``,
    ``findings``, ``tables`` (by the names of their CSV files), ``notes`` (on missing data) and
    ``next`` (commands that lead on). The summary of a run that is analysed part by part is null. A
    table is a list of objects by label; NA and numbers that are not finite are null; times are ISO
    8601. A finding has its ``Figures``, ``Changes`` and ``Page`` besides.

    Parameters
    ----------
    analyser
        The run.
    title
        What it is called.
    requests
        The questions.
    rows
        How many rows of each; None: all.
    where
        The words of a shell that open the run again.
    """

    head = json_of(_head(analyser, title))
    yield head.removesuffix("}") + ",\n"
    asked, following = list(requests), []
    for request in asked:
        if request.question.name == "diagnose":
            findings = request.of(analyser)
            following = after_overview(findings, where)
            yield from _member("findings", _told(findings), rows)
            yield ",\n"
    yield '"tables": {'
    separator = "\n"
    for request in asked:
        if request.question.name != "diagnose":
            yield separator
            yield from _member(request.file_stem, request.of(analyser), rows)
            separator = ",\n"
    notes = json_of([note.text for note in analyser.in_memory.notes])
    yield f'}},\n"notes": {notes},\n"next": {json_of(following)}}}\n'


def step_document(
    analyser: TraceAnalyser,
    title: str,
    findings: pd.DataFrame | None,
    tables: Mapping[str, pd.DataFrame],
    following: list[str],
) -> str:
    """Return some findings and tables of a run as a `document`, with the commands that lead on."""
    told = {} if findings is None else {"findings": records(_told(findings))}
    return json_of(
        {
            **_head(analyser, title),
            **told,
            "tables": {name: records(table) for name, table in tables.items()},
            "notes": [note.text for note in analyser.in_memory.notes],
            "next": following,
        }
    )


def _head(analyser: TraceAnalyser, title: str) -> dict[str, Any]:
    from dasfprof.report.run_summary import summarise

    summary = None if analyser.is_in_parts else summarise(analyser.run)
    return {"schema": schema_of("analyse"), "run": title, "summary": summary}


def _told(findings: pd.DataFrame) -> pd.DataFrame:
    """Return findings with figures, changes, and the pages of the documentation about them."""
    pages = [finding_url(rule) or finding_page(rule) for rule in findings["Rule"]]
    attrs = findings.attrs
    return findings.assign(Figures=attrs["figures"], Changes=attrs["changes"], Page=pages)


def _member(name: str, frame: pd.DataFrame, rows: int | None) -> Iterator[str]:
    """Write a table, a row a line."""
    yield f"{json_of(name)}: ["
    whole = frame if rows is None else frame.head(rows)
    separator = "\n"
    for begin in range(0, len(whole), _BLOCK):
        block = whole.iloc[begin : begin + _BLOCK]
        yield separator + ",\n".join(map(json_of, records(block)))
        separator = ",\n"
    yield "]"


# --- From an overview to one finding, from there to one function, and to single task runs ---------
#
# Each step prints the commands of the next one. In these ``where`` are the words of a shell that
# open the run again: its source, with the options by which it was opened.

#: Findings of which the next command is named after an overview.
_MOST_NEXT = 3
#: Questions that findings name in their evidence, as ``hot_lines()`` or ``transfers("time")``.
_CALL = re.compile(r"\b([a-z_]+\((?:\"\w+\")?\))")
#: What is shown of one function, by the names of the CSV files, and its headings.
_OF_FUNCTION = {
    "function_bottleneck": "By worker",
    "hot_lines": "Lines that ran, by samples",
    "task_bottleneck": "Task runs, the longest first",
}


def after_overview(findings: pd.DataFrame, where: str) -> list[str]:
    """Return the commands that show the gravest findings one by one, or without any functions."""
    rules = list(dict.fromkeys(findings["Rule"].tolist()))[:_MOST_NEXT]
    commands = [_command("--finding", rule, where) for rule in rules]
    return commands or [_command("-a", "function", where)]


def after_finding(findings: pd.DataFrame, where: str) -> list[str]:
    """Return the commands that show the functions of findings, and what these name as evidence."""
    functions = dict.fromkeys(name for name in findings["Function"] if isinstance(name, str))
    commands = [_command("--function", name, where) for name in functions]
    return commands + [_command("-a", call, where) for call in _questions(findings)]


def after_function(name: str, where: str) -> list[str]:
    """Return the commands that give the rows of which a function's figures are made."""
    literal = json.dumps(name)
    return [
        _command("-a", f"call_tree({literal})", where),
        _command("-a", f"task_arguments({literal})", where),
        f"{_command('-a', 'processed_tasks', '-o rows')} {where}",
    ]


def findings_of(analyser: TraceAnalyser, rule: str) -> pd.DataFrame:
    """Return the findings of a rule.

    Raises
    ------
    UsageError
        If there is none in this run.
    """
    found = analyser.diagnose()
    own = found[(found["Rule"] == rule).to_numpy(dtype=bool)]
    if not len(own):
        there = ", ".join(dict.fromkeys(found["Rule"])) or "none at all"
        raise click.UsageError(f"This run has no finding {clean(rule)!r}; there are: {there}.")
    own.attrs = {
        name: [found.attrs[name][place] for place in own.index] for name in ("figures", "changes")
    }
    return own.reset_index(drop=True)


def tables_of(analyser: TraceAnalyser, function: str) -> dict[str, pd.DataFrame]:
    """Return what there is of one function, by the names of the CSV files.

    Raises
    ------
    UsageError
        If no task run is of that function.
    """
    by_worker = analyser.per_function_bottleneck()
    own = by_worker[(by_worker["Function"].astype(object) == function).to_numpy(dtype=bool)]
    if not len(own):
        there = ", ".join(map(clean, dict.fromkeys(by_worker["Function"].astype(str))))
        raise click.UsageError(
            f"No task run is of {clean(function)!r}; functions: {elide(there, 600)}."
        )
    keys = analyser.per_task_bottleneck()
    runs = keys[(keys["Function"].astype(object) == function).to_numpy(dtype=bool)]
    tables = (own, analyser.hot_lines(function), runs)
    return {
        name: table.reset_index(drop=True) for name, table in zip(_OF_FUNCTION, tables, strict=True)
    }


def print_finding(findings: pd.DataFrame, where: str) -> None:
    """Print findings of one rule whole, and what to ask next."""
    for row in findings.to_dict("records"):
        heading(f"{row['Severity']}  {row['Rule']}", apart=True)
        say(clean(row["Finding"]))
        say(f"→ {clean(row['Suggestion'])}")
        say(clean(row["Evidence"]))
    rule = str(findings["Rule"].iloc[0])
    say(f"What it means: {finding_url(rule) or finding_page(rule) + ' of the documentation'}")
    print_next(after_finding(findings, where))


def print_function(tables: dict[str, pd.DataFrame], name: str, rows: int, where: str) -> None:
    """Print what there is of one function, and what to ask next."""
    heading(elide(clean(name), terminal_width()))
    for name_of_table, table in tables.items():
        shown = f" (first {rows} of {len(table)} rows)" if len(table) > rows else ""
        heading(_OF_FUNCTION[name_of_table], shown, apart=True)
        echo(format_table(table, terminal_width(), rows=rows) if len(table) else "  None.")
    print_next(after_function(name, where))


def print_next(commands: Iterable[str]) -> None:
    """Print what may be asked next, a command a line."""
    for position, command in enumerate(commands):
        if position == 0:
            heading("Next", apart=True)
        echo(f"  {clean(command)}")


def _command(option: str, value: str, where: str) -> str:
    return f"dasfprof analyse {option} {shlex.quote(value)} {where}"


def _questions(findings: pd.DataFrame) -> Iterator[str]:
    """Yield the questions that findings name, each once."""
    from dasfprof.analysis.tables import questions
    from dasfprof.errors import InvalidArgumentError

    calls = (call for text in findings["Evidence"] for call in _CALL.findall(str(text)))
    for call in dict.fromkeys(calls):
        try:
            questions.parse(call)
        except InvalidArgumentError:
            continue  # a call of Dask's
        yield call.removesuffix("()")
