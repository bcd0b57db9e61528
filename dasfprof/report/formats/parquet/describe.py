"""The tables' part of ``PARQUET.md``, made from their declarations.

``python -m dasfprof.report.formats.parquet.describe`` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

from dasfprof.report.formats.parquet.schema import KINDS, TableSchema
from dasfprof.report.formats.parquet.tables import SCHEMAS

PAGE = Path(__file__).with_name("PARQUET.md")


def described() -> str:
    """Return ``PARQUET.md`` as it should be: its introduction as it is, the tables as declared."""
    introduction = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    return "\n".join([introduction, *map(_section, SCHEMAS)])


def _section(schema: TableSchema) -> str:
    rows = (f"| `{c.name}` | {KINDS[c.kind]} | {c.about} |" for c in schema.columns)
    head = ["| column | type | what it is |", "|---|---|---|"]
    return "\n".join([f"## {schema.name}", "", schema.about, "", *head, *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(described(), encoding="utf-8")
