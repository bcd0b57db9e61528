"""Key figures of a run: `summarise`, and the same in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import Trace
from dasfprof.text import clean, count_of, format_date, format_duration, format_share

#: Most names of events that are listed.
_MOST_NAMES = 8


def title_of(trace: Trace, default: str = "Dask run") -> str:
    """Return the run's name; `default` where the files name none, or several."""
    return trace.run or default


def summarise(trace: Trace) -> dict[str, Any]:
    """Sum up a run: what ran, when, on what, for how long, and how well threads were used.

    Returns
    -------
    dict
        ``begin`` (Unix seconds), ``seconds``, ``tasks``, ``functions``, ``failed``, ``hosts``,
        ``workers``, ``threads``, ``compute`` (seconds in tasks, of all threads), ``capacity``
        (seconds that threads were there), ``cpu`` (CPU seconds in tasks), ``moved`` (bytes
        between workers), ``results`` (bytes of all results), ``events`` (of user code, the number
        by name). None: unknown.
    """
    tasks, workers = trace.tasks, trace.workers[trace.workers["kind"] == "worker"]
    ends = np.minimum(workers["last_seen"], workers["left"].fillna(np.inf))
    lives = (ends - workers["first_seen"]).clip(lower=0)
    capacity = float((lives * workers["nthreads"].astype(float)).sum(min_count=1))
    arrived = trace.transfers[trace.transfers["state"] == "success"]
    return {
        "begin": _known(trace.begin),
        "seconds": _known(trace.end - trace.begin),
        "tasks": len(tasks),
        "functions": int(tasks["function"].nunique()),
        "failed": int((tasks["state"] == "erred").sum()),
        "hosts": sorted({str(host) for host in workers["host"] if host}),
        "workers": int(workers[["host", "worker"]].drop_duplicates().shape[0]),
        "threads": _known(workers.drop_duplicates(["host", "worker"])["nthreads"].sum(min_count=1)),
        "compute": float(tasks["duration"].sum()),
        "capacity": _known(capacity),
        "cpu": _known(tasks["cpu"].sum(min_count=1)),
        "moved": _known(arrived["size"].sum()) if len(trace.transfers) else None,
        "results": _known(tasks["size"].sum(min_count=1)),
        "events": {str(name): int(n) for name, n in trace.events["name"].value_counts().items()},
    }


def when(facts: dict[str, Any]) -> str:
    """Write when a run was and how long it took; empty if that is unknown."""
    if facts["begin"] is None or facts["seconds"] is None:
        return ""
    return f"{format_date(facts['begin'])} UTC, {format_duration(facts['seconds'])}"


def in_words(facts: dict[str, Any]) -> str:
    """Write what a run computed, and on what, in a sentence or two."""
    used = ""
    if facts["capacity"]:
        share = format_share(facts["compute"] / facts["capacity"])
        used = f" Tasks held {share} of the threads' time."
    failed = f", {facts['failed']:,} failed" if facts["failed"] else ""
    threads = f", {count_of(facts['threads'], 'thread')}," if facts["threads"] else ""
    runs = f"{count_of(facts['tasks'], 'task run')} of {count_of(facts['functions'], 'function')}"
    events = _events_in_words(facts["events"])
    if events and not facts["tasks"]:
        return f"No task runs. {events}"
    return (
        f"{runs}{failed}, on {count_of(facts['workers'], 'worker')}{threads} of "
        f"{count_of(len(facts['hosts']), 'host')}.{used}"
        f"{' ' if events else ''}{events}"
    )


def _events_in_words(counts: dict[str, int]) -> str:
    """Write how many events user code recorded, by name; empty if none."""
    if not counts:
        return ""
    named = [f"{clean(name)} {count:,}" for name, count in list(counts.items())[:_MOST_NAMES]]
    more = f" and {len(counts) - _MOST_NAMES} more names" if len(counts) > _MOST_NAMES else ""
    return f"{count_of(sum(counts.values()), 'event')} of user code: {', '.join(named)}{more}."


def _known(number: Any) -> float | None:
    return None if pd.isna(number) else float(number)
