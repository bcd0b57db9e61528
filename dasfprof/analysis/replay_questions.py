"""`ReplayQuestions`: what a run would have taken under other circumstances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from dasfprof.analysis.tables import efficiency, scaling
from dasfprof.analysis.tables import what_if as predictions
from dasfprof.analysis.trace import Trace


class ReplayQuestions:
    """Questions that a replay of the run answers, a part of `TraceAnalyser`.

    The replay is a simulation of Dask's scheduler and workers: the recorded graph and durations,
    Dask's rules of placement, and what transfers, messages and the scheduler were measured to
    take. It is calibrated first: replayed on the recorded cluster, it must come within 15 % of the
    recorded wall time, or nothing is predicted. Nor is it where tasks waited for a core for 10 %
    of their time or more. Tasks are taken to last as long on another cluster, so that hosts must
    have a core for each further thread that computes.
    """

    trace: Trace
    _progress: bool

    def what_if(
        self,
        *,
        workers: int | None = None,
        threads: int | None = None,
        bandwidth: float | None = None,
        spill: bool = True,
        speedup: Mapping[str, float] | None = None,
    ) -> pd.DataFrame:
        """Predict the wall time of the run after a change; several changes count together.

        Parameters
        ----------
        workers
            How many there are at most; they come and go as the recorded ones did.
        threads
            Of each worker.
        bandwidth
            Between two workers, bytes a second.
        spill
            False: no input is read back from disk.
        speedup
            By function, by how much it is faster: 2 is twice as fast, 0.5 half as fast.

        Returns
        -------
        DataFrame
            One row:

            - ``Change``
            - ``Recorded (s)``: from the first task's arrival to the last known finish
            - ``Replayed (s)``: the same of the replay on the recorded cluster
            - ``Predicted (s)``: the recorded time, changed in the proportion in which the
              replay's changes; NA where nothing can be predicted
            - ``Saved (s)``, ``Saved (%)``
            - ``Calibration Error (%)``: of the replay at the recorded cluster; ``Error with
              Recorded Placement (%)``: the same, with each task on the worker where it ran (NA
              for more than 200,000 task runs)
            - ``Verdict``, or why nothing can be predicted

        Raises
        ------
        InvalidArgumentError
            If a number is out of range, or there is no such function.
        """
        return predictions.what_if(
            self.trace,
            workers=workers,
            threads=threads,
            bandwidth=bandwidth,
            spill=spill,
            speedup=speedup,
        )

    def scaling(self, workers: Sequence[int] | None = None) -> pd.DataFrame:
        """Predict wall time, efficiency and cost on fewer and on more workers.

        Parameters
        ----------
        workers
            Numbers of workers; None asks about 10 % to 1000 % of the recorded ones. Each takes a
            replay.

        Returns
        -------
        DataFrame
            A row a number of workers:

            - ``Workers``, ``Threads``, ``Share of Recorded (%)``
            - ``Wall Time (s)``: predicted; NA where nothing can be
            - ``Efficiency (%)``: the share of the threads' time that tasks hold them
            - ``Cost (worker-s)``: workers by wall time
            - ``Least (s)``: ``max(longest chain, work / threads)``, which no schedule beats; the
              client's pauses are part of the chain
            - ``Most without Overhead (s)``: ``work / threads + (1 - 1 / threads) * longest
              chain``, which no schedule exceeds that keeps no ready task waiting for a thread, if
              nothing but tasks takes time (Graham 1969, Brent 1974)
            - ``Calibration Error (%)``, ``Verdict``
        """
        return scaling.scaling(self.trace, workers, progress=self._progress)

    def blocked_time(self) -> pd.DataFrame:
        """Predict the wall time without each of the things that tasks wait for.

        Each is a replay of the whole schedule, as waits of tasks that were not critical gain
        nothing (Ousterhout et al., NSDI 2015).

        Returns
        -------
        DataFrame
            A row a thing, with the columns of `what_if`; ``Change`` is ``no network`` (inputs
            come in no time), ``no unspilling``, ``no blocking in functions`` (they take their CPU
            seconds and their wait for a core: without disks, locks, sleep; left out where CPU
            seconds are unknown), ``no scheduler latency``.
        """
        return predictions.blocked_time(self.trace)

    def pop_efficiency(self) -> pd.DataFrame:
        """Give the tree of parallel efficiencies of the POP project.

        Returns
        -------
        DataFrame
            A row an efficiency, each before its factors: ``Efficiency``, ``Level`` (0: the
            whole), ``Value (%)``, ``Formula``, ``Verdict`` (acceptable from 80 %):

            - ``Global`` = ``Parallel`` x ``Computation``
            - ``Parallel`` = ``Load balance`` x ``Communication``: the share of the threads' time
              that functions ran
            - ``Communication`` = ``Serialisation`` x ``Transfer``

        Notes
        -----
        POP's own metrics (Rosas, Gimenez and Labarta 2014) are over processes that live as long
        as the run; here a worker counts by its threads and by how long it was there.
        """
        return efficiency.pop_efficiency(self.trace)
