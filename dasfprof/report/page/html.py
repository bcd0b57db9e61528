"""`write_report` and `write_comparison`: a run, or a comparison of runs, as one HTML file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.analysis.diagnosis import table_of
from dasfprof.analysis.model.critical_path import path_segments
from dasfprof.analysis.model.plan import find_plan
from dasfprof.analysis.model.sizing import find_chunks
from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.questions import Request
from dasfprof.report.documents import finding_url
from dasfprof.report.page.details_data import (
    argument_columns,
    code_facts,
    exits,
    log_facts,
    tracebacks,
)
from dasfprof.report.page.document import (
    PackedColumn,
    in_group,
    pack_all,
    pack_integers,
    table_facts,
    write_document,
)
from dasfprof.report.page.flame_data import client_columns, flame_columns
from dasfprof.report.page.link_data import path_columns, transfer_columns
from dasfprof.report.page.resource_data import resource_columns
from dasfprof.report.page.timeline_data import timeline_data
from dasfprof.report.run_summary import summarise, title_of, verdict
from dasfprof.text import count_of, elide

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import Analyser
    from dasfprof.analysis.comparison import Comparison
    from dasfprof.database.columns import Array


#: Maximum number of task runs for which memory is predicted. This takes 0.4 ms per task run.
_MOST_REPLAYED = 3000


def write_report(
    analyser: Analyser, path: str | os.PathLike[str], *, title: str | None = None
) -> Path:
    """Write a run as one HTML file. An existing file is replaced.

    The file contains the findings and all task runs, samples and tables. It cannot access the
    network, and shows the contents of the trace only as text.

    Parameters
    ----------
    analyser
        The run.
    path
        The file to write.
    title
        Name of the run in the report. Default: the name in the trace files.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    title = title or title_of(analyser.run)
    facts, columns = _data(analyser, title)
    write_document(
        path, title=title, body="page.html", script="page.js", facts=facts, columns=columns
    )
    return path


def _data(analyser: Analyser, title: str) -> tuple[dict[str, Any], dict[str, PackedColumn]]:
    """Return the facts and the columns of the page.

    Columns that the page needs first come first.
    """
    trace = analyser.run
    # NumPy releases the GIL, so a second thread saves a third of the time.
    with ThreadPoolExecutor(1, "dasfprof-report") as pool:
        run_facts = pool.submit(_run_facts, analyser)
        # This thread computes what both threads need. Meanwhile, the other one explains idle
        # threads.
        path_segments(trace)
        find_chunks(trace)
        drawn, timeline, rows = timeline_data(trace)
        resources, metrics = resource_columns(trace)
        flames, flame_facts = flame_columns(trace, rows)
        path, path_facts = path_columns(trace, rows)
        client, client_facts = client_columns(trace)
        transfers, transfer_facts = transfer_columns(trace, timeline["workers"])
        columns = {
            **in_group("path", path),
            **drawn,
            **resources,
            **in_group("transfers", transfers),
            **in_group("plan", {"nodes": pack_integers(find_plan(trace).of_all_slots[rows])}),
            **flames,
            **in_group("client", client),
            **in_group("details", argument_columns(trace, rows)),
        }
        facts = {
            "title": title,
            "timeline": {
                **timeline,
                "path": path_facts,
                "transfers": transfer_facts,
                "logs": log_facts(trace, rows),
                "code": code_facts(trace),
                "tracebacks": tracebacks(trace, rows),
                "exits": exits(trace, rows),
            },
            "resources": metrics,
            "flame": flame_facts,
            "client": client_facts,
            "tables": _tables(analyser),
            "notes": _notes(analyser, timeline, rows),
        }
        pack_all(columns)
        facts.update(run_facts.result())
    return facts, columns


def _run_facts(analyser: Analyser) -> dict[str, Any]:
    """Return the facts that need the complete run: summary, findings, and thread time."""
    problems, summary = analyser.findings(), summarise(analyser.run)
    findings = table_of(problems)
    accounting = analyser.time_accounting()
    return {
        "summary": {**summary, **verdict(summary, accounting, findings)},
        "findings": table_facts(findings.assign(Page=findings["Rule"].map(finding_url))),
        "places": [problem.places and asdict(problem.places) for problem in problems],
        "accounting": {
            "cluster": table_facts(accounting),
            "workers": table_facts(analyser.time_accounting("worker")),
        },
    }


def _tables(analyser: Analyser) -> dict[str, Any]:
    """Return the tables by their names in the page. The tables of the overview come first."""
    shown = [item for item in questions.all() if item.page and item.applies(analyser.run)]
    shown.sort(key=lambda item: (item.overview is None, item.overview or 0))
    tables = {str(item.page): (item, Request(item).table(analyser)) for item in shown}
    if 0 < len(analyser.trace.tasks) <= _MOST_REPLAYED:
        forecast = questions.named("memory_forecast")
        table = Request(forecast).table(analyser)
        if table["Process (MB)"].notna().any():
            tables["memory-forecast"] = forecast, table
    return {
        page: {"title": item.title, "file": f"{item.file_stem}.csv", **table_facts(table)}
        for page, (item, table) in tables.items()
    }


def _notes(analyser: Analyser, timeline: dict[str, Any], rows: Array) -> list[str]:
    notes = [note.text for note in analyser.trace.notes]
    if timeline["crowded"]:
        notes.append(
            "To stay small enough for a browser, the page has only the first 16 digits of the "
            "hashes in keys, and times of statuses in steps of 1/256 of their mean."
        )
    timeless = len(analyser.run.task_runs) - len(rows)
    if timeless:
        count = count_of(timeless, "task run")
        notes.append(f"{count} without a recorded time: not in the timeline.")
    return notes


#: Prefixes of the columns of a timeline in a comparison, which lacks details of task runs.
_DRAWN = ("picture/", "path/", "keys/")
_LONGEST = 60


def write_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write a comparison as one HTML file. An existing file is replaced.

    The file contains the verdict, waterfalls, the timeline of one run of each side (the run whose
    wall time is nearest to the median), and all tables. It cannot access the network, and shows the
    contents of the traces only as text.

    Parameters
    ----------
    comparison
        Comparison from `dasfprof.compare`.
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
        drawn, timeline, rows = timeline_data(run.trace)
        path_of_run, path_facts = path_columns(run.trace, rows)
        for name, column in {**in_group("path", path_of_run), **drawn}.items():
            if name.startswith(_DRAWN):
                columns[f"{side}-{name}"] = column
        sides[side] = {"name": run.name, "timeline": {**timeline, "path": path_facts}}
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
    counts = [len(side) for side in (comparison.runs_before, comparison.runs_after)]
    words = f"{count_of(counts[0], 'run')} before, {count_of(counts[1], 'run')} after"
    drawn = "" if max(counts) == 1 else "; drawn are those nearest to the median of their side"
    return {
        "subtitle": f"{words}{drawn}",
        "sentences": comparison.sentences,
        "verdict": comparison.verdict.kind if comparison.same_pipeline else "",
        "waterfalls": _waterfalls(comparison),
        "steps": bool(len(comparison.steps)),
        "findings": table_facts(comparison.findings),
        "tables": {
            name: {"title": title, "file": f"{name}.csv", **table_facts(table)}
            for name, title, table in _compared_tables(comparison)
        },
        "notes": comparison.notes,
    }


def _waterfalls(comparison: Comparison) -> dict[str, Any] | None:
    """Return the waterfalls of wall time and of thread time, each by function and by step.

    Return None if the wall times cannot be compared.
    """
    if comparison.verdict.kind == "cannot tell":
        return None
    tables = {"path": comparison.waterfall, "threads": comparison.thread_time}
    return {
        name: {"function": table_facts(table("function")), "step": table_facts(table("step"))}
        for name, table in tables.items()
    }


def _narrow_first(functions: pd.DataFrame) -> pd.DataFrame:
    """Move columns about changes to the front, because narrow pages show only the first ones."""
    first = [functions.columns[0], "Changed", "Change (%)", "p", "Median Before (s)"]
    first += ["Median After (s)", "Total Before (s)", "Total After (s)", "Tasks"]
    return functions[[*first, *(label for label in functions.columns if label not in first)]]


def _compared_tables(comparison: Comparison) -> list[tuple[str, str, pd.DataFrame]]:
    """Return the name, the title and the rows of each table that is not empty."""
    tables = [
        ("functions", "Functions", _narrow_first(comparison.functions)),
        ("steps", "Steps", _narrow_first(comparison.steps)),
        ("surroundings", "What differs around the runs", comparison.surroundings),
        ("lines", "Lines in which tasks were seen", comparison.hot_lines()),
        ("memory", "Memory of workers", comparison.memory),
        ("runs", "Runs", comparison.runs),
    ]
    return [item for item in tables if len(item[2])]
