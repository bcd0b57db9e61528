"""`compare`: compares two groups of runs, and writes the comparison as a page."""

from __future__ import annotations

import os
from pathlib import Path

from dasfprof.analysis.comparison import Comparison
from dasfprof.analysis.comparison.runs import Sources, open_side


def compare(before: Sources, after: Sources) -> RunComparison:
    """Compare two runs, or two groups of runs.

    Parameters
    ----------
    before, after
        An argument of `open_run`, a `TraceAnalyser`, a `Trace`, or a list of these. For a directory
        with several runs, or with one run per subdirectory, all of its runs are compared.

    Returns
    -------
    RunComparison
        Tables of the differences. ``print(comparison)`` prints the verdict.

    Raises
    ------
    SourceNotFoundError, NotATraceError
        If there is no such trace.
    InvalidArgumentError
        If a side has no run, or a source has another type.

    Examples
    --------
    >>> dasfprof.compare("traces/before", "traces/after").waterfall()  # doctest: +SKIP
    """
    return RunComparison(open_side(before), open_side(after))


class RunComparison(Comparison):
    """Two groups of runs of a pipeline, before and after a change. See `compare`."""

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the comparison as one HTML file that needs neither server nor network.

        Parameters
        ----------
        path
            The file. An existing file is replaced.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        from dasfprof.report.page.html import write_comparison

        return write_comparison(self, path)
