"""Portable JSON, the JSON documents of commands, and the documentation pages of findings."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def without_surrogates(text: str) -> str:
    r"""Return a text in which lone surrogates are replaced by ``\udcxx``."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown(value: object, longest: int = 2000) -> str:
    """Return a value as valid Unicode text, for viewers.

    If the text is longer than `longest` characters, its middle is left out.
    """
    text = str(value)
    if len(text) > longest:
        head = longest * 2 // 3
        text = f"{text[:head]}…{text[len(text) - (longest - head - 1) :]}"
    return without_surrogates(text)


def json_of(value: Any) -> str:
    """Return a value as ASCII JSON. NaN and infinity become null. Times are in ISO 8601."""
    return json.dumps(plain(value), allow_nan=False)


def plain(value: Any) -> Any:
    """Convert a value to JSON-compatible types."""
    if isinstance(value, dict):
        return {without_surrogates(str(name)): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.item() if hasattr(value, "item") else value


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dicts by column label. NA becomes None."""
    values = table.astype(object).where(table.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in values.to_dict("records")]


#
# A schema is a file ``schemas/COMMAND-VERSION.json`` in JSON Schema. Only incompatible changes
# increase the version. Members may be added at any time, and readers ignore unknown members.

SCHEMAS = Path(__file__).with_name("schemas")

#: Version of the JSON document of each command.
VERSIONS = {
    **{"analyse": 2, "compare": 1, "estimate": 1, "history": 1, "info": 1},
    **{"stuck": 2, "try": 1, "tune": 1, "watch": 1},
}


def schema_of(command: str) -> str:
    """Return the name of a command's schema with its version, such as ``dasfprof/info/1``."""
    return f"dasfprof/{command}/{VERSIONS[command]}"


def read_schema(command: str) -> dict[str, Any]:
    """Read the JSON Schema of a command's document. `command` is a key of `VERSIONS`."""
    path = SCHEMAS / f"{command}-{VERSIONS[command]}.json"
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema


#: Directories with the pages of findings, in an installed package and in a clone.
_PAGES = (Path(__file__).with_name("findings"), Path(__file__).parents[2] / "docs" / "findings")


def finding_sections(rule: str) -> dict[str, list[str]]:
    """Return the paragraphs of a rule's page by heading. Links are replaced by their text."""
    page = next(path for path in (each / f"{rule}.md" for each in _PAGES) if path.exists())
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", page.read_text(encoding="utf-8"))
    _, *parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return {
        title: [" ".join(paragraph.split()) for paragraph in body.strip().split("\n\n")]
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def finding_page(rule: str) -> str:
    """Return the path of a rule's page, relative to the first page of the documentation."""
    return f"findings/{rule}.html"


def finding_url(rule: str) -> str | None:
    """Return the URL of a rule's page, or None if the documentation has no URL."""
    address = _address()
    return None if address is None else f"{address.rstrip('/')}/{finding_page(rule)}"


@cache
def _address() -> str | None:
    try:
        urls = metadata("dasfprof").get_all("Project-URL") or []
    except PackageNotFoundError:  # The package is not installed but run from a directory.
        return None
    named = "Documentation, "
    return next((url.removeprefix(named) for url in urls if url.startswith(named)), None)
