"""`ParallelRunReports`: the reports that users of parallel-run services know, for Dask."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis.model import degradation
from dasfprof.analysis.tables import process_summary, processed_tasks, resource_usage, task_counts
from dasfprof.analysis.trace import Trace


class ParallelRunReports:
    """The reports of a parallel-run service, a part of `TraceAnalyser`.

    Their labels are those of Azure's ParallelRunStep, whose mini-batch is a task here, whose
    process is a worker, and whose ``run()`` is the task's function.
    """

    trace: Trace

    def processed_tasks(self, by: processed_tasks.By = "task") -> pd.DataFrame:
        """List what became of each attempt at a task, or sum it up by function.

        Parameters
        ----------
        by
            ``"task"``, ``"function"`` or ``"step"``.

        Returns
        -------
        DataFrame
            By task a row an attempt, in the order of their start:

            - ``Task`` (its key), ``Attempt`` (from 1), ``Process`` (the worker)
            - ``Start Time (UTC)``: it was given a thread
            - ``Elapsed Seconds``: from then until its worker knew the outcome, with unspilling and
              deserialising; NA where no worker's file tells
            - ``Process Seconds``: CPU time of the task's thread alone, not of others that it
              used; NA for coroutines
            - ``Run Method Seconds``: of its function
            - ``Status``: the state that it ended in, in Dask's words
            - ``Error Category``: the exception's type, ``worker lost``, ``cancelled``,
              ``rescheduled`` or ``unknown``; NA if it succeeded; ``Error Message``
            - ``Function``, ``Node``
            - ``Core Wait Seconds``: of its function, in which its thread could compute and the
              host gave it no core; NA where that was not recorded, as for coroutines

            Tasks that a worker had been sent as it left are attempts too, though they may not
            have begun.

            By function or step a row each, the most seconds in it first: its name, ``Total``
            (attempts), ``Succeeded``, ``Failed`` (total less succeeded), ``Retried`` (attempts
            beyond the first), ``Start Time (UTC)`` of the first, ``End Time (UTC)`` of the last,
            the sums of the three seconds, ``Mean Elapsed Seconds``, ``Process / Elapsed (%)``
            over attempts of which both are known, and the sum of ``Core Wait Seconds``.
        """
        return processed_tasks.processed_tasks(self.trace, by)

    def process_summary(self) -> pd.DataFrame:
        """Sum up `processed_tasks` by worker.

        Returns
        -------
        DataFrame
            A row a worker, by node and name: ``Node``, ``Process``, ``Threads``, ``Restarts``
            (of a worker of this name), ``Share of Tasks (%)``, and the columns that
            `processed_tasks` has by function. A worker that had no task is listed where a file
            of it is there.
        """
        return process_summary.process_summary(self.trace)

    def node_summary(self) -> pd.DataFrame:
        """Sum up `processed_tasks` by node.

        Returns
        -------
        DataFrame
            A row a host, by name: ``Node``, ``Processes``, ``Threads`` (NA if one worker's are
            unknown), ``Share of Tasks (%)``, and the columns that `processed_tasks` has by
            function. Shares far apart on equal nodes say that there are more of them than the
            run has work for.
        """
        return process_summary.node_summary(self.trace)

    def task_counts(self, interval: float | None = None) -> pd.DataFrame:
        """Count the attempts at tasks by interval, host, worker and status.

        Parameters
        ----------
        interval
            Seconds; None chooses a length that gives 60 intervals at most.

        Returns
        -------
        DataFrame
            A row for what there was: ``Time Interval (seconds from begin)`` (in which they
            started), ``Host``, ``Worker``, ``Status``, ``Tasks``; in this order.
        """
        return task_counts.task_counts(self.trace, interval)

    def degradation(self) -> pd.DataFrame:
        """Test whether each function gets slower as the run goes on, by the steps of the guide.

        Returns
        -------
        DataFrame
            A row a function, the most seconds in it first:

            - ``Function``, ``Attempts`` (those that succeeded; no others count here)
            - ``Count Falling``: fewer of them start in equal times
            - ``Run Method Seconds Rising``, ``Elapsed Seconds Rising``, ``Process Seconds
              Rising``, ``Input Size Rising``
            - ``Count Last/First Third``, ``Run Method Seconds Last/First Third`` and so on: the
              last third of its attempts by the first
            - ``Verdict``: what follows, in words

            A quantity rises if its rank correlation with time is 0.6 at least and its last third
            1.3 times its first; a number falls by the same measure. NA stands for fewer than 12
            attempts, or where no file tells.
        """
        return degradation.degradation(self.trace)

    def node_resource_usage(self) -> pd.DataFrame:
        """List what was sampled of each host.

        Returns
        -------
        DataFrame
            A row a sample, by host and time: ``Node``, ``Utc Time``, ``Cpu Percent`` (of all
            cores), ``Memory Total (MB)``, ``Memory Available (MB)`` (without swapping), ``Memory
            Used (MB)``, ``Memory Used Percent`` (what is not available), ``Disk Io Read Count``,
            ``Disk Io Write Count``, ``Disk Io Read (MB)``, ``Disk Io Write (MB)``, ``Network
            Sent (MB)``, ``Network Recv (MB)`` (these six since the host's boot), ``# of TCP
            Connections``, ``# of UDP Connections``, and since the boot ``Cpu Pressure Seconds``,
            ``Memory Pressure Seconds``, ``Io Pressure Seconds`` (some of the host's tasks waited
            for it). NA is what the host does not tell.
        """
        return resource_usage.node_resource_usage(self.trace)

    def node_disk_usage(self) -> pd.DataFrame:
        """List what was read of each disk of each host.

        Returns
        -------
        DataFrame
            A row a reading, by host, device and time: ``Node``, ``Device``, ``Mountpoint``,
            ``File System``, ``Local Directory`` (workers spill there), ``Utc Time``, ``Disk
            Total (MB)``, ``Disk Used (MB)``, ``Disk Free (MB)``, ``Disk Used Percent`` (of what
            users can have), and since the host's boot ``Disk Io Read Count``, ``Disk Io Write
            Count``, ``Disk Io Read (MB)``, ``Disk Io Write (MB)``, ``Disk Io Read Seconds``,
            ``Disk Io Write Seconds``. A device that is not mounted has NA for its space.
        """
        return resource_usage.node_disk_usage(self.trace)

    def processes_resource_usage(self) -> pd.DataFrame:
        """List what was sampled of each worker's process.

        Returns
        -------
        DataFrame
            A row a sample, by host, worker and time: ``Node``, ``Process``, ``Utc Time``, ``Cpu
            Percent`` (of one core), ``Memory Used (MB)`` (resident), ``Memory Used Percent`` (of
            the host's), and since the process began ``Process Seconds`` (CPU), ``Disk Io Read
            (MB)``, ``Disk Io Write (MB)``; ``# of Threads``, ``# of File Descriptors``, ``# of
            Connections``.
        """
        return resource_usage.processes_resource_usage(self.trace)
