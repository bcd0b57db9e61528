"""`wall_time_chart`: the wall times of a pipeline's runs as a picture in SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dasfprof.text import elide, escape, format_duration

_WIDTH, _HEIGHT = 1000, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 30, 24
#: The least distance of the names of two changes, and their longest text.
_APART, _LONGEST = 90, 24
NOT_ENDED = "did not end"


@dataclass(frozen=True)
class ChartedRun:
    """A run of the chart."""

    name: str
    began: str
    #: NaN: unknown.
    seconds: float
    #: What `history` says of it.
    change: str
    #: Where its report is; empty: there is none.
    link: str = ""


def wall_time_chart(runs: Sequence[ChartedRun]) -> str:
    """Draw the wall times of runs, the oldest first; changes are marked with their words.

    Runs stand side by side, however long ago they were. Those that did not end are crosses and in
    no line.
    """
    known = [run.seconds for run in runs if np.isfinite(run.seconds)]
    highest = _round_up(max(known, default=0.0))
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Wall time of {len(runs)} runs">',
        *_axis(highest),
        *_marks(runs),
        *_line(runs, highest),
        *(_point(run, _x(at, len(runs)), highest) for at, run in enumerate(runs)),
        *_dates(runs),
        "</svg>",
    ]
    return "".join(parts)


def _round_up(seconds: float) -> float:
    if not seconds > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(seconds))
    return float(next(step * power for step in (1, 1.5, 2, 3, 5, 7, 10) if step * power >= seconds))


def _x(at: int, count: int) -> float:
    room = _WIDTH - _LEFT - _RIGHT
    return _LEFT + room * (at + 0.5) / count


def _y(seconds: float, highest: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * seconds / highest


def _axis(highest: float) -> Iterator[str]:
    for share in (0.0, 0.5, 1.0):
        y = _y(share * highest, highest)
        yield f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        text = format_duration(share * highest)
        yield f'<text class="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{escape(text)}</text>'


def _marks(runs: Sequence[ChartedRun]) -> Iterator[str]:
    """Draw a line before each change, and its words where there is room for them."""
    free = 0.0
    for at, run in enumerate(runs):
        if not run.change or run.change == NOT_ENDED:
            continue
        x = _x(at, len(runs)) - (_WIDTH - _LEFT - _RIGHT) / len(runs) / 2
        kind = next((word for word in ("slower", "faster") if word in run.change), "other")
        yield f'<g class="change {kind}"><title>{escape(f"{run.name}: {run.change}")}</title>'
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{_HEIGHT - _BOTTOM}"/>'
        if x >= free:
            words = escape(elide(run.change, _LONGEST))
            side, at_x = ("end", x - 4) if x > _WIDTH - _APART - _RIGHT else ("", x + 4)
            yield f'<text class="{side}" x="{at_x:.1f}" y="{_TOP - 12}">{words}</text>'
            free = x + _APART
        yield "</g>"


def _line(runs: Sequence[ChartedRun], highest: float) -> Iterator[str]:
    points = [
        f"{_x(at, len(runs)):.1f},{_y(run.seconds, highest):.1f}"
        for at, run in enumerate(runs)
        if np.isfinite(run.seconds) and run.change != NOT_ENDED
    ]
    if len(points) > 1:
        yield f'<polyline points="{" ".join(points)}"/>'


def _point(run: ChartedRun, x: float, highest: float) -> str:
    ended = run.change != NOT_ENDED
    # What is unknown stands beneath the axis, not at 0.
    y = _y(run.seconds, highest) if np.isfinite(run.seconds) else _HEIGHT - _BOTTOM + 9
    words = f"{run.name}, {run.began}: {format_duration(run.seconds)}"
    title = f"<title>{escape(words if ended else f'{words}, {NOT_ENDED}')}</title>"
    if ended and np.isfinite(run.seconds):
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
    else:
        cross = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
        shape = f'<path class="unended" d="{cross}">{title}</path>'
    return f'<a href="{escape(run.link)}">{shape}</a>' if run.link else shape


def _dates(runs: Sequence[ChartedRun]) -> Iterator[str]:
    y = _HEIGHT - 6
    yield f'<text x="{_LEFT}" y="{y}">{escape(runs[0].began)}</text>'
    if len(runs) > 1:
        text = escape(runs[-1].began)
        yield f'<text class="end" x="{_WIDTH - _RIGHT}" y="{y}">{text}</text>'
