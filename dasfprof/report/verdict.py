"""`verdict`: in two or three sentences, how a run went and what its time was spent on."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dasfprof.text import count_of, format_duration, format_share

#: The class that is always told of, and the share from which the largest others are.
_COMPUTING = "Computing"
_WORTH_TELLING, _MOST = 0.05, 3
_GRAVE = ("high", "medium")


def verdict(summary: dict[str, Any], accounting: pd.DataFrame, findings: pd.DataFrame) -> str:
    """Write how a run went: whether all ended well, what its threads did, what is at stake.

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
        return "No task ran."
    sentences = []
    if unfinished:
        sentences.append(f"{count_of(unfinished, 'task')} had not ended.")
    if failed:
        sentences.append(f"{failed:,} of {count_of(tasks, 'task run')} failed.")
    sentences.append(f"{_length(summary)}{_classes(accounting)}.")
    return " ".join([*sentences, *_at_stake(summary, findings)])


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


def _at_stake(summary: dict[str, Any], findings: pd.DataFrame) -> list[str]:
    """Say what the gravest finding might save. Of a run that did not end nothing tells that."""
    grave = findings[findings["Severity"].isin(_GRAVE) & findings["Cause"].isna()]
    known = grave["Seconds at stake (s)"].dropna()
    if summary["unfinished"] or not len(known):
        return []
    number = findings.index.tolist().index(known.index[0]) + 1
    which = "The first finding" if number == 1 else f"Finding {number}"
    return [f"{which} is about {format_duration(float(known.iloc[0]))} of it."]
