"""The findings of a run as a table."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.questions import question


@question("Findings", "diagnosis", short="findings", overview=1, csv="findings")
def diagnose(run: Run, least: float = 0.1) -> pd.DataFrame:
    """Find known problems of a run, and suggest what to change.

    Parameters
    ----------
    least
        Threshold in seconds: findings with smaller savings, or a shorter observed time, are left
        out. Errors are always listed, and so are findings without either figure.

    Returns
    -------
    DataFrame
        One row per finding, sorted by severity, then errors first, then by potential savings in
        descending order. Consequences follow their cause. Empty if there is no finding:

        - ``Severity``: ``high`` (potential savings of at least 20 % of the run and 1 s, or results
          are at risk), ``medium`` (at least 5 %), ``low``, ``info``
        - ``Finding``: the problem and a figure, in one sentence
        - ``Seconds at stake (s)``: potential savings of wall time, from a replay or a measurement.
          NaN if neither gives a figure. Findings about the client may include time before the
          first task or after the last. Findings overlap, so their savings do not add up
        - ``Evidence``: figures, and the methods that show more. It names the step of the function
          if steps are known
        - ``Suggestion``: what to change
        - ``Rule``: stable name of the rule
        - ``Function``, ``Worker`` (None for all workers), ``Start (s)``, ``Stop (s)`` (since the
          start of the run, NaN for the full run): where to look
        - ``Cause``: the rule of the finding that causes this one, or None
        - ``Client``: the client with most of the function's seconds, if the run has several

    Notes
    -----
    `TraceAnalyser.findings` returns the same findings as objects. Their `to_dict` has the figures
    with units, and the suggested settings.

    A finding is ``low`` if another finding with at least the same potential savings causes it.
    A function that merely takes long or waits is ``medium`` at most, since that may be necessary. A
    rule without the evidence that it needs reports nothing. A rule that fails is reported as
    ``rule-failed``.

    Percentages of thread time refer to the time from the first task's arrival to the end of the
    last task. `time_accounting` covers the workers' full lifetimes, so its percentages are smaller.
    """
    return diagnosis.diagnose(run, least=least)
