"""`TraceAnalyser`: the analyses of a recorded run, and its report."""

from __future__ import annotations

import os
from pathlib import Path

from dasfprof.analysis.analyser import Analyser


class TraceAnalyser(Analyser):
    """Answers questions about a recorded run.

    Parameters
    ----------
    source
        A `Trace`, a `MultiEventDatabase`, an `EventProfiler` or another database of events, a list
        of databases or paths, or an argument of `dasfprof.open_run`: a file, a directory, a glob,
        or a run's name.
    client
        The name of a client, such as ``"ann"``. Then only its tasks, errors and findings are
        analysed, and the thread time of all other tasks is the category *Other clients*. Or a Dask
        client. Then its cluster analyses the run part by part, on the workers that see all files of
        the run.
    progress
        Whether to show progress bars on standard error. None means the value of
        ``dasfprof.progress`` in Dask's config. If this is null, terminals and notebooks show them.

    Raises
    ------
    InvalidArgumentError
        If the source has another type, contains several runs, or has no client with this name.
    SourceNotFoundError, NotATraceError
        If there is no such trace, or no worker of the client's cluster sees all files of the run.

    Notes
    -----
    A run that needs more memory than ``dasfprof.analysis-memory`` in Dask's config (by default a
    quarter of the free memory) is analysed part by part. Sums, counts and rankings are the same as
    in memory, but tables with one row per task run end after 10,000 rows, with a warning. Other
    analyses run in memory if it is sufficient.

    Values without evidence are NA, for example without a GPU, without the scheduler's file, or
    after a worker was killed. ``analyser.trace.notes`` lists the reasons.

    Examples
    --------
    >>> TraceAnalyser("traces/Tutorial_5").per_function_bottleneck()  # doctest: +SKIP
    """

    def report(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write the run as one HTML file that works offline.

        Parameters
        ----------
        path
            The file. An existing file is replaced.
        title
            Title of the report. The default is the run's name.

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
            The file or directory to write, depending on the format.
        to
            The format, for example ``"perfetto"``. The default depends on the path's suffix.
            `dasfprof.export` lists all formats.
        title
            Name of the run in the output. The default is the name in the trace files.

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
