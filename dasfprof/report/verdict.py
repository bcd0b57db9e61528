"""`verdict`: in a few sentences, how a run went, what to do, and what its time was spent on."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pandas as pd

from dasfprof.text import count_of, format_duration, format_share

#: The class that is always told of, and the share from which the largest others are.
_COMPUTING = "Computing"
_WORTH_TELLING, _MOST = 0.05, 3
#: Rules that tell of tasks that had not ended.
_OF_UNFINISHED = ("unfinished-run", "unfinished-tasks")


class Verdict(NamedTuple):
    """How a run went."""

    #: What failed, what is at stake, and what to do, in a few sentences.
    headline: str
    #: The run's length, its threads, and what took most of their time; empty if nothing ran.
    spent: str


def verdict(summary: dict[str, Any], accounting: pd.DataFrame, findings: pd.DataFrame) -> Verdict:
    """Write how a run went: whether all ended well, what to do, what its threads did.

    Parameters
    ----------
    summary
        See `summarise`.
    accounting
        What `TraceAnalyser.time_accounting` returns, of the whole cluster.
    findings
        What `TraceAnalyser.diagnose` returns.
    """
    tasks, failed, unfinished = (summary[name] for name in ("tasks", "failed", "unfinished"))
    if not tasks and not unfinished:
        return Verdict("No task ran.", "")
    first = str(findings["Rule"].iloc[0]) if len(findings) else ""
    sentences = []
    if unfinished and first not in _OF_UNFINISHED:
        sentences.append(f"{count_of(unfinished, 'task')} had not ended.")
    if failed and first != "errors":
        sentences.append(f"{failed:,} of {count_of(tasks, 'task run')} failed.")
    sentences += _to_do(summary, findings)
    return Verdict(
        " ".join(sentences or ["Nothing to change was found."]),
        f"{_length(summary)}{_classes(accounting)}.",
    )


def _length(summary: dict[str, Any]) -> str:
    seconds, threads = summary["seconds"], summary["threads"]
    length = "A run of unknown length" if seconds is None else format_duration(seconds)
    return f"{length} on {count_of(int(threads), 'thread')}" if threads else length


def _classes(accounting: pd.DataFrame) -> str:
    if not len(accounting):
        return ""
    shares = dict(zip(accounting["Class"], accounting["Share (%)"] / 100, strict=True))
    others = sorted((name for name in shares if name != _COMPUTING), key=lambda name: -shares[name])
    told = [name for name in others[:_MOST] if shares[name] >= _WORTH_TELLING]
    first = [_COMPUTING] if _COMPUTING in shares else []
    parts = [f"{format_share(shares[name])} {name.lower()}" for name in [*first, *told]]
    return f": {', '.join(parts)}" if parts else ""


def _to_do(summary: dict[str, Any], findings: pd.DataFrame) -> list[str]:
    """Say the first finding in short: what it may cost, what it is, what to change.

    What of the time of a run that did not end could have been saved, nothing tells.
    """
    if not len(findings):
        return []
    first = findings.iloc[0]
    stake, whole = first["Seconds at stake (s)"], summary["seconds"]
    told = [_beginning(str(first[name])) for name in ("Finding", "Suggestion")]
    if pd.isna(stake) or whole is None or summary["unfinished"]:
        return told
    # What the client does before the first task, or after the last, may take longer than the run.
    of = format_duration(whole) if stake <= whole else "the client's time"
    return [f"About {format_duration(float(stake))} of {of} is at stake.", *told]


def _beginning(text: str) -> str:
    """Return a text as far as its first full stop or colon, whichever ends a clause."""
    return re.split(r"[.:;](?=\s|$)", text, maxsplit=1)[0] + "."
