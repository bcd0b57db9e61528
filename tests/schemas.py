"""The schemas of the JSON documents of commands."""

from __future__ import annotations

import json
from typing import Any

from dasfprof.report.documents import SCHEMAS, VERSIONS


def read_schema(command: str) -> dict[str, Any]:
    """Return the schema of a command's document, in JSON Schema."""
    path = SCHEMAS / f"{command}-{VERSIONS[command]}.json"
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema
