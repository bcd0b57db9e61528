"""``dasfprof analyse``: the findings and tables of a recorded run.

Each view prints the commands for the next step, from the overview to a finding, a function and
single task runs. In this module, ``where`` is the end of such a command: the options and the source
with which the run was opened.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasfprof.cli.sources import (
    between_option,
    client_option,
    connected,
    open_analyser,
    price_option,
    print_document,
)
from dasfprof.errors import InvalidArgumentError
from dasfprof.report.documents import finding_sections
from dasfprof.report.terminal.answers import DEFAULT_ROWS, default_requests, print_answers
from dasfprof.report.terminal.console import echo, first_of, heading, say, terminal_width
from dasfprof.report.terminal.findings import print_summary
from dasfprof.report.terminal.tables import format_table
from dasfprof.text import clean, elide

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis.diagnosis.registry import Finding
    from dasfprof.analysis.tables.questions import Request
    from dasfprof.handles.analyser import TraceAnalyser


def _list_questions(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print all analyses by group. `TraceAnalyser` has their full documentation."""
    if not wanted:
        return
    from dasfprof.analysis.tables import questions

    group = ""
    for question in questions.all():
        if question.group != group:
            group = question.group
            heading(group, f": {questions.GROUPS[question.group]}", apart=True)
        short = f", short {question.short}" if question.short else ""
        click.echo(f"  {question.call}{short}\n      {question.summary}")
    ctx.exit()


_IN_PARTS = (
    "This run is analysed in time windows, since it would take too much memory otherwise. By "
    "default, only tables of sums, counts and rankings are shown. Other tables (-a) are "
    "computed in memory, if they fit."
)


def _requests(analyses: tuple[str, ...], analyser: TraceAnalyser) -> list[Request]:
    """Parse the requested analyses, and remove duplicates."""
    from dasfprof.analysis.tables import questions

    try:
        asked = {request.file_stem: request for request in map(questions.parse, analyses)}
    except InvalidArgumentError as error:
        raise click.UsageError(clean(error)) from error
    if asked:
        return list(asked.values())
    requests = default_requests(analyser.in_memory)
    return list(filter(analyser.answers, requests)) if analyser.is_in_parts else requests


@click.command()
@click.argument("source")
@click.option(
    "-a",
    "--analysis",
    "analyses",
    metavar="TABLE",
    multiple=True,
    help="Table to print: a name such as function, or a call such as "
    "'time_accounting(\"worker\")'. Repeat the option for several tables. --questions lists "
    "all of them. The default is an overview.",
)
@click.option(
    "--finding",
    "rule",
    metavar="RULE",
    help="Print one finding in full, such as io-bound, and the commands for the next step.",
)
@click.option(
    "--function",
    metavar="NAME",
    help="Print the tables about one function and its task runs, and the commands for the next "
    "step.",
)
@click.option(
    "--questions",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_questions,
    help="List the tables with their arguments, and exit.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write the full tables into this directory, as CSV files.",
)
@click.option(
    "--head",
    type=click.IntRange(min=1),
    help=f"Number of rows of each table.  [default: {DEFAULT_ROWS}, or all rows with --json]",
)
@price_option
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Address of a Dask scheduler, such as tcp://10.0.0.5:8786. The analysis runs on its "
    "cluster, which must be able to read the files.",
)
@click.option(
    "--patch",
    is_flag=True,
    help="Print only a unified diff of the program. The diff applies each suggestion "
    "that changes only one line, such as larger chunks. `dasfprof try --patch` tests it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@between_option
@client_option
def analyse(  # noqa: PLR0917
    source: str,
    analyses: tuple[str, ...],
    rule: str | None,
    function: str | None,
    output: Path | None,
    head: int | None,
    between: tuple[str, str] | None,
    scheduler: str | None,
    name: str | None,
    *,
    patch: bool,
    as_json: bool,
) -> None:
    """Print the findings of a run and where its time went.

    In a terminal, the overview fits on one screen. Use --head to print more rows and -a to choose
    tables. To go deeper, use --finding for one finding, and --function for one function and its
    task runs. Each view prints the commands for the next step.

    SOURCE is a trace file, a directory, a quoted glob pattern, or the beginning of a run's name,
    which may include the path of its directory. For a directory with several runs, the newest is
    read.

    The JSON document has "schema" (its name and version), "run", "summary", "findings", "tables"
    (named like their CSV files, each a list of rows), "notes" and "next" (commands for the next
    step). NA is null.

    \b
    Examples:
      dasfprof analyse traces/
      dasfprof analyse --finding tasks-too-small traces/Tutorial_5
      dasfprof analyse -a function --head 20 -o tables/ 'traces/Tutorial_5*'
      dasfprof analyse -a 'time_accounting("worker")' traces/Tutorial_5
      dasfprof analyse --client ann traces/
      dasfprof analyse --scheduler tcp://10.0.0.5:8786 /scratch/traces/Tutorial_5
      dasfprof analyse --json traces/ | jq '.findings[].Finding'
      dasfprof analyse --patch traces/ > fix.diff
    """
    if patch and (as_json or function or analyses or output):
        raise click.UsageError("--patch can only be combined with --finding.")
    if as_json and output is not None:
        raise click.UsageError("--json and --output cannot be used together.")
    if scheduler is not None and (between is not None or name is not None):
        other = "--client" if between is None else "--between"
        raise click.UsageError(f"--scheduler and {other} cannot be used together.")
    asked = [rule is not None, function is not None, bool(analyses or output)]
    if sum(asked) > 1:
        raise click.UsageError("--finding, --function and -a or -o cannot be used together.")
    options = ["--between", *between] if between else []
    options += ["--scheduler", scheduler] if scheduler else []
    options += ["--client", name] if name else []
    where = shlex.join([*options, source])
    with connected(scheduler) as client:
        analyser, title = open_analyser(source, between, client=name or client)
        if patch:
            _print_patch(analyser.findings() if rule is None else findings_of(analyser, rule))
        elif rule is not None:
            findings = findings_of(analyser, rule)
            if as_json:
                print_document(analyser, title, findings, (), after_finding(findings, where))
            else:
                print_finding(findings, where)
        elif function is not None:
            tables = tables_of(analyser, function)
            if as_json:
                first = ((name, table.head(head or len(table))) for name, table in tables.items())
                following = after_function(tables, function, where)
                print_document(analyser, title, None, first, following)
            else:
                print_function(tables, function, head or DEFAULT_ROWS, where)
        else:
            _answer(analyser, title, analyses, output, head, where=where, as_json=as_json)


def _print_patch(findings: list[Finding]) -> None:
    """Print a diff of the edits that findings suggest. If there are no edits, exit with code 1."""
    from dasfprof.cli.patches import edits_of, patch_of

    diff, obstacles = patch_of(edits_of(findings))
    click.echo(diff, nl=False)
    if not diff and not obstacles:
        obstacles = ["No finding suggests an edit of one line of the program."]
    for obstacle in obstacles:
        say(f"dasfprof: {obstacle}", err=True)
    if not diff:
        raise click.exceptions.Exit(1)


def _answer(
    analyser: TraceAnalyser,
    title: str,
    analyses: tuple[str, ...],
    output: Path | None,
    head: int | None,
    *,
    where: str,
    as_json: bool,
) -> None:
    requests = _requests(analyses, analyser)
    analyser.prepare(requests)
    if as_json:
        findings: list[Finding] | None = None
        following: list[str] = []
        for request in requests:
            if request.question.name == "diagnose":
                findings = analyser.findings(**request.arguments)
                following = after_overview([finding.rule for finding in findings], where)
        tables = (
            (
                request.file_stem,
                request.table(analyser).head(sys.maxsize if head is None else head),
            )
            for request in requests
            if request.question.name != "diagnose"
        )
        print_document(analyser, title, findings and findings[:head], tables, following)
        return
    if analyser.is_in_parts:
        say(_IN_PARTS)
    else:
        print_summary(analyser.run, title)
    unlimited = bool(head or analyses or output)
    answers = print_answers(
        analyser, head or DEFAULT_ROWS, requests=requests, unlimited=unlimited, asked=bool(analyses)
    )
    if not (analyses or output) and "findings" in answers:
        print_next(after_overview(answers["findings"]["Rule"], where)[:1])
    if output is not None:
        from dasfprof.report.formats.tables import write_csv

        output.mkdir(parents=True, exist_ok=True)
        files = [write_csv(frame, output / f"{name}.csv") for name, frame in answers.items()]
        say(f"Wrote {', '.join(file.name for file in files)} into {clean(output)}.", apart=True)


#: Maximum number of findings for which the overview prints the next command.
_MOST_NEXT = 3
#: Pattern of calls in the evidence of findings, such as ``transfers("function")``.
_CALL = re.compile(r"\b([a-z_]+\((?:\"\w+\")?\))")
#: Headings of the tables about one function, by the names of their CSV files.
_OF_FUNCTION = {
    "function_bottleneck": "By worker",
    "hot_lines": "Executed lines, from samples",
    "task_bottleneck": "Task runs, longest first",
}


def after_overview(rules: Iterable[str], where: str) -> list[str]:
    """Return commands that show the findings of up to `_MOST_NEXT` of the rules.

    If there are no rules, return a command that shows functions.
    """
    first = list(dict.fromkeys(rules))[:_MOST_NEXT]
    commands = [_command("--finding", rule, where) for rule in first]
    return commands or [_command("-a", "function", where)]


def after_finding(findings: list[Finding], where: str) -> list[str]:
    """Return commands that show the functions of findings, and the analyses in the evidence."""
    from dasfprof.analysis.tables import questions

    functions = dict.fromkeys(
        finding.function for finding in findings if finding.function is not None
    )
    commands = [_command("--function", name, where) for name in functions]
    calls = (call for finding in findings for call in _CALL.findall(finding.evidence))
    for call in dict.fromkeys(calls):
        with suppress(InvalidArgumentError):  # Other calls are methods of Dask.
            questions.parse(call)
            commands.append(_command("-a", call.removesuffix("()"), where))
    return commands


def after_function(tables: dict[str, pd.DataFrame], name: str, where: str) -> list[str]:
    """Return commands that list the task runs of a function.

    The last command explains what the longest task run waited for.
    """
    longest = tables["task_bottleneck"]["Task Key"].astype(str).tolist()[:1]
    literal = json.dumps(name)
    return [
        _command("-a", f"call_tree({literal})", where),
        _command("-a", f"task_arguments({literal})", where),
        f"{_command('-a', 'processed_tasks', '-o rows')} {where}",
        *(_command("-a", f"why({json.dumps(key)})", where) for key in longest),
    ]


def findings_of(analyser: TraceAnalyser, rule: str) -> list[Finding]:
    """Return the findings of a rule.

    Raises
    ------
    UsageError
        If this run has no such finding.
    """
    findings = analyser.findings()
    of_rule = [finding for finding in findings if finding.rule == rule]
    if not of_rule:
        there = ", ".join(dict.fromkeys(finding.rule for finding in findings)) or "none"
        raise click.UsageError(
            f"This run has no finding {clean(rule)!r}. Findings of this run: {there}."
        )
    return of_rule


def tables_of(analyser: TraceAnalyser, function: str) -> dict[str, pd.DataFrame]:
    """Return the tables about one function, by the names of their CSV files.

    Raises
    ------
    UsageError
        If the function has no task run.
    """
    by_worker = analyser.per_function_bottleneck()
    rows = by_worker[(by_worker["Function"].astype(object) == function).to_numpy(dtype=bool)]
    if not len(rows):
        there = ", ".join(map(clean, dict.fromkeys(by_worker["Function"].astype(str))))
        raise click.UsageError(
            f"No task run belongs to the function {clean(function)!r}. Functions of this run: "
            f"{elide(there, 600)}."
        )
    keys = analyser.per_task_bottleneck()
    runs = keys[(keys["Function"].astype(object) == function).to_numpy(dtype=bool)]
    tables = (rows, analyser.hot_lines(function), runs)
    return {
        name: table.reset_index(drop=True) for name, table in zip(_OF_FUNCTION, tables, strict=True)
    }


def print_finding(findings: list[Finding], where: str) -> None:
    """Print all findings of one rule in full, and commands that the user may run next."""
    rule = findings[0].rule
    for finding in findings:
        heading(f"{finding.severity}  {rule}", apart=True)
        say(clean(finding.text))
        say(f"→ {clean(finding.row()['Suggestion'])}")
        say(clean(finding.evidence))
    for title, paragraphs in finding_sections(rule).items():
        heading(title, apart=True)
        for number, paragraph in enumerate(paragraphs):
            say(paragraph, apart=number > 0)
    print_next(after_finding(findings, where))


def print_function(tables: dict[str, pd.DataFrame], name: str, rows: int, where: str) -> None:
    """Print the tables about one function, and commands that the user may run next."""
    heading(elide(clean(name), terminal_width()))
    for name_of_table, table in tables.items():
        heading(_OF_FUNCTION[name_of_table], first_of(rows, len(table), "rows"), apart=True)
        echo(format_table(table, terminal_width(), rows=rows) if len(table) else "  None.")
    print_next(after_function(tables, name, where))


def print_next(commands: Iterable[str]) -> None:
    """Print the commands for the next step, one per line."""
    for position, command in enumerate(commands):
        if position == 0:
            heading("Next", apart=True)
        echo(f"  {clean(command)}")


def _command(option: str, value: str, where: str) -> str:
    return f"dasfprof analyse {option} {shlex.quote(value)} {where}"
