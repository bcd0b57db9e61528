"""`write_document`: a page as one HTML file that needs nothing else, neither server nor network.

The page's data stand in it as JSON and as packed columns (shuffled bytes, zlib, base64), its script
compressed: the page inflates both (``data.js``, ``loader.js``). Its policy allows its own scripts
and style alone. What a trace holds is data only: the script shows it as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import posixpath
import re
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.database.columns import Array

#: Stands for NA among whole numbers of 32 bits.
MISSING = 0xFFFFFFFF

_LEVEL, _HIGHEST = 4, 9
_MICROSECOND = 1e-6


@dataclass(frozen=True)
class PackedColumn:
    """A column as the page takes it."""

    #: How the page decodes it: ``type`` (``u1, u2, u4, f8, text``), and where they apply ``delta``
    #: (each number is the distance from the one before, modulo 2**32), ``scale`` (what a step is
    #: worth) and ``values`` (what the numbers are places in).
    about: dict[str, Any]
    content: bytes

    @cached_property
    def packed(self) -> bytes:
        """The content compressed, as ASCII."""
        return base64.b64encode(zlib.compress(self.content, _LEVEL))


def in_group(name: str, columns: Mapping[str, PackedColumn]) -> dict[str, PackedColumn]:
    """Name columns as those of a group, which the page reads together."""
    return {f"{name}/{own}": column for own, column in columns.items()}


def pack_all(columns: Mapping[str, PackedColumn]) -> dict[str, bytes]:
    """Pack columns, several at a time."""
    with ThreadPoolExecutor() as pool:
        packed = list(pool.map(attrgetter("packed"), columns.values()))
    return dict(zip(columns, packed, strict=True))


@cache
def packed_text(text: str) -> str:
    """Compress a text, and write it as ASCII."""
    return base64.b64encode(zlib.compress(text.encode(), _HIGHEST)).decode()


def whole_numbers(numbers: Array, *, delta: bool = False, **about: Any) -> PackedColumn:
    """Pack numbers from 0 to 2**32 - 1 in as few bytes as the highest needs.

    Parameters
    ----------
    numbers
        The numbers.
    delta
        Whether to store distances: much smaller where neighbours are alike.
    about
        Further facts for the page.
    """
    highest = int(numbers.max(initial=0))
    code = "u4" if delta or highest > 0xFFFF else "u2" if highest > 0xFF else "u1"
    numbers = numbers.astype(np.uint32)
    if delta:
        about["delta"] = True
        numbers = np.diff(numbers, prepend=np.uint32(0))
    typed = numbers.astype(f"<{code}")
    width = typed.itemsize
    # All lowest bytes, then all second ones: the high ones are alike and compress to nothing.
    content = typed.view(np.uint8).reshape(-1, width).T.tobytes()
    return PackedColumn({"type": code, "count": len(numbers), **about}, content)


def offsets(counts: Array) -> PackedColumn:
    """Pack where each of several lists begins in the list of all of them, and the end of the last.

    Parameters
    ----------
    counts
        The lengths of the lists.
    """
    return whole_numbers(np.append(0, np.cumsum(counts)), delta=True)


def seconds(values: Array, *, delta: bool = False, step: float = 0.0) -> PackedColumn:
    """Pack times in seconds, none negative: whole microseconds, coarser beyond 71 minutes.

    NaN stays NaN.

    Parameters
    ----------
    values
        The times.
    delta
        See `whole_numbers`.
    step
        Seconds in which to tell them at the finest.
    """
    return scaled(values, step=max(_MICROSECOND, step), delta=delta)


def scaled(values: Array, *, step: float, delta: bool = False) -> PackedColumn:
    """Pack numbers, none negative, as multiples of a step, or of a larger one beyond 2**32 of them.

    NaN stays NaN.

    Parameters
    ----------
    values
        The numbers.
    step
        What to tell them in at the finest.
    delta
        See `whole_numbers`.
    """
    known = np.isfinite(values)
    highest = float(np.max(values, where=known, initial=0.0))
    scale = max(step, highest / (MISSING - 1))
    steps = np.full(len(values), MISSING, dtype=np.uint32)
    steps[known] = np.rint(np.maximum(values[known], 0.0) / scale).astype(np.uint32)
    return whole_numbers(steps, delta=delta, scale=scale)


def amounts(values: Array) -> PackedColumn:
    """Pack sizes: as places in a list of the distinct ones where these are few."""
    places, distinct = pd.factorize(values, use_na_sentinel=False)
    if len(distinct) <= 0xFFFF:
        listed = [value if np.isfinite(value) else None for value in distinct.tolist()]
        return whole_numbers(places, values=listed)
    return PackedColumn({"type": "f8", "count": len(values)}, values.astype("<f8").tobytes())


def texts(values: Sequence[str | list[str]]) -> PackedColumn:
    """Pack texts, or lists of them, of any kind, lone surrogates too."""
    return PackedColumn({"type": "text", "count": len(values)}, json.dumps(values).encode())


# --- Tables as the page takes them: `table_facts` -------------------------------------------------

_NUMBER, _TEXT = "number", "text"
#: A table with more cells than this is left to CSV: nobody reads it in a page.
_MAX_CELLS = 300_000


def table_facts(frame: pd.DataFrame) -> dict[str, Any]:
    """Convert a table for the page: ``columns`` of ``label, kind, values``; NA is None.

    A table that is too large has ``absent``, the reason, instead.
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


# --- The files of the pages: `asset`, and `joined`, a module with its imports as one script -------
#
# A browser waits with modules until all of a page is read, and loads none from files.

#: The style of all pages: that of any page first, then that of each component.
STYLES = (
    "page.css",
    "summary.css",
    "contents.css",
    "findings.css",
    "accounting.css",
    "timeline/timeline.css",
    "timeline/dock.css",
    "resources/resources.css",
    "plan/plan.css",
    "flame/flame.css",
    "functions/drawer.css",
    "tables/table.css",
    "comparison/comparison.css",
    "history.css",
)

_IMPORT = re.compile(r'^import \{[^}]*\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_INDENT = re.compile(r"^ +", re.MULTILINE)


def asset(name: str) -> str:
    """Return the text of a file of the pages."""
    return files("dasfprof.report.page").joinpath(name).read_text(encoding="utf-8")


@cache
def joined(entry: str) -> str:
    """Join a module and those that it imports, each behind what it rests on.

    They share a scope, so that no two of them may declare the same name at their top.
    """
    parts: list[str] = []
    _add(entry, parts, set())
    return f'(() => {{\n"use strict";\n{"".join(parts)}}})();\n'


def _add(name: str, parts: list[str], known: set[str]) -> None:
    """Add a module behind those that it imports; modules may import each other."""
    if name in known:
        return
    known.add(name)
    text = asset(name)
    for other in _IMPORT.findall(text):
        _add(posixpath.normpath(posixpath.join(posixpath.dirname(name), other)), parts, known)
    parts.append(f"// {name}\n{_EXPORT.sub('', _IMPORT.sub('', text))}\n")


# --- write_document: a page as one HTML file ------------------------------------------------------


def write_document(
    path: Path,
    *,
    title: str,
    body: str,
    script: str,
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
    script
        The name of the file of its script.
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
    loader, whole = joined("loader.js"), joined(script)
    head, tail = shell(title, loader, whole)
    with path.open("wb") as file:
        file.write(f"{head}{asset(body)}".encode())
        data = _as_json({**facts, "columns": about})
        file.write(f'<script type="application/json" id="facts">{data}</script>\n'.encode())
        file.write(
            f'<script type="text/plain" id="script">{packed_text(whole)}</script>\n'.encode()
        )
        file.write(f"<script>{loader}</script>\n".encode())
        for name, packed in pack_all(columns).items():
            element = f'<script type="text/plain" id="{html.escape(f"column-{name}")}">'
            file.write(element.encode() + packed + b"</script>\n")
        file.write(tail.encode())


def shell(title: str, *scripts: str) -> tuple[str, str]:
    """Return what stands before and after the body of a page.

    Parameters
    ----------
    title
        Any text.
    scripts
        Those that the page may run.
    """
    style = _INDENT.sub("", "".join(map(asset, STYLES)))
    hashes = " ".join(f"'{_policy_hash(script)}'" for script in scripts)
    contents = {
        "title": ascii_html(title),
        "script-policy": f"script-src {hashes}; " if scripts else "",
        "style-hash": _policy_hash(style),
        "style": style,
    }
    head, tail = asset("document.html").split("{{body}}")
    return filled(head, contents), filled(tail, contents)


def filled(template: str, contents: Mapping[str, str]) -> str:
    """Put texts of HTML into the places of a template that have their names."""
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: contents[mark[1]], template)


def ascii_html(text: str) -> str:
    """Write any text, lone surrogates too, as the text of an element."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()


def _policy_hash(text: str) -> str:
    """Return the hash of a script or style for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _as_json(facts: Any) -> str:
    """Write JSON that cannot end the element that it stands in."""
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
