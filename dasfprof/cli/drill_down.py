"""From an overview to one finding, from there to one function, and to single task runs.

Each step prints the commands of the next one. In these ``where`` are the words of a shell that open
the run again: its source, with the options by which it was opened.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from dasfprof.report.documents import finding_page, finding_url
from dasfprof.report.terminal.console import echo, heading, say, terminal_width
from dasfprof.report.terminal.tables import format_table
from dasfprof.text import clean, elide

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.handles.analyser import TraceAnalyser

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


def after_function(tables: dict[str, pd.DataFrame], name: str, where: str) -> list[str]:
    """Return the commands that give the rows of which a function's figures are made.

    The last one says of its longest run why it ran there, and what it waited for.
    """
    longest = tables["task_bottleneck"]["Task Key"].astype(str).tolist()[:1]
    literal = json.dumps(name)
    return [
        _command("-a", f"call_tree({literal})", where),
        _command("-a", f"task_arguments({literal})", where),
        f"{_command('-a', 'processed_tasks', '-o rows')} {where}",
        *(_command("-a", f"why({json.dumps(key)})", where) for key in longest),
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
    print_next(after_function(tables, name, where))


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
