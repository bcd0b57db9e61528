"""The files of the pages: `asset`, and `joined`, a module with all that it imports as one script.

A browser waits with modules until all of a page is read, and loads none from files.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from importlib.resources import files

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
