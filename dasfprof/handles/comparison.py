"""`compare`: two sides of runs, side by side, and the page of it."""

from __future__ import annotations

import os
from pathlib import Path

from dasfprof.analysis.comparison import Comparison
from dasfprof.analysis.comparison.runs import Sources, open_side


def compare(before: Sources, after: Sources) -> RunComparison:
    """Compare two runs, or several of each of two sides.

    Parameters
    ----------
    before, after
        What `open_run` takes, a `TraceAnalyser`, a `Trace`, or a list of those. A directory with
        several runs, or of directories with a run each, stands for all of them.

    Returns
    -------
    RunComparison
        Its tables answer what differs; ``print(comparison)`` is the verdict.

    Raises
    ------
    SourceNotFoundError, NotATraceError
        If there is no such trace.
    InvalidArgumentError
        If a side has no run, or a source is of another type.

    Examples
    --------
    >>> dasfprof.compare("traces/before", "traces/after").waterfall()  # doctest: +SKIP
    """
    return RunComparison(open_side(before), open_side(after))


class RunComparison(Comparison):
    """Two sides of runs of a pipeline, before and after a change; see `compare`."""

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the comparison as one HTML file that needs neither server nor network.

        Parameters
        ----------
        path
            The file; an existing one is replaced.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        from dasfprof.report.page.html import write_comparison

        return write_comparison(self, path)
