"""`write_history`: writes runs over time as one HTML page."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.report.page.document import asset, filled, shell
from dasfprof.text import count_of, escape, format_duration

#: Size and margins of a chart.
_WIDTH, _HEIGHT = 1000, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 12, 166
_TITLE = "Runs over time"
_NUMBERS = ("Wall Time (s)", "Efficiency (%)", "Task Runs", "Failed")
_OMITTED = ("Pipeline", "Directory")

Row = dict[Hashable, Any]


def write_history(runs: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write runs over time as one HTML file. An existing file is replaced.

    The page has a chart and a table of each pipeline. It has no script and cannot access the
    network.

    Parameters
    ----------
    runs
        Table from `dasfprof.history`.
    path
        The file to write.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    pipelines = list(pipelines_of(runs))
    contents = {
        "title": _TITLE,
        "subtitle": f"{count_of(len(runs), 'run')} of {count_of(len(pipelines), 'pipeline')}",
        "sections": "".join(_section(*pipeline) for pipeline in pipelines),
    }
    head, tail = shell(_TITLE)
    path.write_text(f"{head}{filled(asset('history.html'), contents)}{tail}", encoding="utf-8")
    return path


def pipelines_of(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Yield the name, runs, and trend (a clause or an empty text) of each pipeline in a history."""
    start = 0
    for trend in runs.attrs["trends"]:
        members = runs.iloc[start : start + trend["Runs"]].reset_index(drop=True)
        start += trend["Runs"]
        clause = ""
        if trend["Trend"] in ("slower", "faster"):
            clause = f", {trend['Trend']} by {abs(trend['Slope (%)']):.1f} % per run"
            clause += f" (p = {trend['p-Value']:.2g}, {count_of(trend['Compared Runs'], 'run')})"
        elif trend["Trend"] == "none":
            clause = f", no trend (p = {trend['p-Value']:.2g})"
        yield str(trend["Pipeline"]), members, clause


def _section(name: str, runs: pd.DataFrame, trend: str) -> str:
    rows = runs.to_dict("records")
    labels = [label for label in runs.columns if label not in _OMITTED]
    head = "".join(f'<th scope="col"{_class(label)}>{escape(label)}</th>' for label in labels)
    body = "".join(_row(row, labels) for row in rows[::-1])
    return (
        f'<section><header class="section-head"><h2>{escape(name)}</h2>'
        f"<output>{count_of(len(runs), 'run')}{escape(trend)}</output></header>"
        f"{_chart(rows)}"
        f'<div class="scrolled" tabindex="0" role="group" aria-label="Runs of {escape(name)}">'
        f'<table class="runs"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></section>\n"
    )


def _chart(rows: list[Row]) -> str:
    """Return a chart of wall times, oldest run first. A cross marks a run that did not finish."""
    walls = [float(row["Wall Time (s)"]) for row in rows]
    highest = max((wall for wall in walls if np.isfinite(wall)), default=0.0) or 1.0
    drawn, line = [], []
    for share in (0.0, 0.5, 1.0):
        y = _BOTTOM - (_BOTTOM - _TOP) * share
        drawn.append(f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        text = escape(format_duration(share * highest))
        drawn.append(f'<text class="end" x="{_LEFT - 8}" y="{y + 4}">{text}</text>')
    for at, (row, wall) in enumerate(zip(rows, walls, strict=True)):
        known, ended = np.isfinite(wall), row["Change"] in ("", "other graph")
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at + 0.5) / len(rows)
        y = _BOTTOM - (_BOTTOM - _TOP) * (wall / highest if known else 0.0)
        facts = [_date(row), format_duration(wall) if known else "unknown", row["Change"]]
        title = f"<title>{escape(', '.join([str(row['Run']), *filter(None, facts)]))}</title>"
        if ended and known:
            line.append(f"{x:.1f},{y:.1f}")
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>')
        else:
            cross = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
            drawn.append(f'<path class="unended" d="{cross}">{title}</path>')
    dates = f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{escape(_date(rows[0]))}</text>'
    if len(rows) > 1:
        last = escape(_date(rows[-1]))
        dates += f'<text class="end" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}">{last}</text>'
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Wall time of {count_of(len(rows), "run")}">'
        f'<polyline points="{" ".join(line)}"/>{"".join(drawn)}{dates}</svg>'
    )


def _row(row: Row, labels: list[str]) -> str:
    cells = (f"<td{_class(label)}>{escape(_cell(label, row))}</td>" for label in labels)
    return f"<tr>{''.join(cells)}</tr>"


def _cell(label: str, row: Row) -> str:
    value = row[label]
    if label == "Began (UTC)":
        return _date(row)
    if isinstance(value, float):
        if np.isnan(value):
            return "NA"
        return f"{value:,.1f}" if label.endswith("(%)") else f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _class(label: str) -> str:
    return ' class="number"' if label in _NUMBERS else ""


def _date(row: Row) -> str:
    began = row["Began (UTC)"]
    return f"{began:%Y-%m-%d %H:%M:%S}" if isinstance(began, pd.Timestamp) else "unknown"
