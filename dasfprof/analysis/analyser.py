"""`TraceAnalyser`: questions to a recorded run, and DataFrames for answers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.analysis.large.run import LargeRun, memory_of_window, needed_memory, refuse_whole
from dasfprof.analysis.methods import Questions
from dasfprof.analysis.tables import task_graph
from dasfprof.analysis.tables.questions import Request
from dasfprof.analysis.trace import Source, Trace
from dasfprof.analysis.trace.progress import is_wanted
from dasfprof.analysis.trace.trace import databases_of
from dasfprof.database import EventDatabase, FileDatabase
from dasfprof.text import count_of, escape

if TYPE_CHECKING:
    import networkx as nx
    from distributed import Client


class TraceAnalyser(Questions):
    """Answers questions about a recorded run.

    Parameters
    ----------
    source
        A `Trace`; a `MultiEventDatabase`, an `EventProfiler` or another database of events; a
        list of databases or paths; or what `dasfprof.open_run` takes: a file, a directory, a
        glob, or a run's name.
    client
        A Dask client, whose cluster then analyses the run part by part, on the workers that see
        all of its files.
    progress
        Whether to show progress bars on standard error; None leaves it to the config's
        ``dasfprof.progress``, whose null means: when a person is watching.

    Raises
    ------
    InvalidArgumentError
        If the source is of another type, or stands for several runs.
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

    def __init__(
        self,
        source: Source | Trace,
        *,
        client: Client | None = None,
        progress: bool | None = None,
    ) -> None:
        self._progress = is_wanted(progress)
        self._large: LargeRun | None = None
        if isinstance(source, Trace):
            self.trace = source
            return
        self._source = source
        if client is not None:
            from dasfprof.analysis.large.cluster import cluster_run

            self._large = cluster_run(client, source, progress=self._progress)
            return
        memory = memory_of_window(self._databases)
        if memory:
            files = [item for item in self._databases if isinstance(item, FileDatabase)]
            sources = [file.trace_file() for file in files]  # with all that is pending
            self._large = LargeRun(sources, memory, progress=self._progress)
        else:
            self.trace = self._read()

    @cached_property
    def _databases(self) -> list[EventDatabase]:
        return databases_of(self._source)

    def _read(self) -> Trace:
        return Trace.from_database(self._databases, progress=self._progress)

    @cached_property
    def trace(self) -> Trace:
        """The run as tables.

        Raises
        ------
        BeyondMemoryError
            If they do not fit into memory.
        """
        known = vars(self._large or self)
        refuse_whole(needed_memory(self._databases), known.get("why_not", ""))
        return self._read()

    @property
    def is_in_parts(self) -> bool:
        """Whether the run is analysed part by part, since it would take too much memory."""
        return self._large is not None

    @property
    def in_memory(self) -> Trace:
        """What is in memory of the run: `trace`, or of a run in parts all but what has many rows.

        Then its tables of task runs and transfers tell nothing.
        """
        return self.trace if self._large is None else self._large.frame

    def answers(self, request: Request) -> bool:
        """Return whether a question can be answered without the whole run in memory."""
        if self._large is None:
            return False
        return self._large.answers(request.question, request.arguments)

    def prepare(self, requests: Iterable[Request]) -> None:
        """Look at a run that is analysed part by part once for several questions, not for each."""
        if self._large is not None:
            self._large.gather(requests)

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
        to: str | None = None,
        title: str | None = None,
    ) -> Path:
        """Write the run for other tools; existing files of the same names are replaced.

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
        from dasfprof import export

        return export(self, path, to=to, title=title)

    def __repr__(self) -> str:
        if self._large is not None:
            files = count_of(len(self._large.sources), "file")
            return f"TraceAnalyser(a run of {files}, part by part)"
        return f"TraceAnalyser({self.trace!r})"

    def _repr_html_(self) -> str:
        if self._large is not None:
            return f"<p>{escape(repr(self))}</p>"
        from dasfprof import analyser_html

        return str(analyser_html(self))
