"""`write_report`: a run as one HTML file that needs nothing else, neither server nor network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.analysis.tables import questions
from dasfprof.report.page.packing import pack_all
from dasfprof.report.page.resources.resource_data import ResourceData
from dasfprof.report.page.tables.table_data import sum_classes, table_facts
from dasfprof.report.page.timeline.path_data import path_columns
from dasfprof.report.page.timeline.timeline_data import TimelineData
from dasfprof.report.run_summary import summarise, title_of
from dasfprof.text import count_of

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser

#: The page's scripts, in the order in which they rest on each other.
_SCRIPTS = (
    "format.js",
    "data.js",
    "timeline/tasks.js",
    "timeline/search.js",
    "timeline/views.js",
    "timeline/path.js",
    "timeline/painter.js",
    "timeline/marks.js",
    "summary.js",
    "findings.js",
    "timeline/filters.js",
    "timeline/gestures.js",
    "timeline/selection.js",
    "timeline/timeline.js",
    "resources/resources.js",
    "tables/table.js",
    "tables/columns.js",
    "tables/sections.js",
    "timeline/details.js",
    "accounting.js",
    "page.js",
)


def write_report(
    analyser: TraceAnalyser, path: str | os.PathLike[str], *, title: str | None = None
) -> Path:
    """Write a run as one HTML file; an existing file is replaced.

    The file holds the findings and all task runs, samples and tables, forbids itself the network,
    and shows what the trace holds as text only.

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
    with path.open("wb") as file:
        file.writelines(_parts(analyser, title or title_of(analyser.trace)))
    return path


def _parts(analyser: TraceAnalyser, title: str) -> Iterator[bytes]:
    """Yield the page in parts: the data that it needs first comes first."""
    trace = analyser.trace
    timeline = TimelineData.of(trace)
    resources = ResourceData.of(trace)
    accounting = analyser.time_accounting("worker")
    path, path_facts = path_columns(trace, timeline.rows)
    columns = {**path, **timeline.columns, **resources.columns}
    facts = {
        "title": title,
        "summary": summarise(trace),
        "findings": table_facts(analyser.diagnose()),
        "timeline": {**timeline.facts, "path": path_facts},
        "resources": resources.metrics,
        "accounting": {
            "cluster": table_facts(sum_classes(accounting)),
            "workers": table_facts(accounting),
        },
        "tables": _tables(analyser),
        "notes": _notes(analyser, timeline),
        "columns": {name: column.about for name, column in columns.items()},
    }
    script = "".join(f"// {name}\n{_asset(name)}\n" for name in _SCRIPTS)
    script = f'(() => {{\n"use strict";\n{script}}})();\n'
    style = _asset("page.css")
    contents = {
        "title": _ascii(html.escape(title)),
        "script-hash": _hash(script),
        "style-hash": _hash(style),
        "style": style,
        "facts": _as_json(facts),
        "script": script,
    }
    head, tail = _asset("page.html").split("{{data}}")
    head = re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: contents[mark[1]], head)
    yield head.encode()
    for name, packed in pack_all(columns).items():
        yield f'<script type="text/plain" id="{html.escape(f"column-{name}")}">'.encode()
        yield packed
        yield b"</script>\n"
    yield tail.encode()


def _tables(analyser: TraceAnalyser) -> dict[str, Any]:
    """Return the tables of the page, by their names there: first those that the shell shows."""
    shown = [item for item in questions.all() if item.page and item.applies(analyser.trace)]
    shown.sort(key=lambda item: (item.overview is None, item.overview or 0))
    return {
        str(item.page): {
            "title": item.title,
            "file": f"{item.file_stem}.csv",
            **table_facts(item.of(analyser)),
        }
        for item in shown
    }


def _notes(analyser: TraceAnalyser, timeline: TimelineData) -> list[str]:
    notes = [note.text for note in analyser.trace.notes]
    if timeline.facts["crowded"]:
        notes.append(
            "To stay small enough for a browser, the page has only the first 16 digits of the "
            "hashes in keys, and times of statuses in steps of 1/256 of their mean."
        )
    timeless = len(analyser.trace.tasks) - len(timeline.rows)
    if timeless:
        count = count_of(timeless, "task run")
        notes.append(f"{count} without a recorded time: not in the timeline.")
    return notes


def _asset(name: str) -> str:
    return files("dasfprof.report.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash of a script or style for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _as_json(facts: Any) -> str:
    """Write JSON that cannot end the element that it stands in."""
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _ascii(text: str) -> str:
    return text.encode("ascii", "xmlcharrefreplace").decode()
