"""`ExportFormat`: what `export` and the command line need to know of a format."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.errors import MissingExtraError

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """A format in which a run can be written.

    Objects of it are made whenever the command line starts, so their modules import pandas, NumPy
    and other libraries only inside of `write`.
    """

    #: What users call it; the name of its module as well.
    name: str
    #: What is written and for whom, as a clause for ``--help`` and docstrings.
    about: str
    #: How the name of the output ends where the user gives none.
    ending: str
    #: What to do with the output, or how to read it; printed when it is written.
    hint: str
    #: Writes a run, called by a title, to a path. Existing files are replaced. It raises OSError if
    #: a file cannot be written.
    write: Callable[[TraceAnalyser, Path, str], None]
    #: A module that it needs beyond dasfprof's own dependencies, and the extra that installs it.
    needs: str | None = None
    extra: str | None = None

    def check_installed(self) -> None:
        """Raise `MissingExtraError` if the module that it needs is not installed."""
        if self.needs is None:
            return
        try:
            importlib.import_module(self.needs)
        except ImportError as error:
            raise MissingExtraError(
                f"the format {self.name!r} needs {self.needs.partition('.')[0]}: "
                f"pip install 'dasfprof[{self.extra}]'."
            ) from error
