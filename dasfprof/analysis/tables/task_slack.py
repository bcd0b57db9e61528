"""How much later each task run could have ended without the run ending later."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.critical_path import find_path
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.slack import find_slack
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import step_column


@question("How much later each task could have ended", "time")
def per_task_slack(run: Run) -> pd.DataFrame:
    """Show how much later each task run could have ended without the whole ending later.

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
    slots = run.ended.slots
    slack = find_slack(run)
    critical = np.zeros(len(slack), dtype=bool)
    critical[find_path(run).rows] = True
    length = slots.times.stop - slots.times.start
    order = np.lexsort((slots.times.start, -length, slack))
    workers = run.trace.workers
    functions = np.array(slots.functions, dtype=object)
    columns = {
        "Task Key": run.trace.keys.texts(run.ended.column("key_id")[order]),
        "Function": functions[slots.function[order]],
        "Host": workers["host"].to_numpy(dtype=object)[slots.worker[order]],
        "Worker": workers["worker"].to_numpy(dtype=object)[slots.worker[order]],
    }
    return pd.DataFrame(
        {
            **{name: pd.Series(values, dtype=object) for name, values in columns.items()},
            "Run ID": run.ended.column("run_id")[order],
            "Start (s)": slots.times.start[order],
            "Duration (s)": length[order],
            "Slack (s)": slack[order],
            "On Critical Path": critical[order],
            **step_column(run.ended, order),
        }
    )
