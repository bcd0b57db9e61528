"""Findings, a run's summary and a comparison in a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dasfprof.analysis.under_way.state import name_some, user_line
from dasfprof.report.terminal.console import (
    SEVERITY_COLOURS,
    Paragraph,
    echo,
    first_of,
    heading,
    print_entry,
    print_notes,
    say,
    terminal_width,
    verdict,
)
from dasfprof.report.terminal.tables import format_table
from dasfprof.schema.under_way import UNFINISHED
from dasfprof.text import clean, count_of, elide, format_duration

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis.comparison import Comparison
    from dasfprof.analysis.run import Run
    from dasfprof.analysis.under_way.state import Cause, ClusterState, TaskUnderWay

#: Severities of findings whose evidence is printed.
_PROVEN = ("high", "medium")
#: Maximum number of characters of a text. Keys in it can be very long.
_LONGEST = 900
#: Prefix of a finding that another finding causes.
_BENEATH = "└ due to {cause}: "
#: Pattern of a hash in a key (32 digits or a UUID), and number of its digits that are shown.
_HASH = re.compile(r"(?<=-)(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
_DIGITS = 3
#: Time range of seconds and percentages. Tables contain the complete lifetime of workers instead.
_OF = ", from the first to the last task"
_NONE = "No known problem was found."


def print_findings(
    findings: pd.DataFrame, rows: int, *, none: str = _NONE, err: bool = False
) -> None:
    """Print the first findings and all severe ones. Without findings, print the text `none`."""
    rows = max(rows, int(findings["Severity"].isin(_PROVEN).sum()))
    shown = first_of(rows, len(findings)) + (_OF if len(findings) else "")
    heading("Findings", shown, err=err, apart=True)
    if not len(findings):
        echo(f"  {none}", err=err)
    for finding in findings.head(rows).to_dict("records"):
        _print_finding(finding, err=err)


def _print_finding(finding: dict[Any, Any], *, err: bool) -> None:
    severity = clean(finding["Severity"])
    seconds = finding["Seconds at stake (s)"]
    at_stake = "" if math.isnan(seconds) else format_duration(seconds)
    margin = f"  {severity:<7}{at_stake:>11}  "
    cause = finding.get("Cause")
    lead = "" if cause is None else _BENEATH.format(cause=clean(cause))
    parts = [
        Paragraph(_shown(finding["Finding"]), "bold", lead=lead),
        Paragraph(_shown(finding["Suggestion"]), lead="→ "),
    ]
    if severity in _PROVEN:
        parts.append(Paragraph(_shown(finding["Evidence"]), "dim", lead="  "))
    print_entry(margin, SEVERITY_COLOURS.get(severity), parts, err=err)


def _shown(text: object) -> str:
    """Shorten a text of a finding for a terminal."""
    return elide(short_keys(str(text)[: 10 * _LONGEST]), _LONGEST)


def short_keys(text: str) -> str:
    """Replace hashes in keys by their last digits, as in ``take-…d6b``, if these are unique."""
    ends: dict[str, set[str]] = {}
    for match in _HASH.finditer(text):
        ends.setdefault(match[0][-_DIGITS:], set()).add(match[0])

    def shortened(match: re.Match[str]) -> str:
        end = match[0][-_DIGITS:]
        return f"…{end}" if len(ends[end]) == 1 else match[0]

    return _HASH.sub(shortened, text)


def print_summary(run: Run, title: str) -> None:
    """Print the run's name and time, its work, and its workers."""
    from dasfprof.database.ends import End
    from dasfprof.report.run_summary import in_words, start_in_words, summarise, when

    facts = summarise(run)
    time = when(facts)
    if run.recording is End.GOES_ON:
        time = f"{time}, in progress" if time else "in progress"
    heading(elide(title, terminal_width()), f"  {time}" if time else "")
    say(in_words(facts))
    if start := start_in_words(facts):
        say(start)


_VERDICT_COLOURS = {"faster": "green", "slower": "red"}
#: Columns that are left out first if a table is too wide.
_EXPENDABLE = (
    "Highest Memory Before (MB)",
    "Highest Memory After (MB)",
    "Throughput Before (MB/s)",
    "Throughput After (MB/s)",
    "Median Result Before (MB)",
    "Median Result After (MB)",
    "95th Percentile Before (s)",
    "95th Percentile After (s)",
    "Task Runs Before",
    "Task Runs After",
)
_LONGEST_NAME = 400


def print_comparison(comparison: Comparison, rows: int) -> None:
    """Print a comparison, with the first `rows` rows of waterfalls, functions and findings."""
    _print_verdict(comparison)
    if comparison.verdict.kind != "cannot tell":
        before, after = map(format_duration, comparison.verdict.means)
        title = f"From {before} to {after}, along the critical path"
        _print_waterfall(title, comparison.waterfall(), rows)
        threads = comparison.thread_time()
        sums = (float(threads[f"{side} (s)"].sum()) for side in ("Before", "After"))
        first, last = map(format_duration, sums)
        _print_waterfall(f"From {first} to {last} of all threads", threads, rows)
    functions = comparison.functions
    if len(functions):
        heading("Functions", first_of(rows, len(functions)), apart=True)
        echo(format_table(functions.head(rows), terminal_width(), expendable=_EXPENDABLE))
    _print_findings(comparison.findings, rows)
    around = comparison.surroundings
    title = "Differences of hosts, versions and settings"
    heading(title, "" if len(around) else ": none", apart=True)
    if len(around):
        echo(format_table(around, terminal_width()))
    print_notes(comparison.notes)


def _print_verdict(comparison: Comparison) -> None:
    sides = (comparison.runs_before, comparison.runs_after)
    names = [
        elide(side[0].name, 60)
        if len(side) == 1
        else f"{elide(side[0].name, 60)} and {count_of(len(side) - 1, 'more run')}"
        for side in sides
    ]
    heading(" → ".join(names))
    kind = comparison.verdict.kind if comparison.same_pipeline else ""
    sentences = map(clean, comparison.sentences)
    print_entry("  ", None, verdict(sentences, _VERDICT_COLOURS.get(kind)))


def _print_waterfall(title: str, table: pd.DataFrame, rows: int) -> None:
    """Print the first rows of a waterfall, and a last row with the sums of all other rows."""
    import pandas as pd

    heading(title, apart=True)
    shown = table.drop(columns="Meaning")
    if len(shown) > rows:
        seconds = ["Before (s)", "After (s)", "Difference (s)"]
        others = shown.iloc[rows:]
        label = {**dict.fromkeys(shown.columns, ""), "Class": f"{len(others)} more"}
        last = pd.DataFrame([label | others[seconds].sum().to_dict()])
        shown = pd.concat([shown.head(rows), last], ignore_index=True)
    echo(format_table(shown, terminal_width()))


def _print_findings(findings: pd.DataFrame, rows: int) -> None:
    changed = findings[findings["Status"].isin(["new", "gone"])]
    same = int((findings["Status"] == "same").sum())
    heading("Findings that are new or gone", first_of(rows, len(changed)), apart=True)
    for row in changed.head(rows).to_dict("records"):
        margin = f"  {row['Status']:<5}{clean(row['Severity']):<8}"
        style = "red" if row["Status"] == "new" else "green"
        print_entry(margin, style, [Paragraph(elide(row["Finding"], _LONGEST_NAME))])
    if same or not len(changed):
        say(f"  {count_of(same, 'finding')} on both sides." if same else "  None.")


_COLOURS_OF_CAUSES = {"certain": "red", "likely": "yellow", "possible": "cyan"}
#: States of tasks that have finished and that the scheduler still knows.
_ENDED = ("memory", "erred")
_MOST_CAUSES, _MOST_PLACES = 20, 20


def print_causes(
    state: ClusterState, causes: Sequence[Cause], title: str, note: str | None = None
) -> None:
    """Print the unfinished work of a cluster, and why it may not finish."""
    heading(elide(title, terminal_width()))
    if state.scheduler_answered is not False or state.workers:
        say(". ".join(_facts(state)) + ".")
    if note is not None:
        say(note)
    if not causes:
        ended = "There are no unfinished tasks. Every task that was submitted has finished."
        say("No sign of a hang was found." if state.unfinished else ended, apart=True)
    for cause in causes[:_MOST_CAUSES]:
        _print_cause(cause)
    if len(causes) > _MOST_CAUSES:
        echo(f"\n  and {len(causes) - _MOST_CAUSES} more, see --json")
    _print_tasks(state)


def _facts(state: ClusterState) -> Iterator[str]:
    """Yield texts about unfinished tasks, workers, and the time since a task last started or ended.

    If the scheduler stopped answering, yield a text about this too.
    """
    numbers = state.totals
    states = ", ".join(f"{numbers[name]:,} {name}" for name in UNFINISHED if numbers[name])
    ended = ", ".join(f"{numbers[name]:,} {name}" for name in _ENDED if numbers[name])
    unfinished = f"{state.unfinished:,}" if state.unfinished else "No"
    unfinished += " unfinished task" if state.unfinished == 1 else " unfinished tasks"
    yield unfinished + f" ({states})" * bool(states) + f"; {ended}" * bool(ended)
    silent = sum(worker.answered is False for worker in state.workers)
    threads = sum(worker.threads for worker in state.workers)
    workers = f"{count_of(len(state.workers), 'worker')} with {count_of(threads, 'thread')}"
    verb = "does" if silent == 1 else "do"
    yield workers + (f", {silent} of which {verb} not answer" if silent else "")
    if state.quiet is not None and state.unfinished:
        yield f"The last task started or finished {format_duration(state.quiet)} ago"
    if state.scheduler_answered is False:
        yield "The scheduler answered once, and then stopped answering"


def _print_cause(cause: Cause) -> None:
    waiting = count_of(cause.waiting, "task") if cause.waiting else ""
    margin = f"  {cause.certainty:<9}{elide(waiting, 10):>10}  "
    echo()
    print_entry(
        margin,
        _COLOURS_OF_CAUSES[cause.certainty],
        [
            Paragraph(_shown(cause.text), "bold"),
            Paragraph(_shown(cause.suggestion), lead="→ "),
            Paragraph(_shown(cause.evidence), "dim", lead="  "),
        ],
    )


def _print_tasks(state: ClusterState) -> None:
    """Print the unfinished tasks on workers, grouped by line, oldest first."""
    if not state.tasks:
        return
    together: dict[str, list[TaskUnderWay]] = {}
    for task in sorted(state.tasks, key=lambda task: -(task.seconds or 0.0)):
        together.setdefault(_doing(task), []).append(task)
    heading("Unfinished tasks on workers", ", the oldest first", apart=True)
    for doing, tasks in [*together.items()][:_MOST_PLACES]:
        seconds = tasks[0].seconds
        margin = f"  {'unknown' if seconds is None else format_duration(seconds):>12}  "
        workers = name_some(list(dict.fromkeys(task.worker for task in tasks)))
        many = f"{count_of(len(tasks), 'task')}: " if len(tasks) > 1 else ""
        keys = f"{many}{name_some([task.key for task in tasks])} on {workers}"
        print_entry(margin, None, [Paragraph(_shown(f"{doing}. {keys}"))])
    if len(together) > _MOST_PLACES:
        others = sum(map(len, [*together.values()][_MOST_PLACES:]))
        echo(f"  and {count_of(others, 'task')} at other lines")


def _doing(task: TaskUnderWay) -> str:
    """Return a text with the activity and the line of a task."""
    activity, line = task.activity, user_line(task.activity.stack)
    doing = activity.thread_state or task.state
    if activity.waits_in is not None:
        doing = f"waits in {activity.waits_in} {', '.join(activity.waits_for)}".rstrip()
    return f"{doing} at {line}" if line else doing
