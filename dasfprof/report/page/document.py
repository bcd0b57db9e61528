"""`write_document`: a page as one HTML file that needs nothing else, neither server nor network.

`shell` is what stands around the body of every page.

The page's data stand in it as JSON and as packed columns, its script compressed (``loader.js``
inflates it); its policy allows its own scripts and style alone. What a trace holds is data only:
the script shows it as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.report.page.packing import PackedColumn, pack_all, packed_text

#: Scripts of every page, in the order in which they rest on each other.
SHARED_SCRIPTS = (
    "format.js",
    "outliers.js",
    "data.js",
    "timeline/tasks.js",
    "timeline/views.js",
    "timeline/path.js",
    "timeline/gaps.js",
    "timeline/palette.js",
    "timeline/frame.js",
    "timeline/painter.js",
    "timeline/marks.js",
    "timeline/colours.js",
    "timeline/legend.js",
    "summary.js",
    "findings.js",
    "timeline/gestures.js",
    "timeline/selection.js",
    "timeline/tip.js",
    "timeline/timeline.js",
    "tables/table.js",
    "tables/printed.js",
    "tables/columns.js",
    "tables/sections.js",
    "accounting.js",
    "flame/graph.js",
    "comparison/axis.js",
    "comparison/names.js",
    "comparison/pair.js",
)


def write_document(
    path: Path,
    *,
    title: str,
    body: str,
    scripts: Sequence[str],
    facts: Mapping[str, Any],
    columns: Mapping[str, PackedColumn],
) -> None:
    """Write a page.

    Parameters
    ----------
    path
        The file; an existing one is replaced.
    title
        Any text.
    body
        The name of the file of the body.
    scripts
        The names of the files of its scripts, beside those of every page.
    facts
        What is read first; the facts about the columns are added.
    columns
        The columns by name.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    about = {name: column.about for name, column in columns.items()}
    script, packed = _script_of((*SHARED_SCRIPTS, *scripts))
    loader = asset("loader.js")
    head, tail = shell(title, loader, script)
    with path.open("wb") as file:
        file.write(f"{head}{asset(body)}".encode())
        data = _as_json({**facts, "columns": about})
        file.write(f'<script type="application/json" id="facts">{data}</script>\n'.encode())
        file.write(f'<script type="text/plain" id="script">{packed}</script>\n'.encode())
        file.write(f"<script>{loader}</script>\n".encode())
        file.writelines(_elements(columns))
        file.write(tail.encode())


def _thread_classes() -> str:
    """Return the script's constant of how each class of thread time is painted, by its label."""
    painted = {
        spent.label: {"colour": spent.colour, "back": spent.is_hatched_back} for spent in ThreadTime
    }
    return f"const THREAD_CLASSES = {json.dumps(painted)};\n"


@cache
def _script_of(names: tuple[str, ...]) -> tuple[str, str]:
    """Return the script of files, and the same as `packed_text`."""
    parts = "".join(f"// {name}\n{asset(name)}\n" for name in names)
    script = f'(() => {{\n"use strict";\n{_thread_classes()}{parts}}})();\n'
    return script, packed_text(script)


def shell(title: str, *scripts: str) -> tuple[str, str]:
    """Return what stands before and after the body of a page.

    Parameters
    ----------
    title
        Any text.
    scripts
        Those that the page may run.
    """
    style = asset("page.css")
    hashes = " ".join(f"'{_policy_hash(script)}'" for script in scripts)
    contents = {
        "title": ascii_html(title),
        "script-policy": f"script-src {hashes}; " if scripts else "",
        "style-hash": _policy_hash(style),
        "style": style,
    }
    filled = [
        re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: contents[mark[1]], part)
        for part in asset("document.html").split("{{body}}")
    ]
    return filled[0], filled[1]


def asset(name: str) -> str:
    """Return the text of a file of the pages."""
    return files("dasfprof.report.page").joinpath(name).read_text(encoding="utf-8")


def ascii_html(text: str) -> str:
    """Write any text, lone surrogates too, as the text of an element."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()


def _policy_hash(text: str) -> str:
    """Return the hash of a script or style for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _elements(columns: Mapping[str, PackedColumn]) -> Iterator[bytes]:
    for name, packed in pack_all(columns).items():
        yield f'<script type="text/plain" id="{html.escape(f"column-{name}")}">'.encode()
        yield packed
        yield b"</script>\n"


def _as_json(facts: Any) -> str:
    """Write JSON that cannot end the element that it stands in."""
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
