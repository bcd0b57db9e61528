"""`BalanceQuestions`: how evenly a run used its workers, and what it moved between them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from dasfprof.analysis.model import stragglers
from dasfprof.analysis.tables import imbalance, sizing, transfers
from dasfprof.analysis.trace import Trace


class BalanceQuestions:
    """Questions about balance, stragglers, transfers and sizes, a part of `TraceAnalyser`."""

    trace: Trace

    def imbalance(self, by: imbalance.By = "function") -> pd.DataFrame:
        """Measure how unequally each function's work is spread over workers, and over its tasks.

        Parameters
        ----------
        by
            ``"function"``; or ``"step"``, for the work of each step of the pipeline.

        Returns
        -------
        DataFrame
            A row a function (or step), the most lost seconds first:

            - ``Function`` (or ``Step``), ``Duration (s)`` (the sum of its task runs), ``Num Tasks
              (chunks)``, ``Workers`` (of the run), ``Workers with Tasks`` (of the function)
            - ``Max/Mean of Workers``, ``Imbalance (%)`` (1 - mean/max), ``Gini of Workers``: of
              the seconds a thread on each worker; those without a task count as 0
            - ``Lost to Imbalance (s)``: how long the workers' threads would wait, on average, for
              the busiest worker, if nothing else was there to run
            - ``Busiest Worker``, ``Host``
            - ``Max/Mean of Tasks``, ``Gini of Tasks``: of the durations of its task runs

            Ratios are NA for a function that took no time.
        """
        return imbalance.imbalance(self.trace, by)

    def stragglers(self) -> pd.DataFrame:
        """List the task runs that took far longer than others of their function, and why.

        Returns
        -------
        DataFrame
            A row a straggler, the largest excess first. It takes more than twice the median of
            its function, is three median absolute deviations above it, and takes 1 % of the
            run's wall time at least; its function has five runs or more.

            - ``Task Key``, ``Function``, ``Host``, ``Worker``, ``Run ID``, ``Start (s)`` (from
              the trace's begin)
            - ``Elapsed (s)``: of its thread, with unspilling and deserialising; where no file
              tells, of its function alone
            - ``Median (s)`` (of its function), ``Times Median``, ``Excess (s)``
            - ``Input Size (MB)``, ``Median Input Size (MB)``
            - ``Expected for its Input (s)``: the median of runs with inputs of like size (the
              same power of two), or of all, grown as the input is, where there are few
            - ``Cause``, the first of these that explains it: ``larger input`` (no more than twice
              what is expected for it, so that it is not slow), ``slow host``, ``slow worker``
              (they take 1.5 times as long as the others, beyond chance), ``spill``,
              ``deserialising``, ``first run on that worker``, ``skew`` (the function's durations
              differ so much anyway), ``blocked`` (it waited without using the CPU), ``computed
              longer``, ``worker overhead`` (it waited for the worker's event loop or for its
              thread), ``unknown``
        """
        return stragglers.stragglers(self.trace)

    def transfers(
        self, by: transfers.By = "worker", *, interval: float | None = None
    ) -> pd.DataFrame:
        """Sum up what was moved between workers.

        Parameters
        ----------
        by
            ``"worker"`` or ``"host"`` (pairs of them), ``"function"`` or ``"step"`` (whose outputs
            were moved), ``"time"``.
        interval
            By time, seconds; None chooses a length that gives 60 intervals at most.

        Returns
        -------
        DataFrame
            By pair a row each, the most bytes first: ``From Host``, ``From Worker``, ``To Host``,
            ``To Worker``, ``Transfers`` (messages), ``Keys``, ``Size (MB)``, ``Time (s)`` (summed
            over messages, side by side ones too), ``Bandwidth (MB/s)`` (size by time), ``Network
            (s)``, ``Deserialize (s)``, ``Failed`` (messages that brought nothing: busy, missing,
            failed; their time does not count).

            By function or step, the most bytes first: ``Function`` or ``Step``, ``Keys Moved``,
            ``Moves`` (of a key to a worker), ``Size (MB)``, ``Share of Size (%)``, ``Time (s)``,
            ``Bandwidth (MB/s)``, ``Keys Moved More than Once``, ``Moved Again (MB)`` (beyond each
            key's first move), ``Moved Again to the Same Worker (MB)``. A message is shared out to
            its keys by their sizes.

            By time: ``Time Interval (seconds from begin)``, ``Transfers`` (that began),
            ``Size (MB)``, ``Time (s)``, ``Bandwidth (MB/s)``, and ``Throughput (MB/s)`` (size by
            the interval). A message counts evenly over its time.
        """
        return transfers.transfers(self.trace, by, interval)

    def cluster_sizing(
        self,
        durations: Sequence[float] | None = None,
        *,
        threads_per_worker: int | None = None,
    ) -> pd.DataFrame:
        """Find how many workers a wanted duration needs, and how many the scheduler can feed.

        Parameters
        ----------
        durations
            Seconds; None asks about the recorded duration, its double, half, quarter and eighth.
        threads_per_worker
            None takes the recorded number, the median over workers.

        Returns
        -------
        DataFrame
            A row a duration:

            - ``Wanted Duration (s)``
            - ``Threads at Least``: fewer cannot work the tasks off in time; ``Threads Enough``:
              so many will, whatever the order, if nothing but tasks takes time. NA: no number
              will, as the longest chain of dependent tasks takes longer
            - ``Threads per Worker``, ``Workers at Least``, ``Workers Enough``
            - ``Workers Fed as Seen``: at the highest rate of tasks that this scheduler held for a
              second; ``Workers Fed by Documentation``: at 1 ms a task, as Dask's says. Less than 1:
              not even one worker's threads
            - ``Verdict``

            Pauses of the client, transfers and start-up are not in these bounds.
        """
        return sizing.cluster_sizing(self.trace, durations, threads_per_worker)

    def chunk_sizing(self, overhead: float = 0.005) -> pd.DataFrame:
        """Find how large chunks should be, so that overhead takes a small share of the time.

        Parameters
        ----------
        overhead
            The share that is wanted.

        Returns
        -------
        DataFrame
            A row a function, that with the most overhead in all first:

            - ``Function``, ``Task Runs`` (those that ended in memory), ``Mean Task time (s)``
            - ``Overhead per Task (s)``: the median of the thread's seconds besides the function,
              unspilling and deserialising: idle though the task was runnable, and handling of the
              task; ``Overhead (%)``
            - ``Wanted Task time (s)``: for the wanted share, and for the scheduler to feed all
              threads of the run
            - ``Chunk Size (MB)``: the mean of input or output, whichever is larger; ``Times
              Larger`` (1: large enough), ``Wanted Chunk Size (MB)``, ``Task Runs Then``
            - ``Advice``
        """
        return sizing.chunk_sizing(self.trace, overhead)
