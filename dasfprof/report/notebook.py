"""A run as a notebook shows it: what ran and what is wrong with it, in HTML and in plain text.

Colours come with a background of their own, so that both themes can show them. Nothing needs a
script: a notebook that is not trusted, or is looked at on a web site, shows all but the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dasfprof.report.run_summary import in_words, no_findings, start_in_words, summarise, when
from dasfprof.text import count_of, elide, escape, format_duration

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import Trace, TraceAnalyser

_COLOURS = {"high": "#b3261e", "medium": "#8a5a00", "low": "#00629d", "info": "#5c5f62"}
#: Findings and notes that are shown; characters of each.
_MOST, _LONGEST = 10, 700
#: The diagnosis of more task runs takes longer than a person expects of a name in a cell.
_MOST_TASKS = 50_000


def run_html(
    analyser: TraceAnalyser, findings: pd.DataFrame | None, title: str = "", *, folded: bool = False
) -> str:
    """Write a run's summary and findings as HTML in which nothing of the trace is markup.

    Parameters
    ----------
    analyser
        The run.
    findings
        The table of `TraceAnalyser.diagnose`; None if it was not computed.
    title
        Name of the run.
    folded
        Whether the findings are collapsed, as where the report below has them too.
    """
    facts = summarise(analyser.trace)
    begin = f"<b>{_text(title)}</b> " if title else ""
    start = start_in_words(facts)
    more = f"<br>{_text(start)}" if start else ""
    parts = [f"<p>{begin}{_text(when(facts))}<br>{_text(in_words(facts))}{more}</p>"]
    if findings is None:
        parts.append("<p>What is wrong with it? Ask <code>.diagnose()</code>.</p>")
    elif folded:
        label = f"{count_of(len(findings), 'finding')} in words"
        parts += [
            f"<details><summary>{label}</summary>",
            *_findings_html(findings, analyser.trace),
            "</details>",
        ]
    else:
        parts += _findings_html(findings, analyser.trace)
    notes = [note.text for note in analyser.trace.notes]
    if notes:
        items = "".join(f"<li>{_text(note)}</li>" for note in notes[:_MOST])
        label = f"{count_of(len(notes), 'note')} on missing data"
        parts.append(f"<details><summary>{label}</summary><ul>{items}</ul></details>")
    return f'<div style="line-height:1.4">{"".join(parts)}</div>'


def run_text(analyser: TraceAnalyser, findings: pd.DataFrame | None, title: str = "") -> str:
    """Write a run's summary and findings as text."""
    facts = summarise(analyser.trace)
    head = "  ".join(part for part in (elide(title, _LONGEST), when(facts)) if part)
    lines = [line for line in (head, in_words(facts), start_in_words(facts)) if line]
    if findings is not None and not len(findings):
        lines.append(no_findings(analyser.trace))
    for finding in _shown(findings):
        seconds = finding["Seconds at stake (s)"]
        at_stake = "" if math.isnan(seconds) else format_duration(seconds)
        lines.append(f"{finding['Severity']:<7}{at_stake:>11}  {_short(finding['Finding'])}")
        lines.append(f"{'':20}→ {_short(finding['Suggestion'])}")
    return "\n".join(lines)


def analyser_html(analyser: TraceAnalyser) -> str:
    """Write what a notebook shows for an analyser; never raises.

    The findings of a large run are left out: they take long to compute.
    """
    try:
        small = len(analyser.trace.tasks) <= _MOST_TASKS
        return run_html(analyser, analyser.diagnose() if small else None, analyser.trace.run or "")
    except Exception as error:
        return f"<p>{escape(type(error).__name__)}: {_text(error)}</p>"


def _findings_html(findings: pd.DataFrame, trace: Trace) -> Iterable[str]:
    if not len(findings):
        yield f"<p>{no_findings(trace)}</p>"
    for finding in _shown(findings):
        colour = _COLOURS.get(finding["Severity"], _COLOURS["info"])
        badge = f"background:{colour};color:#fff;border-radius:3px;padding:0 .5em"
        seconds = finding["Seconds at stake (s)"]
        at_stake = "" if math.isnan(seconds) else f"{format_duration(seconds)} at stake. "
        yield (
            f'<div style="margin:.4em 0"><span style="{badge}">{_text(finding["Severity"])}</span> '
            f"<b>{_text(finding['Finding'])}</b> {_text(at_stake)}"
            f"<br>→ {_text(finding['Suggestion'])}"
            f"<details><summary>Evidence</summary>{_text(finding['Evidence'])}</details></div>"
        )
    if len(findings) > _MOST:
        yield f"<p>And {len(findings) - _MOST} more: <code>.diagnose()</code> has them all.</p>"


def _shown(findings: pd.DataFrame | None) -> list[dict[Any, Any]]:
    return [] if findings is None else findings.head(_MOST).to_dict("records")


def _short(text: object) -> str:
    return elide(text, _LONGEST)


def _text(text: object) -> str:
    return escape(_short(text))
