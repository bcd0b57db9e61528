"""`write_history`: runs over time as an index page, which leads to their reports."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd

from dasfprof.analysis.history.over_time import GOES_ON, NOT_ENDED
from dasfprof.report.formats import file_for
from dasfprof.report.page.document import asset, filled, shell
from dasfprof.text import count_of, elide, escape, format_duration

_WIDTH = 1000
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 30, 24
#: Between two panels: the title of the lower one.
_GAP = 26
#: The least distance of the names of two changes, and their longest text.
_APART, _LONGEST = 270, 44


@dataclass(frozen=True)
class Measure:
    """A figure of runs that has a panel."""

    title: str
    #: Writes a value with its unit.
    write: Callable[[float], str]
    height: int = 56
    #: Its panel ends here at the least.
    highest: float = 1.0


@dataclass(frozen=True)
class ChartedRun:
    """A run of the chart."""

    name: str
    began: str
    #: One for each measure; NaN: unknown.
    values: Sequence[float]
    #: What `history` says of it.
    change: str
    #: The packages whose version is not that of the run before, with both.
    versions: str = ""
    #: Where its report is; empty: there is none.
    link: str = ""

    @property
    def ended(self) -> bool:
        """Whether its work ended."""
        return not self.change.startswith((NOT_ENDED, GOES_ON))

    @property
    def marked(self) -> str:
        """What stands at a line before the run; empty: there is no line."""
        return "; ".join(text for text in (self.change * self.ended, self.versions) if text)


@dataclass(frozen=True)
class _Panel:
    measure: Measure
    place: int
    #: Of the SVG, from above.
    top: float
    highest: float

    @property
    def bottom(self) -> float:
        return self.top + self.measure.height

    def y(self, value: float) -> float:
        return self.bottom - self.measure.height * value / self.highest


def runs_chart(runs: Sequence[ChartedRun], measures: Sequence[Measure]) -> str:
    """Draw measures of runs, the oldest first; changes and new versions are marked in words.

    Runs stand side by side, however long ago they were. Those that did not end are crosses and in
    no line. The first measure always has a panel; others only where runs differ in them.
    """
    panels = _panels(runs, measures)
    titles = ", ".join(panel.measure.title for panel in panels)
    label, bottom = f"{titles} of {count_of(len(runs), 'run')}", panels[-1].bottom
    drawn = (part for panel in panels for part in _draw(panel, runs))
    return _svg("chart", label, bottom, runs, [*_marks(runs, bottom), *drawn])


def _svg(
    kind: str, label: str, bottom: float, runs: Sequence[ChartedRun], parts: Iterable[str]
) -> str:
    """Return a picture of what is drawn down to the bottom, with the dates of runs below."""
    height = bottom + _BOTTOM
    return (
        f'<svg class="{kind}" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(label)}">{"".join([*parts, *_dates(runs, height - 6)])}</svg>'
    )


def constant_values(runs: Sequence[ChartedRun], measures: Sequence[Measure]) -> list[str]:
    """Write what is equal for all runs, and so has no panel."""
    return [
        f"{measure.title}: {measure.write(runs[0].values[place])} in each run"
        for place, measure in enumerate(measures)
        if place and not _differs(runs, measure, place) and np.isfinite(runs[0].values[place])
    ]


def _differs(runs: Sequence[ChartedRun], measure: Measure, place: int) -> bool:
    known = (run.values[place] for run in runs if np.isfinite(run.values[place]))
    return len(set(map(measure.write, known))) > 1


def _panels(runs: Sequence[ChartedRun], measures: Sequence[Measure]) -> list[_Panel]:
    panels: list[_Panel] = []
    for place, measure in enumerate(measures):
        if place and not _differs(runs, measure, place):
            continue
        known = [run.values[place] for run in runs if np.isfinite(run.values[place])]
        highest = _round_up(max([*known, measure.highest]))
        top = panels[-1].bottom + _GAP if panels else _TOP
        panels.append(_Panel(measure, place, top, highest))
    return panels


def _round_up(value: float) -> float:
    if not value > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 1.5, 2, 3, 5, 7, 10) if step * power >= value))


def _x(at: int, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at + 0.5) / count


def _draw(panel: _Panel, runs: Sequence[ChartedRun]) -> Iterator[str]:
    yield f'<g class="panel" data-measure="{escape(panel.measure.title)}">'
    yield from _axis(panel)
    yield from _line(panel, runs)
    for at, run in enumerate(runs):
        yield _point(panel, run, _x(at, len(runs)))
    yield "</g>"


def _axis(panel: _Panel) -> Iterator[str]:
    shares = (0.0, 0.5, 1.0) if panel.measure.height > 100 else (0.0, 1.0)
    for share in shares:
        y = panel.y(share * panel.highest)
        yield f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        text = escape(panel.measure.write(share * panel.highest))
        yield f'<text class="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{text}</text>'
    title = escape(panel.measure.title)
    yield f'<text class="title" x="{_LEFT}" y="{panel.top - 8:.1f}">{title}</text>'


def _marks(runs: Sequence[ChartedRun], bottom: float) -> Iterator[str]:
    """Draw a line before each change, and its words where there is room for them."""
    free = 190.0  # after the title of the first panel
    for at, run in enumerate(runs):
        if not run.marked:
            continue
        x = _x(at, len(runs)) - (_WIDTH - _LEFT - _RIGHT) / len(runs) / 2
        kind = next((word for word in ("slower", "faster") if word in run.change), "other")
        yield f'<g class="change {kind}"><title>{escape(f"{run.name}: {run.marked}")}</title>'
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{bottom:.1f}"/>'
        right = x > _WIDTH - _APART - _RIGHT
        begin = x - _APART if right else x
        if begin >= free:
            words = escape(elide(run.marked, _LONGEST))
            side, at_x = ("end", x - 4) if right else ("", x + 4)
            yield f'<text class="{side}" x="{at_x:.1f}" y="{_TOP - 12}">{words}</text>'
            free = begin + _APART
        yield "</g>"


def _line(panel: _Panel, runs: Sequence[ChartedRun]) -> Iterator[str]:
    points = [
        f"{_x(at, len(runs)):.1f},{panel.y(run.values[panel.place]):.1f}"
        for at, run in enumerate(runs)
        if run.ended and np.isfinite(run.values[panel.place])
    ]
    if len(points) > 1:
        yield f'<polyline points="{" ".join(points)}"/>'


def _point(panel: _Panel, run: ChartedRun, x: float) -> str:
    value = run.values[panel.place]
    known = bool(np.isfinite(value))
    # What is unknown stands beneath the axis, not at 0.
    y = panel.y(value) if known else panel.bottom + 9
    words = f"{run.name}, {run.began}: {panel.measure.write(value) if known else 'unknown'}"
    title = f"<title>{escape(words if run.ended else f'{words}, {run.change}')}</title>"
    if run.ended and known:
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
    else:
        cross = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
        shape = f'<path class="unended" d="{cross}">{title}</path>'
    return f'<a href="{escape(run.link)}">{shape}</a>' if run.link else shape


def _dates(runs: Sequence[ChartedRun], y: float) -> Iterator[str]:
    yield f'<text x="{_LEFT}" y="{y:.0f}">{escape(runs[0].began)}</text>'
    if len(runs) > 1:
        text = escape(runs[-1].began)
        yield f'<text class="end" x="{_WIDTH - _RIGHT}" y="{y:.0f}">{text}</text>'


#: Names that have a colour of their own; all others share the next one.
_NAMED = 7
_REST = "all others"
_STACKED = 120


def stacked_chart(runs: Sequence[ChartedRun], seconds: Sequence[Mapping[str, float]]) -> str:
    """Draw the seconds of task runs by name, stacked, a run a column; empty of one run alone."""
    sums: dict[str, float] = {}  # pandas cannot hash names with lone surrogates
    for name, each in (item for own in seconds for item in own.items()):
        sums[name] = sums.get(name, 0.0) + each
    if len(runs) < 2 or not any(sums.values()):
        return ""
    names = sorted(sums, key=lambda name: -sums[name])
    named = names[:_NAMED] if len(names) > _NAMED + 1 else names[: _NAMED + 1]
    layers = [[own.get(name, 0.0) for own in seconds] for name in named]
    if len(named) < len(names):
        others = set(names) - set(named)
        layers.append([sum(own.get(name, 0.0) for name in others) for own in seconds])
        named.append(_REST)
    measure = Measure("Time in task runs", format_duration, _STACKED)
    panel = _Panel(measure, 0, _TOP, _round_up(max(map(sum, zip(*layers, strict=True)))))
    legend = "".join(
        f'<li><i class="part-{at}"></i>{escape(elide(name, _LONGEST))}</li>'
        for at, name in enumerate(named)
    )
    label = f"{measure.title} of {count_of(len(runs), 'run')} by {', '.join(named)}"
    parts = [*_axis(panel), *_columns(panel, runs, named, layers)]
    drawn = _svg("chart stacked", label, panel.bottom, runs, parts)
    return f'{drawn}<ul class="legend">{legend}</ul>'


def _columns(
    panel: _Panel, runs: Sequence[ChartedRun], names: list[str], layers: list[list[float]]
) -> Iterator[str]:
    wide = min(0.7 * (_WIDTH - _LEFT - _RIGHT) / len(runs), 40.0)
    for at, run in enumerate(runs):
        below = 0.0
        for place, name in enumerate(names):
            own = layers[place][at]
            if own > 0:
                y, x = panel.y(below + own), _x(at, len(runs)) - wide / 2
                words = escape(f"{run.name}: {name} {format_duration(own)}")
                yield (
                    f'<rect class="part-{place}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" '
                    f'height="{panel.y(below) - y:.1f}"><title>{words}</title></rect>'
                )
            below += own


# --- write_history: runs over time as an index page, which leads to their reports -----------------


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
    head, tail = shell(_TITLE)
    path.write_text(f"{head}{filled(asset('history.html'), contents)}{tail}", encoding="utf-8")
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
    cells = {label: escape(_cell(label, row)) for label in labels}
    if link:
        cells["Run"] = f'<a href="{escape(link)}">{cells["Run"]}</a>'
    told = (f"<td{_class(label)}>{text}</td>" for label, text in cells.items())
    return f"<tr>{''.join(told)}</tr>"


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
