"""The tasks of a trace that ended in an error for good, and what therefore never ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run_end import stimulus_texts
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.under_way.state import FailedTask

#: So many are listed.
_MOST = 100


def failed_tasks(trace: Trace) -> tuple[FailedTask, ...]:
    """Return the tasks that ended in an error for good, the first ones in the order of time."""
    parts = [_erred(trace.tasks, "exception"), _erred(trace.scheduler_only, "scheduler_exception")]
    parts = [part for part in parts if len(part)]
    if not parts:
        return ()
    found = pd.concat(parts, ignore_index=True).sort_values("known", kind="stable")
    found = found.drop_duplicates("key_id")
    never_ran = blocked_by_errors(trace, len(found))
    codes, functions = trace.keys.functions()
    first = found.head(_MOST)
    keys = trace.keys.texts(first["key_id"].to_numpy()).tolist()
    labels = trace.workers["worker"].to_numpy(dtype=object)
    return tuple(
        FailedTask(
            key=key,
            function=functions[codes[row["key_id"]]],
            message=row["message"] or _killed(trace, row, key),
            worker=str(labels[row["worker_id"]]) if row["worker_id"] >= 0 else None,
            # Of several that failed nothing tells which of them a task depends on.
            dependents=sum(never_ran.values()) if len(found) == 1 else None,
        )
        for key, row in zip(keys, first.to_dict("records"), strict=True)
    )


def blocked_by_errors(trace: Trace, failed: int) -> dict[str, int]:
    """Count by function the tasks that never ran, as they depend on some that failed.

    Dask lets them end in the same error. Empty where nothing tells.
    """
    most: dict[str, int] = {}
    for counts in trace.scheduler_states["tasks"] if len(trace.scheduler_states) else ():
        erred = {name: states.get("erred", 0) for name, states in (counts or {}).items()}
        if sum(erred.values()) > sum(most.values()):
            most = {name: number for name, number in erred.items() if number}
    if sum(most.values()) <= failed:
        return {}
    ran = _erred_by_function(trace)
    left = {name: number - ran.get(name, 0) for name, number in most.items()}
    return {name: number for name, number in left.items() if number > 0}


def _killed(trace: Trace, row: Mapping[Any, Any], key: str) -> str:
    """Return what Dask raised for a task that ended as its worker died; empty if it did not.

    Of this error alone the scheduler tells its plugins no text.
    """
    cause = stimulus_texts(trace, pd.Series([row["end_cause"]]))[0]
    if row["worker_id"] < 0 or not cause or cause.startswith("task-erred"):
        return ""
    only = trace.scheduler_only
    tries = int(np.count_nonzero(only["key_id"] == row["key_id"]))
    address = trace.workers["address"].iloc[row["worker_id"]]
    return (
        f"KilledWorker: Attempted to run task {key!r} on {tries} different workers, but all those "
        "workers died while running it. The last worker that attempt to run the task was "
        f"{address}."
    )


def _erred(runs: pd.DataFrame, message: str) -> pd.DataFrame:
    if "scheduler_state" not in runs:
        return runs.iloc[:0]
    own = runs[(runs["scheduler_state"] == "erred").to_numpy(dtype=bool)]
    texts = own[message].astype(object).where(own[message].notna(), None)
    return pd.DataFrame(
        {
            "key_id": own["key_id"].astype(np.int64),
            "worker_id": own["worker_id"].astype(np.int64),
            "known": own["known"],
            "end_cause": own["end_cause"],
            "message": texts,
        }
    )


def _erred_by_function(trace: Trace) -> dict[str, int]:
    found: dict[str, int] = {}
    for runs in (trace.tasks, trace.scheduler_only):
        if "scheduler_state" in runs:
            own = runs[(runs["scheduler_state"] == "erred").to_numpy(dtype=bool)]
            for name, number in own["function"].value_counts().items():
                found[str(name)] = found.get(str(name), 0) + int(number)
    return found
