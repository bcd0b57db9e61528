"""The JSON documents of commands: each names its schema, whose version rises where it breaks.

A schema is a file ``schemas/COMMAND-VERSION.json`` beside this module, in JSON Schema. Members may
be added to documents of a version: who reads them ignores what they do not know.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).with_name("schemas")

#: The version of the document of each command that has ``--json``.
VERSIONS = {
    **{"analyse": 1, "compare": 1, "history": 1, "info": 1},
    **{"stuck": 1, "try": 1, "tune": 1, "watch": 1},
}


def schema_of(command: str) -> str:
    """Return the name of the schema of a command's document, its member ``schema``."""
    return f"dasfprof/{command}/{VERSIONS[command]}"


def read_schema(command: str) -> dict[str, Any]:
    """Return the schema of a command's document, in JSON Schema."""
    path = SCHEMAS / f"{command}-{VERSIONS[command]}.json"
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema
