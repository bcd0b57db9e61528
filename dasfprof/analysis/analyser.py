"""`TraceAnalyser`: questions to a recorded run, and DataFrames for answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.analysis.methods import Questions
from dasfprof.analysis.tables import task_graph
from dasfprof.analysis.trace import Source, Trace
from dasfprof.analysis.trace.progress import is_wanted

if TYPE_CHECKING:
    import networkx as nx


class TraceAnalyser(Questions):
    """Answers questions about a recorded run.

    Parameters
    ----------
    source
        A `Trace`; a `MultiEventDatabase`, an `EventProfiler` or another database of events; a
        list of databases or paths; or what `dasfprof.open_run` takes: a file, a directory, a
        glob, or a run's name.
    progress
        Whether to show progress bars on standard error; None leaves it to the config's
        ``dasfprof.progress``, whose null means: when a person is watching.

    Raises
    ------
    InvalidArgumentError
        If the source is of another type, or stands for several runs.
    SourceNotFoundError, NotATraceError
        If there is no such trace.

    Notes
    -----
    Where evidence is missing (no GPU, no scheduler's file, a worker that was killed) the tables
    have NA, and ``analyser.trace.notes`` says why.

    Examples
    --------
    >>> TraceAnalyser("traces/Tutorial_5").per_function_bottleneck()  # doctest: +SKIP
    """

    def __init__(self, source: Source | Trace, *, progress: bool | None = None) -> None:
        self._progress = is_wanted(progress)
        #: The run as tables.
        self.trace = (
            source
            if isinstance(source, Trace)
            else Trace.from_database(source, progress=self._progress)
        )

    def create_annotated_task_graph(self) -> nx.DiGraph[str]:
        """Return the task graph.

        Returns
        -------
        networkx.DiGraph
            A node a key, called by its text, with an edge from each dependency. A key that ran
            has the attributes ``name``, ``size`` (bytes), ``shape``, ``type``, ``duration``
            (s), ``input_data_size`` (bytes) and ``throughput`` (bytes/s), of its last run. A
            million tasks take gigabytes this way: `Trace.dependencies` holds the same graph as
            arrays.
        """
        return task_graph.create_annotated_task_graph(self.trace, progress=self._progress)

    def report(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write the run as one HTML file that needs neither server nor network.

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
        # A look upwards: the report is what most people ask the analyser for.
        from dasfprof import write_report

        return write_report(self, path, title=title)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        to: str = "perfetto",
        title: str | None = None,
    ) -> Path:
        """Write the run for other tools; existing files of the same names are replaced.

        Parameters
        ----------
        path
            The file or directory to write, as the format has it.
        to
            The format, ``"perfetto"`` for example: `dasfprof.export` lists all.
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
        from dasfprof import export

        return export(self, path, to=to, title=title)

    def __repr__(self) -> str:
        return f"TraceAnalyser({self.trace!r})"

    def _repr_html_(self) -> str:
        from dasfprof import analyser_html

        return str(analyser_html(self))
