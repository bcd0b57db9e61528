"""`write_document`: writes a page as one HTML file that needs neither a server nor a network.

The file contains the page's data as JSON and as packed columns (shuffled bytes, zlib, base64), and
its script in compressed form. The page decompresses the columns (``data.js``) and the script
(``loader.js``). Its Content-Security-Policy allows only its own scripts and style. The contents of
a trace are never executed. The script shows them as text.
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

#: Code of NA in columns of 32-bit integers.
MISSING = 0xFFFFFFFF

_LEVEL, _HIGHEST = 4, 9
_MICROSECOND = 1e-6


@dataclass(frozen=True)
class PackedColumn:
    """A column in the format that the page reads."""

    #: How to decode the column: ``type`` (``u1, u2, u4, f8, text``) and ``count``. Optional:
    #: ``delta`` (each number is the difference from the previous one, modulo 2**32), ``scale``
    #: (factor of the numbers), and ``values`` (a list in which the numbers are indices).
    about: dict[str, Any]
    content: bytes

    @cached_property
    def packed(self) -> bytes:
        """The compressed content of the column, as ASCII."""
        return base64.b64encode(zlib.compress(self.content, _LEVEL))


def in_group(name: str, columns: Mapping[str, PackedColumn]) -> dict[str, PackedColumn]:
    """Prefix the names of columns with a group's name. The page decodes each group as a unit."""
    return {f"{name}/{label}": column for label, column in columns.items()}


def pack_all(columns: Mapping[str, PackedColumn]) -> dict[str, bytes]:
    """Pack several columns in parallel."""
    with ThreadPoolExecutor() as pool:
        packed = list(pool.map(attrgetter("packed"), columns.values()))
    return dict(zip(columns, packed, strict=True))


@cache
def packed_text(text: str) -> str:
    """Return a compressed text, as ASCII."""
    return base64.b64encode(zlib.compress(text.encode(), _HIGHEST)).decode()


def pack_integers(numbers: Array, *, delta: bool = False, **about: Any) -> PackedColumn:
    """Pack integers from 0 to 2**32 - 1. Each gets as many bytes as the largest one needs.

    If `delta` is true, pack the differences between successive integers, with four bytes each.
    `about` contains further facts about the column.
    """
    highest = int(numbers.max(initial=0))
    code = "u4" if delta or highest > 0xFFFF else "u2" if highest > 0xFF else "u1"
    numbers = numbers.astype(np.uint32)
    if delta:
        about["delta"] = True
        numbers = np.diff(numbers, prepend=np.uint32(0))
    typed = numbers.astype(f"<{code}")
    width = typed.itemsize
    # Store all lowest bytes first, then all second bytes. High bytes hardly vary, so they compress
    # well in a row.
    content = typed.view(np.uint8).reshape(-1, width).T.tobytes()
    return PackedColumn({"type": code, "count": len(numbers), **about}, content)


def offsets(counts: Array) -> PackedColumn:
    """Pack the start of each list within the concatenated lists, and the end of the last list.

    `counts` are the lengths of the lists.
    """
    return pack_integers(np.append(0, np.cumsum(counts)), delta=True)


def seconds(values: Array, *, delta: bool = False, step: float = 0.0) -> PackedColumn:
    """Pack non-negative times in seconds, rounded to microseconds or to a longer `step`.

    The step is increased to fit into 32 bits. NaN stays NaN. See `pack_integers` for `delta`.
    """
    return scaled(values, step=max(_MICROSECOND, step), delta=delta)


def scaled(values: Array, *, step: float, delta: bool = False) -> PackedColumn:
    """Pack non-negative numbers as multiples of `step`, which is increased to fit into 32 bits.

    NaN stays NaN. See `pack_integers` for `delta`.
    """
    known = np.isfinite(values)
    highest = float(np.max(values, where=known, initial=0.0))
    scale = max(step, highest / (MISSING - 1))
    steps = np.full(len(values), MISSING, dtype=np.uint32)
    steps[known] = np.rint(np.maximum(values[known], 0.0) / scale).astype(np.uint32)
    return pack_integers(steps, delta=delta, scale=scale)


def amounts(values: Array) -> PackedColumn:
    """Pack an array of sizes, as indices in a list if it has only few distinct sizes."""
    places, distinct = pd.factorize(values, use_na_sentinel=False)
    if len(distinct) <= 0xFFFF:
        listed = [value if np.isfinite(value) else None for value in distinct.tolist()]
        return pack_integers(places, values=listed)
    return PackedColumn({"type": "f8", "count": len(values)}, values.astype("<f8").tobytes())


def texts(values: Sequence[str | list[str]]) -> PackedColumn:
    """Pack strings or lists of strings. Lone surrogates are allowed."""
    return PackedColumn({"type": "text", "count": len(values)}, json.dumps(values).encode())


#: Maximum number of cells of a table in a page. Larger tables are only available as CSV.
_MAX_CELLS = 300_000


def table_facts(frame: pd.DataFrame) -> dict[str, Any]:
    """Convert a table to a dict for the page. NA becomes None.

    The entry ``columns`` is a list of dicts with ``label``, ``kind`` and ``values``. For a table
    that is too large, the dict has only the entry ``absent``, which is the reason.
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
    if numeric:  # JSON has no infinite numbers.
        known = np.isfinite(column.to_numpy(dtype=float, na_value=np.nan))
    values = column.astype(object).where(known, None).tolist()
    if not numeric:
        values = [None if value is None else str(value) for value in values]
    return {"label": str(label), "kind": "number" if numeric else "text", "values": values}


#
# Browsers run modules only after they have read the full page, and do not load modules from files.

#: Style sheets of all pages: first the common style sheet, then one per component.
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
)

_IMPORT = re.compile(r'^import \{[^}]*\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_INDENT = re.compile(r"^ +", re.MULTILINE)


def asset(name: str) -> str:
    """Return the text of a file in this package."""
    return files("dasfprof.report.page").joinpath(name).read_text(encoding="utf-8")


@cache
def joined(entry: str) -> str:
    """Join a JavaScript module and all modules that it imports. Imported modules come first."""
    # The modules share a scope, so two of them must not declare the same name at the top level.
    parts: list[str] = []
    _add(entry, parts, set())
    return f'(() => {{\n"use strict";\n{"".join(parts)}}})();\n'


def _add(name: str, parts: list[str], known: set[str]) -> None:
    """Add a module to `parts`, after the modules that it imports. Imports may be circular."""
    if name in known:
        return
    known.add(name)
    text = asset(name)
    for other in _IMPORT.findall(text):
        _add(posixpath.normpath(posixpath.join(posixpath.dirname(name), other)), parts, known)
    parts.append(f"// {name}\n{_EXPORT.sub('', _IMPORT.sub('', text))}\n")


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
        The file. An existing file is replaced.
    title
        Any text.
    body
        File name of the body.
    script
        File name of the script.
    facts
        Facts that the page reads first. Facts about the columns are added.
    columns
        The columns by name.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    about = {name: column.about for name, column in columns.items()}
    loader, page_script = joined("loader.js"), joined(script)
    style = _INDENT.sub("", "".join(map(asset, STYLES)))
    contents = {
        # Lone surrogates are allowed.
        "title": html.escape(title).encode("ascii", "xmlcharrefreplace").decode(),
        "script-hashes": f"'{_policy_hash(loader)}' '{_policy_hash(page_script)}'",
        "style-hash": _policy_hash(style),
        "style": style,
    }
    frame = re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: contents[mark[1]], asset("document.html"))
    head, tail = frame.split("<!-- body -->\n")
    with path.open("wb") as file:
        file.write(f"{head}{asset(body)}".encode())
        data = _as_json({**facts, "columns": about})
        file.write(f'<script type="application/json" id="facts">{data}</script>\n'.encode())
        file.write(
            f'<script type="text/plain" id="script">{packed_text(page_script)}</script>\n'.encode()
        )
        file.write(f"<script>{loader}</script>\n".encode())
        for name, packed in pack_all(columns).items():
            element = f'<script type="text/plain" id="{html.escape(f"column-{name}")}">'
            file.write(element.encode() + packed + b"</script>\n")
        file.write(tail.encode())


def _policy_hash(text: str) -> str:
    """Return the hash of a script or style, as the Content-Security-Policy needs it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _as_json(facts: Any) -> str:
    """Return facts as JSON that cannot contain the end of the HTML element around it."""
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
