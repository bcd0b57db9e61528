"""The tasks of a trace that ended in an error for good, and what therefore never ran.

An error that came as the program ended is not why it did: such tasks were under way until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.given_up import stimulus_texts
from dasfprof.analysis.model.run_end import How, find_run_end
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.under_way.state import FailedTask

#: So many are listed.
_MOST = 100


def failed_tasks(trace: Trace) -> tuple[FailedTask, ...]:
    """Return the tasks that ended in an error for good, the first ones in the order of time."""
    found = _erred(trace)
    late = found["key_id"].isin(ended_with_the_run(trace)["key_id"])
    found = found[(found["for_good"] & ~late).to_numpy(dtype=bool)]
    found = found.sort_values("known", kind="stable").drop_duplicates("key_id")
    if not len(found):
        return ()
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


def ended_with_the_run(trace: Trace) -> pd.DataFrame:
    """Return the tasks whose errors came as the program ended: ``key_id``, ``message``.

    Those are the errors that the scheduler heard of when the client had left, or SIGINT had come.
    """
    found, end = _erred(trace), find_run_end(trace)
    left = end is not None and end.how is How.LEFT and not end.clients_stayed
    if end is None or end.only_forgotten or not (end.interrupted or left):
        return found.iloc[:0]
    late = (found["known"] >= end.time) & found["message"].notna()
    return found[late.to_numpy(dtype=bool)].drop_duplicates("key_id")


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


def _erred(trace: Trace) -> pd.DataFrame:
    """Return the task runs that erred on their worker; ``for_good`` by the scheduler."""
    parts = []
    for runs, message in (
        (trace.tasks, "exception"),
        (trace.scheduler_only, "scheduler_exception"),
    ):
        if "scheduler_state" not in runs:
            continue
        for_good = (runs["scheduler_state"] == "erred").to_numpy(dtype=bool)
        kept = for_good | (runs["state"] == "erred").to_numpy(bool) if "state" in runs else for_good
        own = runs[kept]
        columns = {name: own[name].to_numpy() for name in ("key_id", "worker_id", "known")}
        columns["end_cause"] = own["end_cause"].to_numpy()
        found = pd.DataFrame({**columns, "for_good": for_good[kept]})
        texts = own[message].astype(object).where(own[message].notna(), None).to_numpy()
        # Not as pandas' texts, which hold no half of a surrogate pair.
        found["message"] = pd.Series(texts, dtype=object)
        parts.append(found)
    if not parts:
        names = ("key_id", "worker_id", "known", "end_cause", "message", "for_good")
        return pd.DataFrame({name: np.empty(0) for name in names})
    return pd.concat(parts, ignore_index=True)


def _erred_by_function(trace: Trace) -> dict[str, int]:
    found: dict[str, int] = {}
    for runs in (trace.tasks, trace.scheduler_only):
        if "scheduler_state" in runs:
            own = runs[(runs["scheduler_state"] == "erred").to_numpy(dtype=bool)]
            for name, number in own["function"].value_counts().items():
                found[str(name)] = found.get(str(name), 0) + int(number)
    return found
