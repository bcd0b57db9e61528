"""Rules about what became of tasks: failed, done again, lost, or never ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.units import count, duration, excerpt, percent, size
from dasfprof.analysis.model.accounting import ThreadTime
from dasfprof.analysis.model.attempts import WORKER_LOST
from dasfprof.database.columns import Array

#: Shares of the seconds of all tasks, and of all attempts, that failed.
_FAILED_SECONDS = 0.02
_FAILED_ATTEMPTS = 0.05
#: The share of the seconds of all tasks that were spent on results that had been there before.
_AGAIN = 0.02


@rule(
    "failed-attempts",
    symptoms=(
        "recomputation",
        "straggling-tasks",
        "imbalance",
        "too-few-tasks",
    ),
)
def failed_attempts(run: RunFigures) -> Iterator[Finding]:
    """Find attempts that failed and were made again, and their seconds."""
    attempts = run.attempts
    erred = (attempts["status"] == "erred") & (attempts["category"] != WORKER_LOST)
    failed = (erred & ~attempts["succeeded"]).to_numpy(dtype=bool)
    seconds = attempts["run"].fillna(0.0).to_numpy()
    lost = float(seconds[failed].sum())
    if not failed.any() or (
        lost < _FAILED_SECONDS * seconds.sum() and failed.mean() < _FAILED_ATTEMPTS
    ):
        return
    kept = failed & ~_final(attempts["key_id"].to_numpy())
    if not kept.any():
        return
    own = attempts[kept]
    name, category = _most(own["function"]), _most(own["category"])
    message = own["message"].to_numpy()[(own["category"] == category).to_numpy()][0]
    yield Finding(
        f"{count(int(kept.sum()), 'attempt')} failed and had to be made again, most with "
        f"{category} in {name}: {duration(float(seconds[kept].sum()))} of thread time.",
        f"{percent(float(kept.mean()))} of all attempts. The first message: {excerpt(message)} See "
        "processed_tasks().",
        f"Make {name} not fail: catch and retry {category} inside of it where it is cheap, or "
        "mend what causes it; retries= starts the whole task again.",
        seconds=run.saved(
            float(seconds[kept].sum()) / run.threads,
            running=run.with_durations((run.trace.tasks["state"] == "erred").to_numpy(bool), 0.0),
        ),
        at_least="medium",
        function=name,
    )


@rule("errors")
def errors(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that ended in an error for good."""
    attempts = run.attempts
    last = attempts[_final(attempts["key_id"].to_numpy())]
    erred = last[(last["status"] == "erred") & ~last["succeeded"]]
    if not len(erred):
        return
    first = erred.head(1).to_dict("records")[0]
    name = str(first["function"])
    yield Finding(
        f"{count(len(erred), 'task')} ended in an error: {first['category']} in {name}.",
        f"The first: {run.text_of_key(first['key_id'])}: "
        f"{excerpt(str(first['message']))} See processed_tasks().",
        f"Mend {name}, or give retries= where the error passes by itself; what depends on these "
        "tasks has no result.",
        at_least="high",
        function=name,
        worker=str(run.workers.labels[first["worker"]]),
        start=float(first["start"]) - run.trace.begin,
    )


@rule(
    "lost-workers",
    symptoms=(
        "recomputation",
        "imbalance",
        "too-few-tasks",
        "serial-chain",
    ),
)
def lost_workers(run: RunFigures) -> Iterator[Finding]:
    """Find workers that were lost with tasks on them."""
    attempts = run.attempts
    lost = attempts[(attempts["category"] == WORKER_LOST).to_numpy(dtype=bool)]
    if not len(lost):
        return
    numbers, counts = np.unique(lost["worker"].to_numpy(), return_counts=True)
    worst = int(numbers[counts.argmax()])
    name = _most(lost["function"])
    left = run.trace.workers["left"].to_numpy()[run.workers.of_lives == worst]
    at = float(np.nanmin(left)) - run.trace.begin if np.isfinite(left).any() else float("nan")
    yield Finding(
        f"{count(len(numbers), 'worker')} left the cluster with {count(len(lost), 'task')} on "
        f"them, most of {name}.",
        f"{run.workers.labels[worst]} left {duration(at)} into the trace, with "
        f"{int(counts.max())} of them.{_memory(run, worst)} See processed_tasks() and "
        "process_summary().",
        f"Look at what killed it: often memory, as many tasks of {name} run at a time (fewer "
        "threads, a higher memory_limit, smaller chunks); else the batch system, or a crash in a "
        "library. Its log tells.",
        at_least="high",
        function=name,
        worker=str(run.workers.labels[worst]),
        start=at,
        stop=at,
    )


def _memory(run: RunFigures, worker: int) -> str:
    """Say how much of its memory a worker had used at most, if that is known."""
    lives = run.workers.of_lives == worker
    known = lives & np.isfinite(run.memory_peaks + run.memory_limits)
    if not known.any():
        return ""
    peak, limit = run.memory_peaks[known].max(), run.memory_limits[known].max()
    return f" Its process had up to {size(peak)} of a limit of {size(limit)}."


@rule(
    "recomputation",
    symptoms=(
        "tasks-too-small",
        "dominating-function",
        "blocked-tasks",
        "io-bound",
    ),
)
def recomputation(run: RunFigures) -> Iterator[Finding]:
    """Find results that were computed again, though they had been there before."""
    tasks = run.trace.tasks
    again = run.succeeded & (_attempt_numbers(tasks["key_id"].to_numpy(), run.succeeded) > 0)
    seconds = run.working
    lost = float(seconds[again].sum())
    if not lost > _AGAIN * seconds.sum():
        return
    by_function = np.bincount(run.functions.codes[again], weights=seconds[again])
    code = int(by_function.argmax())
    name = str(run.function_names[code])
    own = int(np.count_nonzero(again & (run.functions.codes == code)))
    yield Finding(
        f"Results are computed more than once: {count(int(again.sum()), 'task')}, "
        f"{duration(lost)} of thread time, most of it in {name}.",
        f"{count(own, 'task')} of {name} ran again after their results had been released, or lost "
        f"with a worker; {percent(lost / float(seconds.sum()))} of all seconds of tasks. See "
        'processed_tasks("function").',
        f"Keep what is used again: persist() the collection that {name} makes before it is used, "
        "or give all that needs it to one dask.compute().",
        seconds=_cost(run, again),
        function=name,
    )


@rule("unfinished-tasks")
def unfinished_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that were on a worker and not done when recording ended."""
    only = run.trace.scheduler_only
    if "scheduler_state" not in only:
        return
    left = only[(only["scheduler_state"] == "processing").to_numpy(dtype=bool) & ~only["lost"]]
    if not len(left):
        return
    waited = (run.trace.end - left["sent"]).to_numpy(dtype=float)
    longest = int(np.nanargmax(waited))
    name = _most(left["function"])
    label = str(left["worker"].iloc[longest])
    key = run.text_of_key(int(left["key_id"].iloc[longest]))
    unsent = run.trace.unsent
    behind = int(unsent["tasks"].sum()) if "tasks" in unsent else 0
    waiting = f" {count(behind, 'more task')} had not been sent to a worker." if behind else ""
    yield Finding(
        f"{count(len(left), 'task')} had not ended when recording did, most of {name}: the longest "
        f"has been on its worker for {duration(float(waited[longest]))}.",
        f"Key {key} on {label}. {_usually(run, name)}{waiting} See processed_tasks().",
        f"If it is stuck, look at what {name} does there, by client.call_stack() or the worker's "
        "log: a lock, a lost connection, an endless loop. If not, stop recording after wait() or "
        "compute() have returned.",
        at_least="medium",
        at_most="medium",
        function=name,
        worker=label,
        start=float(left["sent"].iloc[longest]) - run.trace.begin,
        stop=run.trace.end - run.trace.begin,
    )


@rule("no-worker-fits")
def no_worker_fits(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that no worker is allowed to run, or has the resources for."""
    for row in run.trace.unsent.to_dict("records"):
        if row["state"] != "no-worker":
            continue
        asked = row["restrictions"] or {}
        words = "; ".join(f"{name}={value}" for name, value in asked.items())
        name, key = str(row["name"]), run.text_of_key(int(row["key"]))
        since = float(row["time"]) - run.trace.begin
        yield Finding(
            f"No worker fits {count(int(row['tasks']), 'task')} of {name}: they had not been sent "
            f"to any for {duration(run.trace.end - run.trace.begin - since)} when recording ended.",
            f"Key {key} asks for {words or 'nothing, so that there was no worker at all'}.",
            "Start a worker that offers this (dask worker --resources, or its address or name), or "
            f"take workers= and resources= from {name}; until then this run does not end.",
            at_least="high",
            function=name,
            start=since,
            stop=run.trace.end - run.trace.begin,
        )


def _cost(run: RunFigures, rows: Array) -> float:
    """Return the wall seconds that task runs cost: of threads that they held, and of Dask.

    That is their share of the time in which threads wait for the next of all tasks.
    """
    own, slots = np.flatnonzero(rows), run.slots
    held = float((slots.end - slots.times.executing)[own].sum()) / run.threads
    waited = run.seconds_of(
        ThreadTime.SCHEDULER_LATENCY, ThreadTime.WORKER_LATENCY, ThreadTime.TRANSFER_WAIT
    )
    return held + waited * len(own) / len(slots.end)


def _most(column: pd.Series) -> str:
    """Return the text that a column has most often."""
    return str(Counter(column.tolist()).most_common(1)[0][0])


def _usually(run: RunFigures, name: str) -> str:
    own = run.working[(run.trace.tasks["function"] == name).to_numpy(dtype=bool)]
    if not len(own):
        return f"No task of {name} ended."
    return f"Other tasks of {name} take {duration(float(np.median(own)))}."


def _final(key_ids: Array) -> Array:
    """Return which rows are the last of their key."""
    final = np.zeros(len(key_ids), dtype=bool)
    _, first_from_the_end = np.unique(key_ids[::-1], return_index=True)
    final[len(key_ids) - 1 - first_from_the_end] = True
    return final


def _attempt_numbers(key_ids: Array, counted: Array) -> Array:
    """Number the counted rows of each key from 0, in their order; others have -1."""
    rows = np.flatnonzero(counted)
    order = rows[np.argsort(key_ids[rows], kind="stable")]
    ordered = key_ids[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(order)])
    lengths = np.diff(np.r_[begins, len(order)])
    numbers = np.full(len(key_ids), -1, dtype=np.int64)
    numbers[order] = np.arange(len(order)) - np.repeat(begins, lengths)
    return numbers
