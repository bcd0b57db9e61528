"""`write_history`: runs over time as an index page, which leads to their reports."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Hashable, Iterator
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from dasfprof.analysis.history.over_time import GOES_ON, NOT_ENDED
from dasfprof.report.formats import file_for
from dasfprof.report.page.document import asset, shell
from dasfprof.report.page.history.chart import (
    ChartedRun,
    Measure,
    constant_values,
    runs_chart,
    stacked_chart,
)
from dasfprof.text import count_of, escape, format_duration

_TITLE = "Runs over time"
_NUMBERS = ("Wall Time (s)", "Efficiency (%)", "Task Runs", "Failed")
_LEFT_OUT = ("Pipeline", "Directory")
#: The columns that the chart shows.
_MEASURES = {
    "Wall Time (s)": Measure("Wall time", format_duration, height=136, highest=0.0),
    "Efficiency (%)": Measure("Efficiency", lambda value: f"{value:,.0f} %", highest=100.0),
    "Task Runs": Measure("Task runs", lambda value: f"{value:,.0f}"),
    "Failed": Measure("Failed task runs", lambda value: f"{value:,.0f}"),
    "Findings": Measure("Findings of severity high", lambda value: f"{value:,.0f}"),
}
#: Runs of a side of a comparison.
_MOST_COMPARED = 3
_HIGH = re.compile(r"([0-9]+) high")


def write_history(runs: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write runs over time as one HTML file; an existing file is replaced.

    The page is a chart and a table of each pipeline. It has no script and forbids itself the
    network. A run's name is a link where there is its report: a file of the run's name and
    ``.html``, as `dasfprof report` writes it, beside the run's files or beside the page.

    Parameters
    ----------
    runs
        What `dasfprof.history` returns.
    path
        The file to write.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    pipelines = list(pipelines_of(runs))
    counts = f"{count_of(len(runs), 'run')} of {count_of(len(pipelines), 'pipeline')}"
    contents = {
        "title": _TITLE,
        "subtitle": counts,
        "sections": "".join(_section(name, own, path) for name, own in pipelines),
    }
    template = asset("history/history.html")
    body = re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: contents[mark[1]], template)
    head, tail = shell(_TITLE)
    path.write_text(f"{head}{body}{tail}", encoding="utf-8")
    return path


def pipelines_of(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Divide what `dasfprof.history` returns where the pipeline changes."""
    names = runs["Pipeline"]
    numbers = (names != names.shift()).cumsum()
    seconds = runs.attrs.get("seconds")
    for _, own in runs.groupby(numbers, sort=True):
        part = own.reset_index(drop=True)
        part.attrs["seconds"] = seconds and [seconds[at] for at in own.index]
        yield str(own["Pipeline"].iloc[0]), part


def _section(name: str, runs: pd.DataFrame, page: Path) -> str:
    rows = runs.to_dict("records")
    links = [_report_of(row, page) for row in rows]
    versions = [str(row["Versions"]) for row in rows]
    charted = [
        ChartedRun(
            name=str(row["Run"]),
            began=_date(row),
            values=[_measured(label, row) for label in _MEASURES],
            change=": ".join(filter(None, (row["Change"], row["What Changed"]))),
            versions=_new_versions(before, now),
            link=link,
        )
        for row, link, before, now in zip(
            rows, links, [versions[0], *versions], versions, strict=False
        )
    ]
    measures = list(_MEASURES.values())
    constant = "".join(f"<p>{escape(text)}.</p>" for text in constant_values(charted, measures))
    labels = [label for label in runs.columns if label not in _LEFT_OUT]
    for label in ("Change", "What Changed"):
        labels.insert(labels.index("Efficiency (%)"), labels.pop(labels.index(label)))
    head = "".join(f'<th scope="col"{_class(label)}>{escape(label)}</th>' for label in labels)
    # The newest first: that is what one looks for.
    newest_first = zip(rows[::-1], links[::-1], strict=True)
    body = "".join(_row(row, link, labels) for row, link in newest_first)
    return (
        f'<section><header class="section-head"><h2>{escape(name)}</h2>'
        f"<output>{count_of(len(runs), 'run')}</output></header>{runs_chart(charted, measures)}"
        f"{stacked_chart(charted, runs.attrs['seconds'] or [])}"
        f'{_comparisons(rows)}<div class="constant">{constant}</div>'
        f'<div class="scrolled" tabindex="0" role="group" aria-label="Runs of {escape(name)}">'
        f'<table class="runs"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></section>\n"
    )


def _comparisons(rows: list[dict[Hashable, object]]) -> str:
    """Write the commands that compare the runs before each change of the wall time and after it."""
    items = []
    for at, row in enumerate(rows):
        if not str(row["Change"]).endswith(("slower", "faster")):
            continue
        before, after = _beside(rows[:at][::-1])[::-1], _beside([row, *rows[at + 1 :]], row)
        sides = [" ".join(map(shlex.quote, side)) for side in (before, after)]
        command = f"dasfprof compare {sides[0]} -- {sides[1]} --html compared.html"
        words = f"{row['Run']}: {row['Change']}. What made the difference:"
        items.append(f"<li>{escape(words)} <code>{escape(command)}</code></li>")
    return f'<ul class="comparisons">{"".join(items)}</ul>' if items else ""


def _beside(
    rows: list[dict[Hashable, object]], first: dict[Hashable, object] | None = None
) -> list[str]:
    """Return the nearest runs, up to the next change of any kind, as commands take them."""
    found: list[str] = []
    for row in rows:
        if row["Change"] == NOT_ENDED or str(row["Change"]).startswith(GOES_ON):
            continue
        if first is not None and row is not first and row["Change"]:
            break
        found.append(str(Path(str(row["Directory"]), str(row["Run"]))))
        if len(found) == _MOST_COMPARED or (first is None and row["Change"]):
            break
    return found


def _measured(label: str, row: dict[Hashable, object]) -> float:
    value = row[label]
    if label == "Findings":
        high = _HIGH.search(str(value))
        return float(high[1]) if high else 0.0
    return float(value)  # type: ignore[arg-type]  # a number, as the column's


def _new_versions(before: str, now: str) -> str:
    """Say which packages have another version than in the run before."""
    old, new = (
        dict(text.rsplit(" ", 1) for text in texts.split(", ") if text) for texts in (before, now)
    )
    return ", ".join(
        f"{name} {old[name]} → {version}"
        for name, version in new.items()
        if old.get(name, version) != version
    )


def _row(row: dict[Hashable, object], link: str, labels: list[str]) -> str:
    cells = []
    for label in labels:
        text = escape(_cell(label, row))
        if label == "Run" and link:
            text = f'<a href="{escape(link)}">{text}</a>'
        cells.append(f"<td{_class(label)}>{text}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _cell(label: str, row: dict[Hashable, object]) -> str:
    value = row[label]
    if label == "Began (UTC)":
        return _date(row)
    if pd.isna(value):  # type: ignore[call-overload]
        return "NA"
    if isinstance(value, float):
        return f"{value:,.1f}" if label.endswith("(%)") else f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _class(label: str) -> str:
    return ' class="number"' if label in _NUMBERS else ""


def _date(row: dict[Hashable, object]) -> str:
    began = row["Began (UTC)"]
    return f"{began:%Y-%m-%d %H:%M:%S}" if isinstance(began, pd.Timestamp) else "unknown"


def _report_of(row: dict[Hashable, object], page: Path) -> str:
    """Return the address of a run's report, relative to the page; empty: there is none."""
    name = file_for(str(row["Run"]), ".html")
    for place in (Path(str(row["Directory"])), page.parent):
        if (place / name).is_file():
            relative = os.path.relpath(place / name, page.parent)
            return "./" + quote(Path(relative).as_posix())
    return ""
