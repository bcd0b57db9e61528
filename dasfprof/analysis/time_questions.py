"""`TimeQuestions`: where the seconds of a run went, and what they depended on."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis.model import accounting as time_accounting
from dasfprof.analysis.model import critical_path
from dasfprof.analysis.model import slack as task_slack
from dasfprof.analysis.model import statuses as task_status
from dasfprof.analysis.model.critical_path import By as PathGrouping
from dasfprof.analysis.trace import Trace


class TimeQuestions:
    """Questions about where time went, a part of `TraceAnalyser`."""

    trace: Trace

    def per_task_status(self) -> pd.DataFrame:
        """Tell what each task run waited for and did, from its arrival to its known outcome.

        Returns
        -------
        DataFrame
            A row a task run, the longest total first: ``Task Key``, ``Function``, ``Host``,
            ``Worker``, ``Run ID``, ``State``, ``Arrival (s)`` (from the trace's begin), then

            - ``Not started (s)``: known to the scheduler, waiting for dependencies
            - ``Inqueue (s)``: runnable, and held at the scheduler, on its way to a worker, or
              there and waiting for a thread
            - ``Preparing (s)``: its inputs are fetched, unspilled and deserialised
            - ``Running (s)``: of its function
            - ``Finalizing (s)``: finished, until the scheduler knows
            - ``Total (s)``: their sum; and ``Dominant Status``, the longest of them

        Notes
        -----
        Times of several clocks are put on the scheduler's, and clamped where they still disagree.
        A status that no file tells is NA, and its time is in the status before it: without a
        scheduler's file a run arrives when its worker learns of it; without the worker's,
        preparing counts as being queued.
        """
        return task_status.per_task_status(self.trace)

    def per_function_status(self) -> pd.DataFrame:
        """Sum up what the task runs of each function waited for and did, and what to do about it.

        Returns
        -------
        DataFrame
            A row a function, the longest total first: ``Function``, ``Task Runs``, the statuses
            of `per_task_status` in seconds summed over the runs, ``Total (s)``, their shares of
            it (``Running (%)`` and so on), ``Dominant Status``, and ``Next steps`` for that.
        """
        return task_status.per_function_status(self.trace)

    def per_step_status(self) -> pd.DataFrame:
        """Sum up what the task runs of each step of the pipeline waited for and did.

        Returns
        -------
        DataFrame
            As `per_function_status`, a row a ``Step``; ``(no step)`` for the runs of none.
        """
        return task_status.per_step_status(self.trace)

    def time_accounting(self, by: time_accounting.Grouping = "cluster") -> pd.DataFrame:
        """Put every second of every thread of every worker's life into exactly one class.

        Parameters
        ----------
        by
            ``"cluster"``, ``"host"``, ``"worker"``, ``"function"`` or ``"step"``.

        Returns
        -------
        DataFrame
            A row a group and class, busy classes first; classes that nothing is in are left out:

            - ``Host``, ``Worker``, ``Function`` or ``Step``, as grouped by; ``(idle)`` in place of
              a function or step for threads that no task held, ``(no step)`` for tasks of none
            - ``Class``, ``Thread Time (s)``, ``Share (%)`` of the group's whole, ``Busy`` (whether
              a task held the thread), ``Meaning``

            The times sum to each worker's threads times the seconds of its life: from its
            first fact, or when it joined, to its last, or when it left.

        Notes
        -----
        An idle thread is explained by its own worker first (not running, paused, a ready task,
        one that waits for its inputs, one on its way), else by what the whole cluster had to do.
        Where the wait for a core was not recorded it counts as blocked. Without a scheduler's
        file nobody knows why a worker had no task.
        """
        return time_accounting.time_accounting(self.trace, by)

    def critical_path(self) -> pd.DataFrame:
        """Give the chain of waits and work that made the run as long as it was.

        From the last finish it goes back to the first submission, through whatever each task run
        had to wait for last: the task before it on its thread, the dependency that was known
        last, a place in the scheduler's queue, or the client.

        Returns
        -------
        DataFrame
            A row a segment, in the order of time; they touch, and sum to the wall time from the
            first submission to the last known finish:

            - ``Start (s)`` (from the trace's begin), ``Duration (s)``
            - ``Kind``: ``Client``, ``Scheduler``, ``Transfer``, ``Worker`` (it had not begun the
              task though it could), ``Unspill``, ``Task overhead``, ``Compute``
            - ``Function``, ``Task Key``, ``Run ID``, ``Host``, ``Worker``: of the task run that
              waited or ran
            - ``Bound By``: what ties that run to the one before it on the path: ``dependency``,
              ``thread``, ``queue``, ``steal``, ``client``

        Notes
        -----
        Which event made the scheduler send a task is known by equal stimulus ids. Without a
        scheduler's file dependencies and threads are all that binds, and what else delays a
        task has the kind ``Unknown``. Dask does not record what a client waits for: it is taken
        to be the last of its futures that finished before it submitted the next; where a file
        does not tell which tasks had futures, the last task.
        """
        return critical_path.critical_path(self.trace)

    def critical_path_summary(self, by: PathGrouping = "function") -> pd.DataFrame:
        """Sum up the critical path by kind and function, or step.

        Parameters
        ----------
        by
            ``"function"`` or ``"step"``.

        Returns
        -------
        DataFrame
            A row a kind and function (or step), the longest first: ``Kind``, ``Function`` (or
            ``Step``, ``(no step)`` for tasks of none), ``Duration (s)``, ``Share (%)`` of the path,
            ``Task Runs``; what of it functions spent in ``CPU (s)``, ``Waiting for a core (s)``
            and ``Blocked (s)`` (NA for other kinds, and where nobody recorded it); ``Meaning`` of
            the kind.
        """
        return critical_path.critical_path_summary(self.trace, by)

    def per_task_slack(self) -> pd.DataFrame:
        """Tell how much later each task run could have ended without the whole ending later.

        Returns
        -------
        DataFrame
            A row a task run, the least slack first: ``Task Key``, ``Function``, ``Host``,
            ``Worker``, ``Run ID``, ``Start (s)``, ``Duration (s)``, ``Slack (s)``, ``On Critical
            Path``.

        Notes
        -----
        One run being late at a time, all tasks on the worker that they ran on and in the order in
        which they did. Several tasks of one chain share its slack.
        """
        return task_slack.per_task_slack(self.trace)
