"""`export`: a run in the formats of other tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from dasfprof.errors import InvalidArgumentError
from dasfprof.report.formats.csv_tables import write_csv_tables
from dasfprof.report.formats.parquet.files import write_parquet
from dasfprof.report.formats.perfetto.trace_file import write_perfetto
from dasfprof.report.run_summary import title_of

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser

Format = Literal["perfetto", "csv", "parquet"]


def export(
    analyser: TraceAnalyser,
    path: str | os.PathLike[str],
    *,
    to: Format = "perfetto",
    title: str | None = None,
) -> Path:
    """Write a run for other tools; existing files of the same names are replaced.

    Parameters
    ----------
    analyser
        The run.
    path
        A file for Perfetto, a directory for the others.
    to
        ``"perfetto"``: one file in the Chrome Trace Event Format, for Perfetto and Chrome's
        trace viewer, compressed if its name ends in ``.gz``; ``"csv"``: each of the analyser's
        tables as a file for spreadsheets; ``"parquet"``: the tables of the `Trace`.
    title
        What to call the run; None: as its files do.

    Raises
    ------
    InvalidArgumentError
        If there is no such format.
    MissingExtraError
        If Parquet is wanted and pyarrow is not installed.
    OSError
        If a file cannot be written.
    """
    path, title = Path(path), title or title_of(analyser.trace)
    if to == "perfetto":
        write_perfetto(analyser.trace, path, title=title)
    elif to == "csv":
        write_csv_tables(analyser, path)
    elif to == "parquet":
        write_parquet(analyser.trace, path, title=title)
    else:
        raise InvalidArgumentError(f"to={to!r}: give one of {', '.join(get_args(Format))}.")
    return path
