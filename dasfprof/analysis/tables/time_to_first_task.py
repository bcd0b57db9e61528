"""How long it took to the first task, and what that time went into."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.first_task import Stage, find_first_task
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text

#: What each stage is called here.
LABELS = {
    Stage.PROMPT: "Waiting for input",
    Stage.PROGRAM: "Program",
    Stage.OPTIMISING: "Optimising",
    Stage.PICKLING: "Pickling",
    Stage.SENDING: "Sending",
    Stage.SCHEDULER: "Scheduler",
    Stage.WORKERS: "Waiting for workers",
    Stage.STARTING: "Starting",
}


@question("Time to the first task", "time", expendable=("Share (%)",))
def time_to_first_task(run: Run) -> pd.DataFrame:
    """Split the time from the begin of recording to the first task.

    Returns
    -------
    DataFrame
        A row a stage, in their order: ``Stage``, ``Time (s)`` (NA: not recorded), ``Share (%)``
        (of them all, where the whole is known). None where tasks ran before recording began.

        - ``Waiting for input``: the client's program waited at the prompt of a notebook or a shell;
          looked at once a second
        - ``Program``: it ran, before it sent a graph: what it imports, reads and builds. With
          optimising, where that is unknown; `client_activity` has its lines
        - ``Optimising``: Dask optimised the collections, in the client's process
        - ``Pickling``: it pickled the graph there
        - ``Sending``: until the scheduler took the graph up; unknown between hosts
        - ``Scheduler``: it unpickled the graph and prepared its tasks; Dask optimises some here
        - ``Waiting for workers``: there was none
        - ``Starting``: until a worker gave the first task a thread
    """
    found = find_first_task(run)
    stages = {} if found is None else found.stages
    seconds = np.array(list(stages.values()), dtype=float)
    whole = np.nan if found is None else found.seconds
    return pd.DataFrame(
        {
            "Stage": text(np.array([LABELS[stage] for stage in stages], dtype=object)),
            "Time (s)": seconds,
            "Share (%)": seconds / whole * 100 if whole > 0 else np.full(len(seconds), np.nan),
        }
    )
