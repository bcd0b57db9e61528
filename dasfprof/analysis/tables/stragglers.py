"""Task runs that took far longer than others of their function and layer, and why."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.stragglers import find_stragglers
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import step_column, text


@question("Tasks that took far longer than others of their function", "balance")
def stragglers(run: Run) -> pd.DataFrame:
    """List the task runs that took far longer than others of their function, and why.

    Returns
    -------
    DataFrame
        A row a straggler, the largest excess first. It takes more than twice the median of
        its function in its layer of the graph (that of all its runs, where keys are no
        tuples), is three median absolute deviations above it, and takes 1 % of the run's wall
        time at least; there are five such runs or more.

        - ``Task Key``, ``Function``, ``Host``, ``Worker``, ``Run ID``, ``Start (s)`` (from
          the trace's begin)
        - ``Elapsed (s)``: of its thread, with unspilling and deserialising; where no file
          tells, of its function alone
        - ``Median (s)`` (of its function and layer), ``Times Median``, ``Excess (s)``
        - ``Input Size (MB)``, ``Median Input Size (MB)``
        - ``Expected for its Input (s)``: the median of runs with inputs of like size (the
          same power of two), or of all, grown as the input is, where there are few
        - ``Cause``, the first of these that explains it: ``larger input`` (no more than twice
          what is expected for it, so that it is not slow), ``slow host``, ``slow worker``
          (they take 1.5 times as long as the others, beyond chance), ``spill``,
          ``deserialising``, ``worker overhead`` (it waited for the worker's event loop or for
          its thread), ``first run on that worker``, ``skew`` (the function's durations differ so
          much anyway), ``blocked`` (it waited without using the CPU), ``computed longer``,
          ``unknown``
    """
    found, workers = find_stragglers(run), run.workers
    tasks = run.ended.tasks.take(found.rows)
    return pd.DataFrame(
        {
            "Task Key": text(run.trace.keys.texts(tasks["key_id"].to_numpy())),
            "Function": text(tasks["function"].astype(object).to_numpy()),
            "Host": text(workers.hosts[found.worker]),
            "Worker": text(workers.labels[found.worker]),
            "Run ID": tasks["run_id"].to_numpy(),
            "Start (s)": run.since(found.start),
            "Elapsed (s)": found.seconds,
            "Median (s)": found.median,
            "Times Median": ratio(found.seconds, found.median),
            "Excess (s)": found.excess,
            "Input Size (MB)": found.input_size / 1e6,
            "Median Input Size (MB)": found.median_input / 1e6,
            "Expected for its Input (s)": found.expected,
            "Cause": text(found.cause),
            **step_column(run.ended, found.rows),
        }
    )
