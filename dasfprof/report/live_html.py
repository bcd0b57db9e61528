"""A run while it goes on as HTML, for a notebook and for a page of Dask's dashboard.

Everything of the trace is escaped, and nothing needs a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dasfprof.analysis.live.state import FunctionProgress, LongTask, RunState, WorkerState
from dasfprof.report.live_words import (
    counts_in_words,
    pace_in_words,
    rate,
    share_in_words,
    state_in_words,
)
from dasfprof.text import count_of, elide, escape, format_duration, format_size

_MOST_ROWS, _MOST_LONG = 60, 10
_LONGEST = 300
_BAR = "height:.7em;border-radius:2px;overflow:hidden;background:#8883;min-width:8em;display:flex"
_CELL = "padding:.1em .8em .1em 0;text-align:{};white-space:nowrap"
#: Share of its limit beyond which a worker's memory is near Dask's pause.
_FULL = 0.8
_SILENT = 10.0


def state_html(state: RunState) -> str:
    """Write a state as HTML."""
    parts = [
        f"<p><b>{_text(state.run)}</b> {_text(state_in_words(state))}<br>",
        _text(", ".join([counts_in_words(state), *pace_in_words(state)])),
    ]
    if state.threads is not None and state.busy is not None:
        parts.append(f", {state.busy} of {count_of(state.threads, 'thread')} busy")
    parts.append("</p>")
    if state.total:
        bar = _bar(state.done, state.failed, state.total)
        parts.append(f'<div style="max-width:40em">{bar}</div><p>{share_in_words(state)}</p>')
    parts += [*_functions(state.functions), *_workers(state.workers), *_long(state.long_tasks)]
    parts += [f"<p><small>{_text(note)}</small></p>" for note in state.notes]
    return f'<div style="line-height:1.4">{"".join(parts)}</div>'


def _functions(rows: Sequence[FunctionProgress]) -> Iterator[str]:
    if not rows:
        yield "<p>No task has ended yet.</p>"
        return
    counted = any(row.total is not None for row in rows)
    labels = ["On workers", "Waiting", "Total"] if counted else []
    yield from _table(
        ["Step", "Function", "", "Done", "Failed", *labels, "Rate", "Mean"],
        3,
        (
            [
                _text(row.step or ""),
                _text(row.function),
                _bar(row.done, row.failed, row.total or 0) if counted else "",
                f"{row.done:,}",
                _some(row.failed),
                *(_some(x) for x in (row.on_workers, row.waiting, row.total) if counted),
                f"{rate(row.rate)}/s" if row.rate else "",
                "" if row.mean_seconds is None else format_duration(row.mean_seconds),
            ]
            for row in rows[:_MOST_ROWS]
        ),
    )
    if len(rows) > _MOST_ROWS:
        yield f"<p>and {count_of(len(rows) - _MOST_ROWS, 'function')} more</p>"


def _workers(workers: Sequence[WorkerState]) -> Iterator[str]:
    if not workers:
        return
    yield from _table(
        ["Worker", "Host", "Status", "", "Busy", "Open tasks", "Memory"],
        4,
        (
            [
                _text(worker.name),
                _text(worker.host),
                _text(_status(worker)),
                _memory_bar(worker),
                "" if worker.busy is None else f"{worker.busy} of {worker.threads or '?'}",
                _some(worker.open_tasks),
                _memory(worker),
            ]
            for worker in workers[:_MOST_ROWS]
        ),
    )
    if len(workers) > _MOST_ROWS:
        yield f"<p>and {count_of(len(workers) - _MOST_ROWS, 'worker')} more</p>"


def _long(tasks: Sequence[LongTask]) -> Iterator[str]:
    if not tasks:
        return
    yield "<p><b>Tasks that run unusually long</b></p>"
    yield from _table(
        ["Task", "Worker", "State", "Line", "Waits for", "Since", "Median"],
        5,
        (
            [
                *(_text(x or "") for x in (task.key, task.worker, task.state)),
                *(_text(x or "") for x in (task.line, task.waits)),
                format_duration(task.seconds),
                "" if task.median_seconds is None else format_duration(task.median_seconds),
            ]
            for task in tasks[:_MOST_LONG]
        ),
    )


def _table(labels: Sequence[str], texts: int, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Write a table of cells in HTML, of which the first columns are texts."""
    styles = [_CELL.format("left" if place < texts else "right") for place in range(len(labels))]
    yield '<table style="border-collapse:collapse;margin:.6em 0"><tr>'
    for label, style in zip(labels, styles, strict=True):
        yield f'<th style="{style};font-weight:normal;opacity:.7">{label}</th>'
    yield "</tr>"
    for row in rows:
        cells = (f'<td style="{s}">{cell}</td>' for s, cell in zip(styles, row, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table>"


def _bar(done: float, failed: float, total: float, colour: str = "#2e7d32") -> str:
    shares = [part / max(total, done + failed, 1e-9) * 100 for part in (done, failed)]
    parts = "".join(
        f'<div style="width:{share:.2f}%;background:{shade};height:100%"></div>'
        for share, shade in zip(shares, (colour, "#b3261e"), strict=True)
    )
    return f'<div style="{_BAR}">{parts}</div>'


def _memory_bar(worker: WorkerState) -> str:
    if worker.memory is None or not worker.memory_limit:
        return ""
    share = min(worker.memory / worker.memory_limit, 1.0)
    return _bar(share, 0, 1.0, "#b3261e" if share >= _FULL else "#00629d")


def _memory(worker: WorkerState) -> str:
    if worker.memory is None:
        return ""
    limit = f" of {format_size(worker.memory_limit)}" if worker.memory_limit else ""
    return format_size(worker.memory) + limit


def _status(worker: WorkerState) -> str:
    silent = worker.silent_for or 0.0
    told = f", silent for {format_duration(round(silent))}" if silent > _SILENT else ""
    return f"{worker.status or ''}{told}"


def _some(count: int | None) -> str:
    return f"{count:,}" if count else ""


def _text(text: object) -> str:
    return escape(elide(text, _LONGEST))
