"""`TraceAnalyser`: questions to a recorded run, and DataFrames for answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from dasfprof.analysis.balance_questions import BalanceQuestions
from dasfprof.analysis.diagnosis.question import DiagnosisQuestion
from dasfprof.analysis.model import gpu_utilisation
from dasfprof.analysis.parallel_run_reports import ParallelRunReports
from dasfprof.analysis.replay_questions import ReplayQuestions
from dasfprof.analysis.step_questions import StepQuestions
from dasfprof.analysis.tables import (
    function_bottleneck,
    own_events,
    task_balance,
    task_bottleneck,
    task_graph,
)
from dasfprof.analysis.time_questions import TimeQuestions
from dasfprof.analysis.trace import Source, Trace
from dasfprof.analysis.trace.progress import is_wanted

if TYPE_CHECKING:
    import networkx as nx

    from dasfprof.report.formats import FormatName


class TraceAnalyser(
    TimeQuestions,
    BalanceQuestions,
    ParallelRunReports,
    StepQuestions,
    DiagnosisQuestion,
    ReplayQuestions,
):
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

    def per_function_bottleneck(self) -> pd.DataFrame:
        """Sum up the task runs of each function on each worker.

        Returns
        -------
        DataFrame
            A row a worker and function, the longest duration first:

            - ``Host``, ``GPU`` (index of the worker's device by NVML, NA if it has none),
              ``Function`` (as `dask.utils.key_split` names the key)
            - ``Duration (s)``: the sum over its task runs, failed ones too
            - ``Percentage of total time (%)``: of all compute seconds of that worker
            - ``Mean GPU Utilization (%)``, ``Mean GPU Memory Used (GB)``: of the worker's
              device while the function ran there, weighted by time
            - ``Mean Data Size (MB)``: input bytes of a task run
            - ``Mean Throughput (MB/s)``: all input bytes by all seconds
            - ``Num Tasks (chunks)``, ``Mean Task time (s)``, ``Worker``, ``Failed Tasks``
            - ``CPU (s)``, ``Waiting for a core (s)``, ``Blocked (s)``: of the duration, what its
              threads computed, could have computed had the host given them a core, and did
              neither (I/O, locks, sleep); of the task runs of which it is recorded, NA if of none
        """
        return function_bottleneck.per_function_bottleneck(self.trace, progress=self._progress)

    def per_task_bottleneck(self) -> pd.DataFrame:
        """List the task runs, the longest first.

        Returns
        -------
        DataFrame
            A row a task run, each attempt of a key its own: ``Host``, ``GPU``, ``Task Key``,
            ``Duration (s)``, ``Percentage of total time (%)`` (of all compute seconds of that
            worker), ``Memory usage (Mb)`` (of the result), ``Worker``, ``Function``,
            ``Run ID`` (Dask's; where none was recorded the runs of each key count from 0),
            ``State`` (that it ended in), ``Start (s)`` (from the trace's begin), ``GPU Samples``
            (of the worker's device within the run; NA without a device), and ``Mean GPU
            Utilization (%)``, ``Mean GPU Memory Used (GB)``, weighted by time, where there
            was one at least; ``CPU (s)``, ``Waiting for a core (s)``, ``Blocked (s)``: see
            `per_function_bottleneck`; NA where it was not recorded, as of coroutines.
        """
        return task_bottleneck.per_task_bottleneck(self.trace, progress=self._progress)

    def per_worker_task_balance(self) -> pd.DataFrame:
        """Count the tasks in memory on each worker over time.

        Returns
        -------
        DataFrame
            A row a second: ``Time Interval (seconds from begin)``, from the first count of the
            trace, and a column a worker with its number of tasks in memory at the end of that
            second, as last counted; 0 before its first count. Where two hosts have workers of
            one label, the columns are called by host and label.
        """
        return task_balance.per_worker_task_balance(self.trace)

    def per_gpu_utilisation(self, interval: float | None = None) -> pd.DataFrame:
        """Tell how busy each GPU was, and whether it idled while tasks ran on its workers.

        Parameters
        ----------
        interval
            Seconds for a row over time; None gives the whole run in one row.

        Returns
        -------
        DataFrame
            A row a device (and interval), by host and index:

            - ``Host``, ``GPU`` (NVML index), ``Name``, ``Workers`` (those whose own device it
              is; empty: nobody's, but there to be used)
            - ``Time Interval (seconds from begin)``, if an interval was given
            - ``Time (s)``: for which samples of the device are known; all other columns are
              about this time, NA where it is none
            - ``Mean GPU Utilization (%)``, ``Max GPU Utilization (%)``, ``Mean GPU Memory Used
              (GB)``, ``Max GPU Memory Used (GB)``, ``GPU Memory (GB)``, ``Mean Power (W)``
            - ``Tasks Ran (%)``: the share in which a task ran on one of its workers
            - ``Idle While Tasks Ran (%)``, ``Idle While No Task Ran (%)``: the shares in which
              no kernel ran on the device; with the mean utilisation they make 100
            - ``Samples``, ``UUID``
        """
        return gpu_utilisation.per_gpu_utilisation(self.trace, interval)

    def own_events(self) -> pd.DataFrame:
        """List the events that user code recorded, of kinds of its own.

        Returns
        -------
        DataFrame
            A row an event, by time: ``Event``, ``Kind`` (``span``, ``instant``; ``begin`` or
            ``end`` where the other is missing), ``Start (s)`` (from the trace's begin),
            ``Duration (s)`` (NA where nothing tells, and of instants), ``Process`` and ``Thread``
            as recorded, ``Args`` (JSON). An event that begins and one that ends something, of one
            name, process and thread, are one row, with the args of both.
        """
        return own_events.own_events(self.trace)

    def create_annotated_task_graph(self) -> nx.DiGraph[str]:
        """Give the task graph.

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
        to: FormatName = "perfetto",
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
