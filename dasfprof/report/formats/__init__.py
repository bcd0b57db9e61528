"""Runs in the formats of other tools: `export`, and `FORMATS`, the table of them.

To add a format, write a module here with a function that takes a `TraceAnalyser`, a path and the
run's title, and enter it in `FormatName` and `FORMATS`. `dasfprof.export`, `TraceAnalyser.export`,
``dasfprof export`` and their help then have it.
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
    """A format in which a run can be written."""

    #: What users call it.
    name: str
    #: What is written and for whom, as a clause for ``--help`` and docstrings.
    about: str
    #: How the name of the output ends where the user gives none.
    ending: str
    #: What to do with the output, or how to read it; printed when it is written.
    hint: str
    #: Its module here, which is imported when a run is written, and the function that writes.
    writer: str

    def write(self, analyser: Analyser, path: Path, title: str) -> None:
        """Write a run, called by a title, to a path; existing files are replaced.

        Raises
        ------
        MissingExtraError
            If it needs a library that is not installed.
        OSError
            If a file cannot be written.
        """
        module, _, function = self.writer.partition(":")
        getattr(import_module(f"{__name__}.{module}"), function)(analyser, path, title)


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
        about="a directory with each of the analyser's tables, for spreadsheets",
        ending="-csv",
        hint="Times are seconds from the run's begin, or UTC; NA is an empty cell.",
        writer="tables:write_tables",
    ),
    ExportFormat(
        name="parquet",
        about="a directory with the tables of the trace, typed, for pandas, DuckDB, Spark and "
        "others",
        ending="-parquet",
        hint="Each column's meaning and unit are in its field's metadata, and in PARQUET.md.",
        writer="tables:write_parquet",
    ),
    ExportFormat(
        name="speedscope",
        about="sampled stacks for speedscope, a viewer of flame graphs: of all tasks, and by "
        "function",
        ending=".speedscope.json",
        hint="Open it at https://www.speedscope.app (it stays on this machine); see *Left Heavy*: "
        "equal stacks are added up, so their order means nothing.",
        writer="speedscope:write_speedscope",
    ),
    ExportFormat(
        name="otlp",
        about="OpenTelemetry's protocol as JSON, one request per line: run, steps and task runs as "
        "spans; compressed if its name ends in .gz",
        ending=".otlp.jsonl",
        hint="A collector reads it with its otlpjsonfile receiver; --endpoint sends it.",
        writer="otlp:write_otlp",
    ),
)
#: The formats by name.
FORMATS = {each.name: each for each in _ALL}


def export(
    analyser: Analyser,
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    title: str | None = None,
) -> Path:
    """Write a run for other tools; existing files of the same names are replaced.

    Parameters
    ----------
    analyser
        The run.
    path
        The file or directory to write, as the format has it.
    to
        The format; None: the one whose files end like the path, or else ``"perfetto"``:

    {formats}
    title
        Name of the run in the output. Default: the name in the trace files.

    Returns
    -------
    Path
        What was written.

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
        raise InvalidArgumentError(f"to={to!r}: give one of {', '.join(FORMATS)}.")
    FORMATS[to].write(analyser, path, title or title_of(analyser.run))
    return path


def _format_of(path: Path) -> str:
    """Return the format with the longest ending that a path has, compressed or not."""
    name = path.name.removesuffix(".gz")
    fitting = [each for each in _ALL if name.endswith(each.ending.removesuffix(".gz"))]
    return max(fitting, key=lambda each: len(each.ending), default=_ALL[0]).name


#: Signs of a run's name that a file's name keeps; others become dashes.
_SIGNS = "-_.+ "
_LONGEST = 200


def file_for(title: str, ending: str) -> Path:
    """Return a path in the working directory that is named after a run."""
    stem = "".join(sign if sign.isalnum() or sign in _SIGNS else "-" for sign in title)
    return Path(f"{stem.lstrip('.-')[:_LONGEST] or 'run'}{ending}")


if export.__doc__:  # None under `python -OO`
    _listed = (f'- ``"{each.name}"``: {each.about}' for each in _ALL)
    export.__doc__ = inspect.cleandoc(export.__doc__).replace("{formats}", "\n    ".join(_listed))
