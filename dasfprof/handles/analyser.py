"""`TraceAnalyser`: a recorded run with its files and its report."""

from __future__ import annotations

import os
from pathlib import Path

from dasfprof.analysis.analyser import Analyser
from dasfprof.text import escape


class TraceAnalyser(Analyser):
    """Answers questions about a recorded run.

    Parameters
    ----------
    source
        A `Trace`; a `MultiEventDatabase`, an `EventProfiler` or another database of events; a
        list of databases or paths; or what `dasfprof.open_run` takes: a file, a directory, a
        glob, or a run's name.
    client
        The name of a client, such as ``"ann"``: the analysis is of its tasks alone, errors and
        findings too. The tasks of all others are the thread time *Other clients*. Or a Dask client,
        whose cluster then analyses the run part by part, on the workers that see all of its files.
    progress
        Whether to show progress bars on standard error; None leaves it to the config's
        ``dasfprof.progress``, whose null means: when a person is watching.

    Raises
    ------
    InvalidArgumentError
        If the source is of another type, or stands for several runs, or has no client of the name.
    SourceNotFoundError, NotATraceError
        If there is no such trace, or no worker of the client's cluster sees all of its files.

    Notes
    -----
    A run that would take more memory than the setting ``dasfprof.analysis-memory`` (by default a
    quarter of what is free) is analysed part by part: questions that sum up, count and rank have
    the same answers then, but tables with a row a task run end after 10,000 rows, with a warning.
    Others are answered in memory, if that is enough.

    Where evidence is missing (no GPU, no scheduler's file, a worker that was killed) the tables
    have NA, and ``analyser.trace.notes`` says why.

    Examples
    --------
    >>> TraceAnalyser("traces/Tutorial_5").per_function_bottleneck()  # doctest: +SKIP
    """

    def report(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write the run as one HTML file that works offline.

        Parameters
        ----------
        path
            The file; an existing one is replaced.
        title
            What to call the run; None: as its files do.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        from dasfprof.report.page.html import write_report

        return write_report(self, path, title=title)

    def export(
        self, path: str | os.PathLike[str], *, to: str | None = None, title: str | None = None
    ) -> Path:
        """Write the run in the format of another tool.

        Existing files with the same names are replaced.

        Parameters
        ----------
        path
            The file or directory to write, as the format has it.
        to
            The format, ``"perfetto"`` for example; None: by the path's ending. `dasfprof.export`
            lists all.
        title
            Name of the run in the output. Default: the name in the trace files.

        Raises
        ------
        InvalidArgumentError
            If there is no such format.
        MissingExtraError
            If the format needs a library that is not installed.
        OSError
            If a file cannot be written.
        """
        from dasfprof.report.formats import export

        return export(self, path, to=to, title=title)

    def _repr_html_(self) -> str:
        if self.is_in_parts:
            return f"<p>{escape(repr(self))}</p>"
        from dasfprof.report.notebook import analyser_html

        return analyser_html(self)
