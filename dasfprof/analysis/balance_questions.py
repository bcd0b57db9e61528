"""`BalanceQuestions`: how evenly a run used its workers, and what it moved between them."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis import imbalance
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
