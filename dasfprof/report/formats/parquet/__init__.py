"""The tables of a trace as Parquet files, for any tool that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.report.formats.format import ExportFormat

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser


def _write(analyser: TraceAnalyser, path: Path, title: str) -> None:
    from dasfprof.report.formats.parquet.files import write_parquet

    write_parquet(analyser.trace, path, title=title)


FORMAT = ExportFormat(
    name="parquet",
    about="a directory with the tables of the trace, typed, for pandas, DuckDB, Spark and others",
    ending="-parquet",
    hint="Each column's meaning and unit are in its field's metadata, and in PARQUET.md.",
    write=_write,
    needs="pyarrow.parquet",
    extra="parquet",
)
