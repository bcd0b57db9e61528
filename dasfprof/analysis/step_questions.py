"""`StepQuestions`: what the steps of the user's pipeline took."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis.tables import step_bottleneck
from dasfprof.analysis.trace import Trace


class StepQuestions:
    """Questions about the steps of the pipeline, a part of `TraceAnalyser`.

    A step is what `dasfprof.step`, Dask's ``span`` or an annotation ``step`` is named, or a node
    of a DASF ``Pipeline``. Other tables group by it with ``by="step"``, and those of task runs end
    in a column ``Step`` where any is known.
    """

    trace: Trace

    def per_step_bottleneck(self) -> pd.DataFrame:
        """Sum up the task runs of each step of the pipeline.

        Returns
        -------
        DataFrame
            A row a step, the longest duration first; ``(no step)`` for task runs of none:

            - ``Step``: its path, ``outer/inner``; the runs of inner steps count there alone
            - ``Duration (s)``: the sum over its task runs, failed ones too
            - ``Percentage of total time (%)``: of the duration of all task runs
            - ``Num Tasks (chunks)``, ``Mean Task time (s)``, ``Functions`` and ``Workers`` (how
              many), ``Mean Data Size (MB)`` (input bytes of a task run), ``Mean Throughput
              (MB/s)`` (all input bytes by all seconds), ``Failed Tasks``
            - ``First Start (s)``, ``Last End (s)``: of its task runs, from the trace's begin
            - ``Entered``, ``Time in Client (s)``: how often the client entered it and for how
              long in all; NA where no file of a client tells
        """
        return step_bottleneck.per_step_bottleneck(self.trace)

    def step_coverage(self) -> pd.DataFrame:
        """Tell how much of the run the steps cover.

        Returns
        -------
        DataFrame
            A row a step with task runs, in the order in which they were first met, and one
            ``(no step)`` for the rest: ``Step``, ``Num Tasks (chunks)``, ``Share of Tasks (%)``,
            ``Duration (s)``, ``Share of Duration (%)``.
        """
        return step_bottleneck.step_coverage(self.trace)
