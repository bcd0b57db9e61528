"""What the head of a report says of a run: `summarise`, and the same in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.tables.time_accounting import CLASSES
from dasfprof.analysis.trace import Trace
from dasfprof.text import count_of, format_date

_NUMBER, _TEXT = "number", "text"
_SECONDS = "Thread Time (s)"
#: A table with more cells than this is left to CSV: nobody reads it in a page.
_MAX_CELLS = 300_000


def title_of(trace: Trace) -> str:
    """Call a run as its files do."""
    return trace.run or "Dask run"


def summarise(trace: Trace) -> dict[str, Any]:
    """Count what ran, when, on what, for how long and how well the threads were used.

    Returns
    -------
    dict
        ``begin`` (Unix seconds), ``seconds``, ``tasks``, ``functions``, ``failed``, ``hosts``,
        ``workers``, ``threads``, ``compute`` (seconds in tasks, of all threads), ``capacity``
        (seconds that threads were there), ``cpu`` (CPU seconds in tasks), ``moved`` (bytes
        between workers), ``results`` (bytes of all results). None: nothing tells.
    """
    tasks, workers = trace.tasks, trace.workers
    people = workers[workers["kind"] == "worker"]
    lives = np.minimum(people["last_seen"], people["left"].fillna(np.inf)) - people["first_seen"]
    capacity = float((lives.clip(lower=0) * people["nthreads"].astype(float)).sum(min_count=1))
    arrived = trace.transfers[trace.transfers["state"] == "success"]
    return {
        "begin": _known(trace.begin),
        "seconds": _known(trace.end - trace.begin),
        "tasks": len(tasks),
        "functions": int(tasks["function"].nunique()),
        "failed": int((tasks["state"] == "erred").sum()),
        "hosts": sorted({str(host) for host in people["host"] if host}),
        "workers": int(people[["host", "worker"]].drop_duplicates().shape[0]),
        "threads": _known(people.drop_duplicates(["host", "worker"])["nthreads"].sum(min_count=1)),
        "compute": float(tasks["duration"].sum()),
        "capacity": _known(capacity),
        "cpu": _known(tasks["cpu"].sum(min_count=1)),
        "moved": _known(arrived["size"].sum()) if len(trace.transfers) else None,
        "results": _known(tasks["size"].sum(min_count=1)),
    }


def when(facts: dict[str, Any]) -> str:
    """Say when the run of a summary was, and for how long; nothing if no file tells."""
    if facts["begin"] is None or facts["seconds"] is None:
        return ""
    return f"{format_date(facts['begin'])} UTC, {facts['seconds']:.1f} s"


def in_words(facts: dict[str, Any]) -> str:
    """Say what the run of a summary computed where, in a sentence or two."""
    used = ""
    if facts["capacity"]:
        used = f" Tasks held {facts['compute'] / facts['capacity']:.0%} of the threads' time."
    failed = f", {facts['failed']:,} failed" if facts["failed"] else ""
    threads = f", {count_of(facts['threads'], 'thread')}," if facts["threads"] else ""
    runs = f"{count_of(facts['tasks'], 'task run')} of {count_of(facts['functions'], 'function')}"
    return (
        f"{runs}{failed}, on {count_of(facts['workers'], 'worker')}{threads} of "
        f"{count_of(len(facts['hosts']), 'host')}.{used}"
    )


def sum_classes(accounting: pd.DataFrame) -> pd.DataFrame:
    """Sum the time accounting of workers up for all of them."""
    classes = accounting.drop(columns=["Host", "Worker", "Share (%)"])
    whole = classes.groupby(["Class", "Busy", "Meaning"], sort=False, as_index=False).sum()
    order = whole["Class"].map({label: place for place, (label, _) in enumerate(CLASSES.values())})
    whole = whole.take(np.argsort(order.to_numpy(), kind="stable")).reset_index(drop=True)
    return whole.assign(**{"Share (%)": whole[_SECONDS] / whole[_SECONDS].sum() * 100})


def table_facts(frame: pd.DataFrame) -> dict[str, Any]:
    """Give a table as the page takes it: ``columns`` of ``label, kind, values``; NA is None.

    One that is too large has ``absent``, the reason, instead.
    """
    if frame.size > _MAX_CELLS:
        return {
            "absent": f"{frame.shape[0]:,} rows of {frame.shape[1]:,} columns are too many for a "
            "page; `dasfprof analyse -o DIRECTORY` writes them as CSV"
        }
    return {"columns": [_column_facts(label, frame[label]) for label in frame.columns]}


def _column_facts(label: str, column: pd.Series[Any]) -> dict[str, Any]:
    numeric = pd.api.types.is_numeric_dtype(column.dtype)
    known = column.notna().to_numpy()
    if numeric:  # JSON has no infinite numbers
        known = np.isfinite(column.to_numpy(dtype=float, na_value=np.nan))
    values = column.astype(object).where(known, None).tolist()
    if not numeric:
        values = [None if value is None else str(value) for value in values]
    return {"label": str(label), "kind": _NUMBER if numeric else _TEXT, "values": values}


def _known(number: Any) -> float | None:
    return None if pd.isna(number) else float(number)
