"""Exports of runs to the formats of other tools: the function `export`, and all `FORMATS`.

To add a format, add a module here with a function that takes a `TraceAnalyser`, a path and the
run's title, and an entry in `FormatName` and `_ALL`.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dasfprof.errors import InvalidArgumentError

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser

FormatName = Literal["perfetto", "csv", "parquet", "speedscope", "otlp"]


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """A format of another tool."""

    name: str
    #: Description for ``--help`` and docstrings.
    about: str
    #: Ending of the default name of the output.
    ending: str
    #: How to open the output. This is printed after the output was written.
    hint: str
    #: Name of a module in this package, and of its function that writes a run.
    writer: str


_ALL = (
    ExportFormat(
        name="perfetto",
        about="a Chrome trace (JSON) for Perfetto and other viewers, compressed if its name ends "
        "in .gz",
        ending=".json.gz",
        hint="Open it at https://ui.perfetto.dev (it stays on this machine).",
        writer="chrome:write_chrome_trace",
    ),
    ExportFormat(
        name="csv",
        about="a directory with all tables as CSV files, for spreadsheets",
        ending="-csv",
        hint="Times are in seconds since the start of the run, or in UTC. Empty cells are NA.",
        writer="tables:write_tables",
    ),
    ExportFormat(
        name="parquet",
        about="a directory with the recorded events as Parquet files, for pandas, DuckDB or Spark",
        ending="-parquet",
        hint="The metadata of the fields, and PARQUET.md, describe the columns and their units.",
        writer="tables:write_parquet",
    ),
    ExportFormat(
        name="speedscope",
        about="flame graphs of the sampled stacks for speedscope, for all tasks and per function",
        ending=".speedscope.json",
        hint="Open it at https://www.speedscope.app (it stays on this machine), and choose Left "
        "Heavy. Equal stacks are added up, so their order has no meaning.",
        writer="speedscope:write_speedscope",
    ),
    ExportFormat(
        name="otlp",
        about="the run, its steps and its task runs as OpenTelemetry spans, in JSON with one "
        "request per line, compressed if the name of the file ends in .gz",
        ending=".otlp.jsonl",
        hint="Read it with the otlpjsonfile receiver of a collector, or send it with --endpoint.",
        writer="otlp:write_otlp",
    ),
)
#: The formats by their names.
FORMATS = {each.name: each for each in _ALL}


def export(
    analyser: Analyser,
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    title: str | None = None,
) -> Path:
    """Write a run for other tools. Existing files with the same names are replaced.

    Parameters
    ----------
    analyser
        The run.
    path
        The file or directory to write.
    to
        The format. The default depends on the path's suffix, and is ``"perfetto"`` if no format has
        this suffix. The formats are:

    {formats}
    title
        Name of the run in the output. Default: the name in the trace files.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    InvalidArgumentError
        If there is no such format.
    MissingExtraError
        If the format needs a library that is not installed.
    OSError
        If a file cannot be written.
    """
    from dasfprof.report.run_summary import title_of

    path = Path(path)
    if to is None:
        to = _format_of(path)
    if to not in FORMATS:
        raise InvalidArgumentError(f"to={to!r}: expected one of {', '.join(FORMATS)}.")
    module, _, function = FORMATS[to].writer.partition(":")
    write = getattr(import_module(f"{__name__}.{module}"), function)
    write(analyser, path, title or title_of(analyser.run))
    return path


def _format_of(path: Path) -> str:
    """Return the name of the format with a path's suffix, or of the default format.

    It does not matter whether the path ends in ``.gz``.
    """
    name = path.name.removesuffix(".gz")
    fitting = [each for each in _ALL if name.endswith(each.ending.removesuffix(".gz"))]
    # If the suffixes of several formats match, the longest of them counts.
    return max(fitting, key=lambda each: len(each.ending), default=_ALL[0]).name


#: Characters of a run's name that are kept in a file name. All other characters become dashes.
_SIGNS = "-_.+ "
_LONGEST = 200


def file_for(title: str, ending: str) -> Path:
    """Return a path in the working directory for a file that is named after the run."""
    stem = "".join(sign if sign.isalnum() or sign in _SIGNS else "-" for sign in title)
    return Path(f"{stem.lstrip('.-')[:_LONGEST] or 'run'}{ending}")


if export.__doc__:  # None under `python -OO`
    _listed = (f'- ``"{each.name}"``: {each.about}' for each in _ALL)
    export.__doc__ = inspect.cleandoc(export.__doc__).replace("{formats}", "\n    ".join(_listed))
