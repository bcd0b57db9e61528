"""What is wrong with a run, and what to change."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis import diagnosis
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.questions import question


@question("Findings", "diagnosis", short="findings", overview=1, csv="findings")
def diagnose(run: Run, least: float = 0.1) -> pd.DataFrame:
    """Look for the known faults of a run, and say what to change.

    Parameters
    ----------
    least
        Seconds at stake, or seen, below which findings are left out. Errors, and findings of which
        neither are known, are not.

    Returns
    -------
    DataFrame
        A row a finding, the gravest first, of equally grave ones errors, and then that with the
        most seconds at stake; what another brings about is beneath it. No row if no fault was
        found:

        - ``Severity``: ``high`` (a fifth of the run is at stake, and a second, or results
          are), ``medium`` (a twentieth), ``low``, ``info``
        - ``Finding``: one sentence with the figure
        - ``Seconds at stake (s)``: of wall time, by which the run might be shorter without
          it, by a replay or what was measured; NaN where neither shows that. Where they are the
          client's they may lie before the first task or after the last. Findings overlap: their
          seconds do not add up
        - ``Evidence``: figures, and the methods that show more; where steps of the pipeline
          are known, that of the function
        - ``Suggestion``: what to change
        - ``Rule``: its name, which stays; ``Function``, ``Worker`` (None: all of the run),
          ``Start (s)``, ``Stop (s)`` (from the trace's begin; NaN: the whole run): where to
          look
        - ``Cause``: the rule of the finding that brings it about; None if no other does
        - ``Client``: the client with most of the function's seconds, if the run has several

    Notes
    -----
    `TraceAnalyser.findings` has them as objects, whose `to_dict` has figures with their units, and
    what to set.

    A finding that another one brings about is ``low``, and says what it may follow from: one with
    as many seconds at stake, or more. That
    a function takes long, or waits, is ``medium`` at most: it may have to. A
    rule without the evidence that it needs says nothing; one that fails is a finding of the
    rule ``rule-failed``.

    Shares of the threads' time are of that from the first task's arrival to the end of the last.
    `time_accounting` is of the workers' whole lives, so that its shares are smaller.
    """
    return diagnosis.diagnose(run, least=least)
