"""Failed tasks, tasks that their worker does not know, and tasks in progress at a given time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.departures import departure_of
from dasfprof.analysis.model.memory_kills import Reason, memory_kills
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.run_end import RunEnd, stimulus_texts
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.analysis.under_way.processes import advice, clause, suspicion
from dasfprof.analysis.under_way.state import FailedTask, Stack, TaskUnderWay, seconds_since
from dasfprof.database.ends import End
from dasfprof.schema.resources import IDLE_INTERVAL

# If an error was raised because the program ended, the error did not cause the end. Its task counts
# as having been in progress until the end.

#: Maximum number of failed tasks that are listed.
_MOST = 100
#: Threshold: if a function has this many finished task runs, and only one other function has none,
#: the other function is suspected of a worker's death.
_INNOCENT = 10


def failed_tasks(run: Run) -> tuple[FailedTask, ...]:
    """Return the tasks that failed, sorted by time."""
    failed = _erred(run)
    late = failed["key_id"].isin(ended_with_the_run(run)["key_id"])
    failed = failed[(failed["for_good"] & ~late).to_numpy(dtype=bool)]
    failed = failed.sort_values("known", kind="stable").drop_duplicates("key_id")
    if not len(failed):
        return ()
    never_ran = blocked_by_errors(run, len(failed))
    codes, functions = run.keys.functions()
    first = failed.head(_MOST)
    keys = run.keys.texts(first["key_id"].to_numpy()).tolist()
    labels = run.workers["worker"].to_numpy(dtype=object)
    return tuple(
        FailedTask(
            key=key,
            function=functions[codes[row["key_id"]]],
            message=row["message"] or _killed(run, row, key),
            **_deaths(run, row, functions[codes[row["key_id"]]]),
            worker=str(labels[row["worker_id"]]) if row["worker_id"] >= 0 else None,
            # If several tasks failed, it was not recorded which of them other tasks depend on.
            dependents=sum(never_ran.values()) if len(failed) == 1 else None,
        )
        for key, row in zip(keys, first.to_dict("records"), strict=True)
    )


def ended_with_the_run(run: Run) -> pd.DataFrame:
    """Return ``key_id`` and ``message`` of tasks that failed because the program ended."""
    erred, end = _erred(run), run.ending
    # The scheduler received these errors after the client had left or after SIGINT.
    left = end is not None and end.how is End.LEFT and not end.clients_stayed
    if end is None or end.only_forgotten or not (end.interrupted or left):
        return erred.iloc[:0]
    # Tasks that were cancelled when the client left count as ended at that time, even if workers
    # report them later.
    late = (erred["known"] > end.time) & erred["message"].notna()
    return erred[late.to_numpy(dtype=bool)].drop_duplicates("key_id")


def blocked_by_errors(run: Run, failed: int) -> dict[str, int]:
    """Return, by function, how many tasks never ran because they depend on failed tasks.

    `failed` is the number of tasks that ran and failed.
    """
    # Dask gives these tasks the error of the failed task, so the scheduler counts them as failed.
    most: dict[str, int] = {}
    for counts in run.scheduler_states["tasks"]:
        erred = {name: states.get("erred", 0) for name, states in (counts or {}).items()}
        if sum(erred.values()) > sum(most.values()):
            most = {name: number for name, number in erred.items() if number}
    if sum(most.values()) <= failed:
        return {}
    runs, (codes, functions) = _erred(run), run.keys.functions()
    erred_here = runs["key_id"][runs["for_good"].to_numpy(dtype=bool)].to_numpy(dtype=np.int64)
    ran = Counter(functions[code] for code in codes[erred_here].tolist())
    left = {name: number - ran[name] for name, number in most.items()}
    return {name: number for name, number in left.items() if number > 0}


def _killed(run: Run, row: Mapping[Any, Any], key: str) -> str:
    """Return Dask's message for a task whose workers died, or "" if the task failed otherwise."""
    cause = stimulus_texts(run, pd.Series([row["end_cause"]]))[0]
    if row["worker_id"] < 0 or not cause or cause.startswith("task-erred"):
        return ""
    # The scheduler does not pass the text of this error to its plugins.
    only = run.scheduler_only
    tries = int(np.count_nonzero(only["key_id"] == row["key_id"]))
    address = run.workers["address"].iloc[row["worker_id"]]
    return (
        f"KilledWorker: Attempted to run task {key!r} on {tries} different workers, but all those "
        "workers died while running it. The last worker that attempt to run the task was "
        f"{address}."
    )


def _deaths(run: Run, row: Mapping[Any, Any], function: str) -> dict[str, str]:
    """Return the fields of `FailedTask` about the deaths of workers, for an abandoned task.

    They include advice about one suspected function.
    """
    if row["message"]:
        return {}
    lives = lives_lost_with(run, int(row["key_id"]))
    ends = [departure_of(run, life) for life in lives]
    if not ends:
        return {}
    codes, functions = run.keys.functions()
    seen = run.under_way["key_id"][np.isin(run.under_way["worker_id"], lives)]
    ran = Counter(functions[codes[key]] for key in seen.tolist())
    only = run.scheduler_only
    key_ids = only["key_id"].to_numpy()[np.isin(only["worker_id"], lives)]
    # If a worker died before it wrote its events, only the scheduler's file has these task runs.
    in_memory = only["key_id"].to_numpy()[
        (only["scheduler_state"] == "memory").to_numpy(dtype=bool)
    ]
    of_ended = codes[np.append(run.tasks["key_id"].to_numpy(), in_memory)]
    ended = np.bincount(of_ended, minlength=len(functions))
    runs = {functions[code]: int(ended[code]) for code in codes[key_ids].tolist()}
    never = [name for name, number in runs.items() if not number]
    often = [name for name, number in runs.items() if number >= _INNOCENT]
    # Dask suspects all tasks that a dead worker had. If exactly one function of these tasks has no
    # finished task run, and all others have many, it is the suspected one. Otherwise, the function
    # that used the memory is suspected, or the one with most tasks in progress.
    suspected, fills = "", False
    kills = [kill for kill in memory_kills(run) if kill.life in lives and kill.suspect]
    if len(never) == 1 and len(often) == len(runs) - 1 > 0:
        function = never[0]
        others = ", ".join(f"{runs[name]:,} of {name}" for name in often[:3])
        suspected = (
            f"No run of {function} had finished, while the worker's other functions had finished "
            f"runs: {others}. "
        )
    elif kills and len({kill.suspect for kill in kills}) == 1:
        function, suspected = str(kills[-1].suspect), suspicion(kills[-1])
        fills = kills[-1].reason is Reason.RESULTS
    elif ran:
        function = ran.most_common(1)[0][0]
    return {
        "died_of": clause(ends),
        "advice": advice(ends[-1], function, fills=fills),
        "suspect": function,
        "suspicion": suspected,
    }


def lives_lost_with(run: Run, key_id: int) -> list[int]:
    """Return the worker instances that left while they had a task, sorted by time."""
    only = run.scheduler_only
    runs = only[(only["key_id"] == key_id).to_numpy(dtype=bool)].sort_values("sent", kind="stable")
    left = run.workers["left"].to_numpy(dtype=float)
    lives = dict.fromkeys(runs["worker_id"].tolist())
    return [life for life in lives if life >= 0 and np.isfinite(left[life])]


def _erred(run: Run) -> pd.DataFrame:
    """Return the task runs that failed on their worker.

    ``for_good`` is true if the scheduler did not retry the task.
    """
    parts = []
    tables = (run.tasks, "exception"), (run.scheduler_only, "scheduler_exception")
    for runs, message in tables if "sent" in run.tasks else tables[1:]:
        for_good = (runs["scheduler_state"] == "erred").to_numpy(dtype=bool)
        erred = (
            for_good | (runs["state"] == "erred").to_numpy(bool) if "state" in runs else for_good
        )
        chosen = runs[erred]
        # Do not convert to pandas strings, because these cannot contain lone surrogates.
        texts = chosen[message].astype(object).where(chosen[message].notna(), None)
        columns = chosen[["key_id", "worker_id", "known", "end_cause"]]
        parts.append(columns.assign(for_good=for_good[erred], message=texts))
    return pd.concat(parts, ignore_index=True)


#: Thresholds (seconds): minimum time for which a worker has not had its tasks, and maximum time
#: since its last message.
_LONG, _SILENT = 6.0, 3.0


def knows_nothing(run: Run, end: RunEnd, row: dict[str, Any], life: pd.Series | None) -> bool:
    """Return whether a live worker did not know the tasks that the scheduler had assigned to it.

    `row` is the worker's row in the state of `end`, and `life` its row in `Trace.workers`.
    """
    if life is None or end.state is None or any(n.kind == "missing-hook" for n in run.notes):
        return False
    keys = set(row.get("keys") or ())
    quiet = row.get("status") == "running" and keys and not row.get("executing")
    heard = float(row.get("last_seen") or 0.0) >= float(end.state["time"]) - _SILENT
    allowed = _SILENT + idle_seconds(run, str(life["address"]))
    if not (quiet and heard and float(life["last_seen"]) >= end.time - allowed):
        return False
    # A worker records tasks that have been in progress for more than a second. It does not know the
    # tasks if it wrote to its file but recorded no tasks for some seconds, while the scheduler
    # counted the same tasks on this worker all the time.
    history = run.under_way_history
    lives = np.flatnonzero((run.workers["address"] == life["address"]).to_numpy(dtype=bool))
    lately = history["time"][np.isin(history["worker_id"], lives)] > end.time - _LONG
    if lately.any() or np.isin(run.under_way["worker_id"], lives).any():
        return False
    return bool(keys & _long_processing(run, end.time, str(row["worker"])))


def idle_seconds(run: Run, address: str) -> float:
    """Return the interval at which an idle worker writes to its file, or 0 if it is not idle."""
    lives = np.flatnonzero((run.workers["address"] == address).to_numpy(dtype=bool))
    held = run.managed_memory.reindex(columns=["worker_id", "executing"])
    executing = held["executing"][held["worker_id"].isin(lives)].to_numpy(dtype=float)
    return IDLE_INTERVAL if len(executing) and executing[-1] == 0 else 0.0


def _long_processing(run: Run, time: float, address: str) -> set[str]:
    """Return the keys that had the state processing on a worker in all recent scheduler states."""
    states = run.scheduler_states
    before = states[states["time"] <= time - _LONG]
    if not len(before):
        return set()
    rows = states[(states["time"] >= before["time"].iloc[-1]) & (states["time"] <= time)]
    steady = []
    for workers in rows["workers"]:
        rows_of_worker = [worker for worker in workers or () if worker.get("worker") == address]
        steady.append({str(key) for worker in rows_of_worker for key in worker.get("keys") or ()})
    return set.intersection(*steady)


#: Columns that do not change while a task makes no visible progress.
_DOING = ["state", "stack", "waits_in", "waits_for"]


def with_texts(row: Mapping[Any, Any], run: Run) -> dict[Any, Any]:
    """Return a row in which the keys that a task or a client waits for are texts and not ids."""
    keys = run.keys.texts(np.array([*(row["waits_keys"] or ())], dtype=np.int64)).tolist()
    return {**row, "waits_keys": keys}


def tasks_at(run: Run, time: float, stacks: list[Stack]) -> tuple[TaskUnderWay, ...]:
    """Return the tasks that workers had in progress at a time, sorted by start.

    `stacks` are the stacks of the run, followed by an empty stack for samples without a stack.
    """
    history = run.under_way_history
    history = history[history["time"] <= time]
    last = history.drop_duplicates(RUN, keep="last")
    open_ = ~last["state"].isin(["cancelled", "released"]).to_numpy()
    open_ &= ~(run.workers["left"].to_numpy(dtype=float)[last["worker_id"]] < time)
    last = last[open_]
    # Exclude tasks that ended before this time according to their workers.
    ended = run.tasks[(run.tasks["start"] + run.tasks["duration"] <= time).to_numpy()]
    ended = ended[np.isin(ended["key_id"].to_numpy(), last["key_id"].to_numpy())]
    has_ended = pd.MultiIndex.from_frame(last[RUN]).isin(pd.MultiIndex.from_frame(ended[RUN]))
    last = last[~has_ended].sort_values("since", kind="stable")
    samples = dict(iter(history.groupby(RUN, sort=False)))
    codes, functions = run.keys.functions()
    labels = run.workers["worker"].to_numpy(dtype=object)
    keys = run.keys.texts(last["key_id"].to_numpy()).tolist()
    return tuple(
        TaskUnderWay.from_row(
            {**with_texts(row, run), "key": key},
            time,
            str(labels[row["worker_id"]]),
            stacks[int(row["stack"])],
            function=functions[codes[row["key_id"]]],
            cpu=None if np.isnan(row["cpu"]) else float(row["cpu"]),
            unchanged=seconds_since(_same_since(samples[tuple(row[name] for name in RUN)]), time),
            holds=tuple((str(kind), str(name)) for kind, name in row["holds"] or ()),
        )
        for key, row in zip(keys, last.to_dict("records"), strict=True)
    )


def _same_since(samples: pd.DataFrame) -> float:
    """Return the time since which all samples have shown a task unchanged."""
    doing = [tuple(map(str, values)) for values in samples[_DOING].to_numpy(dtype=object).tolist()]
    first = len(doing) - 1
    while first > 0 and doing[first - 1] == doing[-1]:
        first -= 1
    return float(samples["time"].iloc[first])
