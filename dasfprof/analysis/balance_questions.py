"""`BalanceQuestions`: how evenly a run used its workers, and what it moved between them."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis import imbalance, stragglers, transfers
from dasfprof.analysis.trace import Trace


class BalanceQuestions:
    """Questions about balance, stragglers, transfers and sizes, a part of `TraceAnalyser`."""

    trace: Trace

    def imbalance(self) -> pd.DataFrame:
        """Measure how unequally each function's work is spread over workers, and over its tasks.

        Returns
        -------
        DataFrame
            A row a function, the most lost seconds first:

            - ``Function``, ``Duration (s)`` (the sum of its task runs), ``Num Tasks (chunks)``,
              ``Workers`` (of the run), ``Workers with Tasks`` (of the function)
            - ``Max/Mean of Workers``, ``Imbalance (%)`` (1 - mean/max), ``Gini of Workers``: of
              the seconds a thread on each worker; those without a task count as 0
            - ``Lost to Imbalance (s)``: how long the workers' threads would wait, on average, for
              the busiest worker, if nothing else was there to run
            - ``Busiest Worker``, ``Host``
            - ``Max/Mean of Tasks``, ``Gini of Tasks``: of the durations of its task runs

            Ratios are NA for a function that took no time.
        """
        return imbalance.imbalance(self.trace)

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
            ``"worker"`` or ``"host"`` (pairs of them), ``"function"`` (whose outputs were moved),
            ``"time"``.
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

            By function, the most bytes first: ``Function``, ``Keys Moved``, ``Moves`` (of a key
            to a worker), ``Size (MB)``, ``Share of Size (%)``, ``Time (s)``, ``Bandwidth (MB/s)``,
            ``Keys Moved More than Once``, ``Moved Again (MB)`` (beyond each key's first move),
            ``Moved Again to the Same Worker (MB)``. A message is shared out to its keys by their
            sizes.

            By time: ``Time Interval (seconds from begin)``, ``Transfers`` (that began),
            ``Size (MB)``, ``Time (s)``, ``Bandwidth (MB/s)``, and ``Throughput (MB/s)`` (size by
            the interval). A message counts evenly over its time.
        """
        return transfers.transfers(self.trace, by, interval)
