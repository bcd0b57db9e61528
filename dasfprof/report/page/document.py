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
import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from dasfprof.report.page.packing import PackedColumn, pack_all, packed_text

# The files of the pages: `asset`, and `joined`, a module with all that it imports as one script.
#
# A browser waits with modules until all of a page is read, and loads none from files.

_IMPORT = re.compile(r'^import \{[^}]*\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


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
        file.writelines(_elements(columns))
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
