"""What the task runs of one key waited for, and which workers had their inputs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.task_waits import TaskWaits
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import integers, text
from dasfprof.analysis.tables.questions import question
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import elide


@question("Waits and inputs of a task", "time", expendable=("Run ID", "Start (s)"))
def why(run: Run, key: str) -> pd.DataFrame:
    """List what one task waited for, and the queues of workers when it was assigned.

    Parameters
    ----------
    key
        The key of the task, as other tables show it, or a prefix that only one key has.

    Returns
    -------
    DataFrame
        One row per part of the task run's time, and one row per worker at the time of the
        assignment, sorted by time:

        - ``Run ID``
        - ``Part``: ``waiting for inputs``, ``queued on the scheduler``, ``waiting on another
          worker`` (from which it was stolen), ``assigned``, ``other worker``, ``in transit``,
          ``fetching inputs``, ``waiting for a thread``, ``starting``, ``running``, ``storing the
          result``, ``reporting``
        - ``Worker``, or ``scheduler``
        - ``Start (s)``, since the start of the run
        - ``Duration (s)``: NA for ``assigned`` and ``other worker``
        - ``Tasks Assigned``: number of other unfinished task runs on the worker of the row. Known
          for the final worker of the task (after the last steal), and up to 10 other workers
        - ``Inputs Held (MB)``: inputs of the task that the worker of the row had computed or
          fetched. NA if the location or the size of an input is unknown
        - ``Description``

    Raises
    ------
    InvalidArgumentError
        If no task run has such a key, or several keys have this prefix.

    Notes
    -----
    Tasks that ran before recording began do not count as assigned. Copies that Dask dropped again
    before the assignment count as held.
    """
    rows = _rows_of(run, key)
    waits = TaskWaits(run)
    run_ids = run.of_slots("run_id", unfinished=True)
    parts = [(int(run_ids[row]), part) for row in rows for part in waits.parts(row)]
    return pd.DataFrame(
        {
            "Run ID": np.array([number for number, _ in parts], dtype=np.int64),
            "Part": text([part.name for _, part in parts]),
            "Worker": text([part.worker for _, part in parts]),
            "Start (s)": np.array([part.start for _, part in parts]),
            "Duration (s)": np.array([part.duration for _, part in parts]),
            "Tasks Assigned": integers(np.array([part.tasks for _, part in parts])),
            "Inputs Held (MB)": np.array([part.input_bytes for _, part in parts], dtype=float)
            / 1e6,
            "Description": text([part.description for _, part in parts]),
        }
    )


def _rows_of(run: Run, key: str) -> list[int]:
    """Return the rows of `Run.all_slots` for the task runs of a key, sorted by arrival."""
    ids, of_row = np.unique(run.of_slots("key_id", unfinished=True), return_inverse=True)
    texts = run.keys.texts(ids.astype(np.int64)).tolist()
    wanted = str(key)
    # Several keys of different types may have the same text.
    matches = [index for index, each in enumerate(texts) if each == wanted]
    if not matches:
        matches = [index for index, each in enumerate(texts) if each.startswith(wanted)]
        if len(matches) > 1:
            examples = ", ".join(elide(texts[index], 60) for index in matches[:5])
            raise InvalidArgumentError(
                f"key={key!r}: {len(matches)} keys have this prefix, such as {examples}."
            )
    rows: list[int] = np.flatnonzero(np.isin(of_row, matches)).tolist()
    if not rows:
        raise InvalidArgumentError(
            f"key={key!r}: no task run has this key; per_task_status() lists the task runs, "
            "and diagnose() reports what tasks wait for that no worker was assigned."
        )
    arrival = run.all_slots.times.arrival
    return sorted(rows, key=lambda row: float(arrival[row]))
