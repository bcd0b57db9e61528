"""`write_comparison`: two sides of runs as one HTML file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.report.page.document import write_document
from dasfprof.report.page.packing import PackedColumn, in_group, table_facts
from dasfprof.report.page.timeline.link_data import path_columns
from dasfprof.report.page.timeline.timeline_data import TimelineData
from dasfprof.text import count_of, elide

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis.comparison import Comparison
    from dasfprof.analysis.run import Run

#: The groups of columns that a timeline is drawn from; details of single task runs are left out.
_DRAWN = ("picture/", "path/", "keys/")
_LONGEST = 60


def write_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write a comparison as one HTML file; an existing file is replaced.

    The file holds the verdict, waterfalls, the timelines of the run of each side whose wall time
    is nearest to the median, and all tables. It forbids itself the network, and shows what the
    traces hold as text only.

    Parameters
    ----------
    comparison
        What `dasfprof.compare` returns.
    path
        The file to write.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    columns: dict[str, PackedColumn] = {}
    sides = {}
    for side, run in zip(("before", "after"), comparison.typical, strict=True):
        drawn, facts = _timeline(run.trace)
        columns |= {f"{side}-{name}": column for name, column in drawn.items()}
        sides[side] = {"name": run.name, "timeline": facts}
    before, after = (elide(run.name, _LONGEST) for run in comparison.typical)
    title = f"{before} → {after}"
    write_document(
        path,
        title=title,
        body="comparison/comparison.html",
        script="comparison/comparison.js",
        facts={**_facts(comparison), "title": title, "sides": sides},
        columns=columns,
    )
    return path


def _facts(comparison: Comparison) -> dict[str, Any]:
    steps = bool(len(comparison.steps))
    return {
        "subtitle": _subtitle(comparison),
        "sentences": comparison.sentences,
        "verdict": comparison.verdict.kind if comparison.same_pipeline else "",
        "waterfalls": _waterfalls(comparison),
        "steps": steps,
        "renamed": comparison.renamed,
        "findings": table_facts(comparison.findings),
        "calls": table_facts(comparison.call_tree()),
        "tables": {
            name: {"title": title, "file": f"{name}.csv", **table_facts(table)}
            for name, title, table in _tables(comparison)
        },
        "notes": comparison.notes,
    }


def _subtitle(comparison: Comparison) -> str:
    counts = [len(side) for side in (comparison.runs_before, comparison.runs_after)]
    words = f"{count_of(counts[0], 'run')} before, {count_of(counts[1], 'run')} after"
    drawn = "" if max(counts) == 1 else "; drawn are those nearest to the median of their side"
    return words + drawn


def _waterfalls(comparison: Comparison) -> dict[str, Any] | None:
    """Return the four waterfalls; None where wall times cannot be compared."""
    if comparison.verdict.kind == "cannot tell":
        return None
    return {
        "path": {
            "function": table_facts(comparison.waterfall()),
            "step": table_facts(comparison.waterfall("step")),
        },
        "threads": {
            "function": table_facts(comparison.thread_time()),
            "step": table_facts(comparison.thread_time("step")),
        },
    }


def _narrow_first(functions: pd.DataFrame) -> pd.DataFrame:
    """Put first what a page that is not wide shows: what changed, and by how much."""
    first = [functions.columns[0], "Changed", "Change (%)", "p", "Median Before (s)"]
    first += ["Median After (s)", "Total Before (s)", "Total After (s)", "Tasks"]
    return functions[[*first, *(label for label in functions.columns if label not in first)]]


def _tables(comparison: Comparison) -> list[tuple[str, str, pd.DataFrame]]:
    """Return name, title and rows of the tables that have any."""
    tables = [
        ("functions", "Functions", _narrow_first(comparison.functions)),
        ("steps", "Steps", _narrow_first(comparison.steps)),
        ("surroundings", "What differs around the runs", comparison.surroundings),
        ("lines", "Lines in which tasks were seen", comparison.hot_lines()),
        ("memory", "Memory of workers", comparison.memory),
        ("runs", "Runs", comparison.runs),
    ]
    return [item for item in tables if len(item[2])]


def _timeline(run: Run) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Return the columns and facts that a timeline is drawn from."""
    data = TimelineData.of(run.whole)
    path, path_facts = path_columns(run, data.rows)
    columns = {**in_group("path", path), **data.columns}
    drawn = {name: column for name, column in columns.items() if name.startswith(_DRAWN)}
    return drawn, {**data.facts, "path": path_facts}
