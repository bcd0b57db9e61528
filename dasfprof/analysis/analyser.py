"""`Analyser`: the analyses of a recorded run as methods that return DataFrames."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from dasfprof.analysis.large.run import (
    LargeRun,
    cluster_run,
    memory_of_window,
    needed_memory,
    refuse_too_large,
)
from dasfprof.analysis.methods import Questions
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.questions import Request
from dasfprof.analysis.trace import Source, Trace
from dasfprof.analysis.trace.progress import is_wanted
from dasfprof.analysis.trace.trace import databases_of
from dasfprof.database import EventDatabase, FileDatabase
from dasfprof.text import count_of

if TYPE_CHECKING:
    import networkx as nx
    from distributed import Client

    from dasfprof.analysis.diagnosis.registry import Finding


class Analyser(Questions):
    """The analyses of a recorded run.

    This is the base class of `TraceAnalyser`, which can also write files and HTML pages.

    Parameters
    ----------
    source, client, progress
        See `TraceAnalyser`.

    Raises
    ------
    InvalidArgumentError, SourceNotFoundError, NotATraceError
        See `TraceAnalyser`.
    """

    def __init__(
        self,
        source: Source | Trace,
        *,
        client: Client | str | None = None,
        progress: bool | None = None,
    ) -> None:
        self._progress = is_wanted(progress)
        self._large: LargeRun | None = None
        if isinstance(source, Trace):
            self.trace = source
            return
        self._source = source
        self._client = client if isinstance(client, str) else None
        if isinstance(client, str):
            refuse_too_large(needed_memory(self._databases))
            self.trace = self._read()
            return
        if client is not None:
            self._large = cluster_run(client, source, progress=self._progress)
            return
        memory = memory_of_window(self._databases)
        if memory:
            files = [item for item in self._databases if isinstance(item, FileDatabase)]
            sources = [file.trace_file() for file in files]  # Including all pending events.
            self._large = LargeRun(sources, memory, progress=self._progress)
        else:
            self.trace = self._read()

    @cached_property
    def _databases(self) -> list[EventDatabase]:
        return databases_of(self._source)

    def _read(self) -> Run:
        return Run.from_database(self._databases, client=self._client, progress=self._progress)

    @cached_property
    def trace(self) -> Trace:
        """The run as tables.

        Raises
        ------
        BeyondMemoryError
            If the tables do not fit into memory.
        """
        known = vars(self._large or self)
        refuse_too_large(needed_memory(self._databases), known.get("why_not", ""))
        return self._read()

    @property
    def is_in_parts(self) -> bool:
        """Whether the run is analysed in time windows because it would take too much memory."""
        return self._large is not None

    @property
    def run(self) -> Run:
        """The run in normal form, which all analyses use."""
        return Run.from_trace(self.trace)

    @property
    def in_memory(self) -> Run:
        """The part of the run that is in memory.

        If the run is analysed in time windows, the tables of task runs and transfers are empty.
        """
        return self.run if self._large is None else self._large.frame

    def answers(self, request: Request) -> bool:
        """Return whether a table can be computed in time windows."""
        if self._large is None:
            return False
        return self._large.answers(request.question, request.arguments)

    def prepare(self, requests: Iterable[Request]) -> None:
        """Compute several tables in one pass, if the run is analysed in time windows."""
        if self._large is not None:
            self._large.gather(requests)

    def findings(self, least: float = 0.1) -> list[Finding]:
        """Return the findings of `diagnose` as objects with figures, locations and settings."""
        from dasfprof.analysis.diagnosis import find

        return find(self.run, least=least)

    def create_annotated_task_graph(self) -> nx.DiGraph[str]:
        """Return the task graph.

        Returns
        -------
        networkx.DiGraph
            One node per key, named by the text of the key, with an edge from each dependency. Keys
            with task runs have the attributes ``name``, ``size`` (bytes), ``shape``, ``type``,
            ``duration`` (s), ``input_data_size`` (bytes) and ``throughput`` (bytes/s) of the last
            task run. A million tasks need gigabytes of memory in this form. `Trace.dependencies`
            has the same graph as arrays.
        """
        from dasfprof.analysis.tables.critical_path import create_annotated_task_graph

        return create_annotated_task_graph(self.run, progress=self._progress)

    def __repr__(self) -> str:
        if self._large is not None:
            files = count_of(len(self._large.sources), "file")
            return f"{type(self).__name__}(a run of {files}, part by part)"
        return f"{type(self).__name__}({self.trace!r})"
