"""Views of a run in progress, for terminals, for pipes (one line per state), and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dasfprof.analysis.live.state import RunState
from dasfprof.analysis.under_way.state import WorkerNow
from dasfprof.report.terminal.console import SEVERITY_COLOURS, as_html
from dasfprof.text import clean, count_of, elide, format_duration, format_share, format_size

T = TypeVar("T")

#: Minimum width of a terminal for bars in tables. Width of these bars, and of the bar of the total.
_WIDE, _BAR, _TOTAL_BAR = 90, 16, 40
#: Rule whose finding says why a run does not finish.
_WHY = "unfinished-run"
#: Threshold (fraction of the memory limit): with more memory, Dask will soon pause the worker.
_FULL = 0.8
_LONGEST_KEY, _LONGEST_LINE = 60, 100
#: Number of lines for headings and gaps, and minimum number of rows of a table.
_FRAME, _FEWEST = 16, 3
#: Threshold (seconds): if a worker is silent for less time, this is not shown.
_SILENT = 10.0


def state_in_words(state: RunState) -> str:
    """Return a clause that says whether the run is in progress, and for how long."""
    words = "in progress" if state.goes_on else "has ended"
    if state.goes_on is False and not state.closed:
        words = "was cut off, since the processes that wrote its files have died"
    elif state.client_is_gone:
        words = "in progress" if state.goes_on else "stopped"
        words += " without its client, which has died"
    if state.goes_on is None:
        words = "in progress on another host, or ended without closing its files"
    if state.began is None:
        return words
    seconds = max(state.cluster.time - state.began, 0.0)
    return f"{words}, {format_duration(seconds)} since the first task"


def counts_in_words(state: RunState) -> str:
    """Return the numbers of tasks that are finished, on workers, and waiting, as text."""
    if state.done is None:
        return "progress unknown"
    words = [f"{state.done:,} of {state.total:,} done"]
    for number, where in ((state.on_workers, "on workers"), (state.waiting, "waiting")):
        words.append(f"{number:,} {where}")
    return ", ".join([*words, *([f"{state.failed:,} failed"] if state.failed else [])])


def pace_in_words(state: RunState) -> Iterator[str]:
    """Yield texts with the rate of tasks and with the remaining time, if they are known."""
    if state.quiet_for is not None:
        yield f"no task has finished for {format_duration(round(state.quiet_for))}"
    elif state.rate:
        yield f"{rate(state.rate)} tasks per second"
    if state.seconds_left is not None and (state.on_workers or state.waiting):
        bound = "at least " * bool(state.unknown_tasks)
        seconds = round(state.seconds_left)
        yield f"{bound}{format_duration(seconds)} left" if seconds else "almost done"
    if state.unknown_tasks:
        yield f"{count_of(state.unknown_tasks, 'task')} without a known duration"


def rate(number: float) -> str:
    """Return a rate as text with three digits."""
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.3g}"


def live_view(
    state: RunState,
    *,
    width: int,
    height: int | None = None,
    findings: Sequence[dict[str, Any]] | None = None,
    when_findings: str = "",
) -> RenderableType:
    """Lay out a run's state.

    Parameters
    ----------
    width, height
        The size of the terminal. If there is no height, all rows are shown.
    findings
        Rows of `TraceAnalyser.diagnose`, or None if they were not computed.
    when_findings
        The text to show if there are no findings yet.
    """
    room = 1000 if height is None else max(height - _FRAME - 2 * len(state.long_tasks[:3]), 6)
    share = max(room // 2, _FEWEST)
    verdict, findings = _verdict(state, findings)
    style = "yellow" if state.stands_still else "green" if state.goes_on else ""
    head = Text(clean(state.run), "bold").append(f"  {state_in_words(state)}", style)
    parts: list[RenderableType] = [head, *verdict, _totals(state, width)]
    parts += ["", _functions(state, share, width)]
    if workers := state.cluster.workers:
        parts += ["", _workers(workers, max(room - min(len(state.functions), share), 3), width)]
    if state.long_tasks:
        parts += ["", *_long_tasks(state, 3 if height else 20, width)]
    if findings is not None or (when_findings and not verdict):
        parts += ["", *_findings(findings, when_findings, 3 if height else 10, width)]
    parts += [Text(f"Note: {note}", "dim") for note in state.notes]
    return Group(*parts)


def _verdict(
    state: RunState, findings: Sequence[dict[str, Any]] | None
) -> tuple[list[RenderableType], Sequence[dict[str, Any]] | None]:
    """Return paragraphs about why a run hangs, and the findings to show below them.

    There are no paragraphs unless the first finding explains why the run hangs.
    """
    first = findings[0] if findings else {}
    if not state.stands_still or first.get("Rule") != _WHY or first.get("Severity") == "info":
        return [], findings
    problem = Text(clean(first.get("Finding")), "bold yellow")
    advice = Text(f"→ {clean(first.get('Suggestion'))}")
    return [problem, Padding(advice, (0, 0, 1, 2))], (findings or ())[1:] or None


def _totals(state: RunState, width: int) -> RenderableType:
    words = [counts_in_words(state), *pace_in_words(state)]
    if state.threads:
        words.append(f"{state.busy} of {count_of(state.threads, 'thread')} busy")
    line = Text(", ".join(words))
    if not state.total:
        return line
    ended = (state.done or 0) + (state.failed or 0)
    # Show 100 % only if all tasks have finished.
    percentage = format_share(min(ended / state.total, 0.99) if ended < state.total else 1.0)
    style = "yellow" if state.stands_still else "green"
    grid = Table.grid(padding=(0, 1))
    grid.add_row(percentage, _bar(ended, state.total, min(_TOTAL_BAR, width - 8), style))
    return Group(line, grid)


def _functions(state: RunState, most: int, width: int) -> RenderableType:
    if not state.functions:
        return Text("No task was submitted yet.", "dim")
    wide = [""] if width >= _WIDE else []
    table = _table("Function", *wide, "Done", "On workers", "Waiting", "Failed", "Total", "Rate")
    table.add_column("Mean", justify="right", no_wrap=True)
    for row in _foremost(state.functions, most, lambda row: row.rate + row.on_workers):
        counts = map(_some, (row.done, row.on_workers, row.waiting))
        table.add_row(
            elide(row.function, 200),
            *(_bar(row.done + row.failed, row.total, _BAR) for _ in wide),
            *counts,
            Text(_some(row.failed), "red"),
            _some(row.total),
            f"{rate(row.rate)}/s" if row.rate else "",
            "" if row.mean_seconds is None else format_duration(row.mean_seconds),
        )
    return _with_remainder(table, len(state.functions) - most, "function")


def _foremost(rows: Sequence[T], most: int, weight: Callable[[T], float]) -> list[T]:
    """Return the rows with the largest weights, at most `most`, in their original order."""
    order = sorted(range(len(rows)), key=lambda at: -weight(rows[at]))
    return [rows[at] for at in sorted(order[:most])]


def _workers(workers: Sequence[WorkerNow], most: int, width: int) -> RenderableType:
    several = len({worker.host for worker in workers}) > 1
    hosts, wide = ["Host"] if several else [], [""] if width >= _WIDE else []
    table = _table("Worker", *hosts, "Busy", "Open tasks", "Memory", *wide)
    table.add_column("Status", no_wrap=True)
    for worker in _foremost(workers, most, lambda worker: _memory_share(worker) or 0.0):
        share = _memory_share(worker)
        bar = "" if share is None else _bar(share, 1.0, _BAR, "red" if share >= _FULL else "green")
        table.add_row(
            elide(worker.name, 60),
            *(elide(worker.host, 60) for _ in hosts),
            f"{worker.busy or 0} of {worker.threads}",
            _some(worker.processing),
            _memory(worker),
            *(bar for _ in wide),
            _status(worker),
        )
    return _with_remainder(table, len(workers) - most, "worker")


def _memory(worker: WorkerNow) -> str:
    if worker.memory is None:
        return ""
    limit = f" of {format_size(worker.memory_limit)}" if worker.memory_limit else ""
    return format_size(worker.memory) + limit


def _memory_share(worker: WorkerNow) -> float | None:
    if worker.memory is None or not worker.memory_limit:
        return None
    return min(worker.memory / worker.memory_limit, 1.0)


def _status(worker: WorkerNow) -> Text:
    text = Text(clean(worker.status), "" if worker.status == "running" else "yellow")
    if worker.silent > _SILENT:
        text.append(f" silent for {format_duration(round(worker.silent))}", "red")
    return text


def _long_tasks(state: RunState, most: int, width: int) -> Iterator[RenderableType]:
    tasks, means = state.long_tasks, state.means
    yield Text("Tasks that run unusually long", "bold")
    for task in tasks[:most]:
        mean, mean_seconds = "no other task of its function has succeeded", means.get(task.function)
        if mean_seconds is not None:
            mean = f"the mean of its function is {format_duration(mean_seconds)}"
        text = Text(elide(task.key, min(_LONGEST_KEY, width - 4)), "yellow")
        text.append(
            f" {task.state} on worker {elide(task.worker, 40)} for "
            f"{format_duration(task.seconds or 0.0)}",
            "default",
        )
        text.append(f"; {mean}", "dim default")
        yield Padding(text, (0, 0, 0, 2))
        activity = task.activity
        if activity.line is not None:
            waits = f", waits in {elide(activity.call, 60)}" if activity.call else ""
            line = f"{elide(activity.line, min(_LONGEST_LINE, width - 6))}{waits}"
            yield Padding(Text(line), (0, 0, 0, 4))
    if len(tasks) > most:
        yield Text(f"  and {len(tasks) - most:,} more", "dim")


def _findings(
    findings: Sequence[dict[str, Any]] | None, otherwise: str, most: int, width: int
) -> Iterator[RenderableType]:
    if findings is None:
        yield Text(otherwise, "dim")
        return
    yield Text("Findings so far" + ("" if findings else ": none."), "bold")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings[:most]:
        severity = clean(str(finding.get("Severity")))
        text = elide(finding.get("Finding"), max(2 * width - 30, 60))
        table.add_row(Text(f"  {severity}", SEVERITY_COLOURS.get(severity, "")), text)
    yield table


def _table(first: str, *columns: str) -> Table:
    """Return a table with these column labels and without rows.

    Columns without a label have the width of a bar.
    """
    table = Table(
        box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_edge=False
    )
    table.add_column(first, overflow="ellipsis", no_wrap=True, min_width=8, max_width=40)
    for label in columns:
        if label == "Host":
            table.add_column(label, overflow="ellipsis", no_wrap=True, max_width=24)
        elif label:
            table.add_column(label, justify="right", no_wrap=True)
        else:
            table.add_column(label, width=_BAR)
    return table


def _with_remainder(table: Table, more: int, noun: str) -> RenderableType:
    if more <= 0:
        return table
    return Group(table, Text(f"and {count_of(more, noun)} more", "dim"))


def _bar(part: float, total: float, width: int, style: str = "green") -> ProgressBar:
    return ProgressBar(
        total=max(total, part, 1e-9),
        completed=part,
        width=width,
        complete_style=style,
        finished_style=style,
    )


def _some(count: int | None) -> str:
    return f"{count:,}" if count else ""


#
# Everything from the trace is escaped, and nothing needs a script.

#: Characters per line, and maximum number of lines.
_WIDTH, _HEIGHT = 120, 150


def state_html(state: RunState, findings: Sequence[dict[str, Any]] | None = None) -> str:
    """Return a state and findings as HTML. It shows the same as `live_view`."""
    return as_html(live_view(state, width=_WIDTH, height=_HEIGHT, findings=findings), _WIDTH)
