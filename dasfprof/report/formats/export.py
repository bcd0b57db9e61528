"""`export`: a run in the formats of other tools."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.errors import InvalidArgumentError
from dasfprof.report.formats import all_formats
from dasfprof.report.run_summary import title_of

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser


def export(
    analyser: TraceAnalyser,
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
    formats = all_formats()
    path = Path(path)
    if to is None:
        to = _format_of(path)
    if to not in formats:
        raise InvalidArgumentError(f"to={to!r}: give one of {', '.join(formats)}.")
    formats[to].check_installed()
    formats[to].write(analyser, path, title or title_of(analyser.trace))
    return path


def _format_of(path: Path) -> str:
    """Return the format with the longest ending that a path has, compressed or not."""
    endings = {name: each.ending.removesuffix(".gz") for name, each in all_formats().items()}
    fitting = [name for name in endings if path.name.removesuffix(".gz").endswith(endings[name])]
    return max(fitting, key=lambda name: len(endings[name]), default="perfetto")


if export.__doc__:  # None under `python -OO`
    _listed = (f'- ``"{each.name}"``: {each.about}' for each in all_formats().values())
    export.__doc__ = inspect.cleandoc(export.__doc__).replace("{formats}", "\n    ".join(_listed))
