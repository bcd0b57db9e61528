"""The lives of workers: each one's host, job and process, when it came and went, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import exit_words
from dasfprof.analysis.tables.columns import known_texts, text, whole
from dasfprof.analysis.tables.questions import InParts, question
from dasfprof.database.columns import Array
from dasfprof.text import job_words


def _came_and_went(run: Run) -> bool:
    """Return whether workers had jobs, or processes of them ended while the cluster went on."""
    lives = run.workers[(run.workers["kind"] == "worker").to_numpy()]
    return bool(lives["job"].notna().any() or lives[["exit_code", "silent"]].notna().any(axis=None))


def _task_runs(run: Run) -> Array:
    """Count the task runs of each life in its files."""
    counts: Array = np.bincount(run.tasks["worker_id"].to_numpy(), minlength=len(run.workers))
    return counts


def _combined(run: Run, parts: Sequence[Array]) -> pd.DataFrame:
    return _table(run, np.sum([*parts, np.zeros(len(run.workers), dtype=np.int64)], axis=0))


@question(
    "Workers: their jobs, and how they ended",
    "balance",
    page="workers",
    expendable=("Process", "Memory Limit (MB)", "Node"),
    needs=_came_and_went,
    in_parts=InParts(_task_runs, _combined),
)
def workers(run: Run) -> pd.DataFrame:
    """List the lives of workers: on which host and in which job, when they came and went, and why.

    Returns
    -------
    DataFrame
        A row a life of a worker's process, as they came: ``Worker``, ``Node``, ``Process``;
        ``Job``: the variables in which a batch system or a cloud names its job, such as
        ``SLURM_JOB_ID 4711``, empty: none was set, or nobody recorded it; ``Threads``, ``Memory
        Limit (MB)``; ``Joined (s)`` and ``Left (s)`` the cluster (from the trace's begin, by the
        scheduler; NA where it told nothing; one that was there before joins as recording begins);
        ``Reason`` of the scheduler, as Dask calls it; ``Ended`` by what is known of its process:
        exit code, signal, or its nanny's word; empty: nothing is; ``Task Runs`` in its files.

    Notes
    -----
    The reason is what the scheduler was told first, not why somebody asked. Batch systems end jobs
    with SIGTERM and then SIGKILL, whether for a walltime or a preemption: their own log says which.
    """
    return _table(run, _task_runs(run))


def _table(run: Run, ran: Array) -> pd.DataFrame:
    lives = np.flatnonzero((run.workers["kind"] == "worker").to_numpy())
    rows = run.workers.iloc[lives]
    begins = np.fmin(rows["joined"].to_numpy(), rows["first_seen"].to_numpy())
    order = np.argsort(begins, kind="stable")
    lives, rows = lives[order], rows.iloc[order]
    ended = [exit_words(run, life) for life in lives.tolist()]
    return pd.DataFrame(
        {
            "Worker": known_texts(rows["worker"]),
            "Node": known_texts(rows["host"]),
            # A text, which no face gives separators of thousands.
            "Process": rows["pid"]
            .astype(object)
            .map(str, na_action="ignore")
            .reset_index(drop=True),
            "Job": text(np.array([job_words(job) for job in rows["job"]], dtype=object)),
            "Threads": whole(rows["nthreads"].to_numpy(dtype=float, na_value=np.nan)),
            "Memory Limit (MB)": rows["memory_limit"].to_numpy() / 1e6,
            "Joined (s)": np.maximum(run.since_begin(rows["joined"]), 0.0),
            "Left (s)": np.maximum(run.since_begin(rows["left"]), 0.0),
            "Reason": known_texts(rows["left_reason"]),
            "Ended": text(np.array(ended, dtype=object)),
            "Task Runs": ran[lives],
        }
    )
