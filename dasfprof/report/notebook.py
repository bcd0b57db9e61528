"""A run in a notebook: its summary and findings, as HTML and as plain text.

Coloured labels have white text, so that they suit light and dark themes. Only the embedded report
needs a script. A notebook that is not trusted, or that is shown on a web site, shows everything
except this report.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dasfprof.report.page.document import asset
from dasfprof.report.run_summary import in_words, no_findings, start_in_words, summarise, when
from dasfprof.text import count_of, elide, escape, format_duration

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import Analyser
    from dasfprof.analysis.run import Run

_COLOURS = {"high": "#b3261e", "medium": "#8a5a00", "low": "#00629d", "info": "#5c5f62"}
#: Maximum number of findings and of notes, and maximum number of characters of each.
_MOST, _LONGEST = 10, 700


def run_html(
    analyser: Analyser, findings: pd.DataFrame, title: str = "", *, folded: bool = False
) -> str:
    """Return a run's summary and findings as HTML, with all text of the trace escaped.

    Parameters
    ----------
    findings
        The table of `TraceAnalyser.diagnose`, or None if it was not computed.
    folded
        Whether the findings are collapsed, for example because the report below has them too.
    """
    facts = summarise(analyser.run)
    begin = f"<b>{_text(title)}</b> " if title else ""
    start = start_in_words(facts)
    more = f"<br>{_text(start)}" if start else ""
    parts = [f"<p>{begin}{_text(when(facts))}<br>{_text(in_words(facts))}{more}</p>"]
    listed = "".join(_findings_html(findings, analyser.run))
    label = count_of(len(findings), "finding")
    parts.append(f"<details><summary>{label}</summary>{listed}</details>" if folded else listed)
    notes = [note.text for note in analyser.trace.notes]
    if notes:
        items = "".join(f"<li>{_text(note)}</li>" for note in notes[:_MOST])
        label = f"{count_of(len(notes), 'note')} on missing data"
        parts.append(f"<details><summary>{label}</summary><ul>{items}</ul></details>")
    return f'<div style="line-height:1.4">{"".join(parts)}</div>'


def run_text(analyser: Analyser, findings: pd.DataFrame, title: str = "") -> str:
    """Return a run's summary and findings as text."""
    facts = summarise(analyser.run)
    head = "  ".join(part for part in (elide(title, _LONGEST), when(facts)) if part)
    lines = [line for line in (head, in_words(facts), start_in_words(facts)) if line]
    if not len(findings):
        lines.append(no_findings(analyser.run))
    for finding in _shown(findings):
        seconds = finding["Seconds at stake (s)"]
        at_stake = "" if math.isnan(seconds) else format_duration(seconds)
        lines.append(
            f"{finding['Severity']:<7}{at_stake:>11}  {elide(finding['Finding'], _LONGEST)}"
        )
        lines.append(f"{'':20}→ {elide(finding['Suggestion'], _LONGEST)}")
    return "\n".join(lines)


def _findings_html(findings: pd.DataFrame, run: Run) -> Iterable[str]:
    if not len(findings):
        yield f"<p>{no_findings(run)}</p>"
    for finding in _shown(findings):
        colour = _COLOURS.get(finding["Severity"], _COLOURS["info"])
        badge = f"background:{colour};color:#fff;border-radius:3px;padding:0 .5em"
        seconds = finding["Seconds at stake (s)"]
        at_stake = "" if math.isnan(seconds) else f"Potential savings: {format_duration(seconds)}. "
        yield (
            f'<div style="margin:.4em 0"><span style="{badge}">{_text(finding["Severity"])}</span> '
            f"<b>{_text(finding['Finding'])}</b> {_text(at_stake)}"
            f"<br>→ {_text(finding['Suggestion'])}"
            f"<details><summary>Evidence</summary>{_text(finding['Evidence'])}</details></div>"
        )
    if (left := len(findings) - len(_shown(findings))) > 0:
        yield f"<p>And {left} more, see <code>.diagnose()</code>.</p>"


def _shown(findings: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the first `_MOST` findings, or more if more are of high or medium severity."""
    severe = int(findings["Severity"].isin(["high", "medium"]).sum())
    return findings.head(max(_MOST, severe)).to_dict("records")


def _text(text: object) -> str:
    return escape(elide(text, _LONGEST))


#
# The frame is plain HTML that contains the page. JupyterLab, Notebook and VS Code all show it, and
# it cannot access the notebook or the network. The page reports its height, and a script next to
# the frame sets the frame's height. If scripts cannot run, as in a notebook that is not trusted,
# the frame keeps a height that shows the timeline.

_CHARSET = '<meta charset="utf-8">'
_STYLE = (
    "width:100%;box-sizing:content-box;border:1px solid #8888;border-radius:4px;resize:vertical"
)
#: Height of a frame in pixels, until its page reports its own height, and if there are no task
#: runs.
_HEIGHT, _EMPTY_HEIGHT = 1000, 360
_LONGEST_TITLE = 700


def frame_html(page: str, title: str, *, empty: bool = False) -> str:
    """Return a frame with a page, which can access neither the notebook nor the network.

    The frame may run the page's scripts, and save tables as files.

    Parameters
    ----------
    empty
        Whether the run has no task runs. The frame is then only as high as its contents.
    """
    height = _EMPTY_HEIGHT if empty else _HEIGHT
    # Without a base URL, links within the page would inherit the URL of the notebook.
    page = page.replace(_CHARSET, f'{_CHARSET}<base href="about:srcdoc">', 1)
    return (
        '<iframe class="dasfprof-report" sandbox="allow-scripts allow-downloads" '
        f'title="{escape(elide(title, _LONGEST_TITLE))}" style="height:{height}px;{_STYLE}" '
        f'srcdoc="{html.escape(page)}"></iframe>'
        f"<script>{asset('notebook.js')}</script>"
    )
