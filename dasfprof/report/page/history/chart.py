"""`runs_chart`: the figures of a pipeline's runs, one panel beneath the other, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.history.over_time import GOES_ON, NOT_ENDED
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
    height = panels[-1].bottom + _BOTTOM
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(_title(runs, panels))}">',
        *_marks(runs, panels[-1].bottom),
        *(part for panel in panels for part in _draw(panel, runs)),
        *_dates(runs, height - 6),
        "</svg>",
    ]
    return "".join(parts)


def constant_values(runs: Sequence[ChartedRun], measures: Sequence[Measure]) -> list[str]:
    """Write what is equal for all runs, and so has no panel."""
    return [
        f"{measure.title}: {measure.write(runs[0].values[place])} in each run"
        for place, measure in enumerate(measures)
        if place and not _differs(runs, measure, place) and np.isfinite(runs[0].values[place])
    ]


def _differs(runs: Sequence[ChartedRun], measure: Measure, place: int) -> bool:
    values = [run.values[place] for run in runs]
    return len({measure.write(value) for value in values if np.isfinite(value)}) > 1


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


def _title(runs: Sequence[ChartedRun], panels: Sequence[_Panel]) -> str:
    titles = ", ".join(panel.measure.title for panel in panels)
    return f"{titles} of {count_of(len(runs), 'run')}"


def _round_up(value: float) -> float:
    if not value > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 1.5, 2, 3, 5, 7, 10) if step * power >= value))


def _x(at: int, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at + 0.5) / count


def _draw(panel: _Panel, runs: Sequence[ChartedRun]) -> Iterator[str]:
    title = escape(panel.measure.title)
    yield f'<g class="panel" data-measure="{title}">'
    yield from _axis(panel)
    yield f'<text class="title" x="{_LEFT}" y="{panel.top - 8:.1f}">{title}</text>'
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


# --- The seconds of task runs by step or function, stacked, a run a column ------------------------

#: Names that have a colour of their own; all others share the next one.
_NAMED = 7
_REST = "all others"
_STACKED = 120


def stacked_chart(runs: Sequence[ChartedRun], seconds: Sequence[Mapping[str, float]]) -> str:
    """Draw what task runs took in each run, by name; empty of one run alone, or of nothing."""
    sums: dict[str, float] = {}
    for own in seconds:
        for name, each in own.items():
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
    height = panel.bottom + _BOTTOM
    legend = "".join(
        f'<li><i class="part-{at}"></i>{escape(elide(name, _LONGEST))}</li>'
        for at, name in enumerate(named)
    )
    label = f"{measure.title} of {count_of(len(runs), 'run')} by {', '.join(named)}"
    parts = [
        f'<svg class="chart stacked" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(label)}">',
        *_axis(panel),
        f'<text class="title" x="{_LEFT}" y="{panel.top - 8:.1f}">{measure.title}</text>',
        *_columns(panel, runs, named, layers),
        *_dates(runs, height - 6),
        f'</svg><ul class="legend">{legend}</ul>',
    ]
    return "".join(parts)


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
