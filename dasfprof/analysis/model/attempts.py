"""Every attempt at a task that a trace tells of, those on workers that were lost too."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.analysis.run.open_runs import (
    LOST,
    RELEASED,
    RUNNING,
    WAITING,
    left_unasked,
    taken_back,
)
from dasfprof.analysis.run.run_end import CANCELLED as CANCELLED_BY
from dasfprof.analysis.run.run_end import DROPPED, given_up
from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.database.columns import Array

#: Categories of what went wrong, besides the types of exceptions.
WORKER_LOST, CANCELLED, RESCHEDULED, UNKNOWN = "worker lost", "cancelled", "rescheduled", "unknown"
#: The worker was asked to leave.
WORKER_CLOSED = "worker closed"

#: Why a key was attempted again.
FIRST, RETRIED, RECOMPUTED, RESTARTED = range(4)

#: An exception's representation begins with its type: ``ValueError('no 3')``.
_TYPE = re.compile(r"\s*<?([^\W\d]\w*(?:\.\w+)*)")
#: What Dask raises for a task under which several workers died.
_KILLED = "KilledWorker"


def find_attempts(run: Run) -> pd.DataFrame:
    """List the attempts at tasks, in the order of their start.

    They are the task runs of `Trace.tasks`, and those that had not ended; those that the scheduler
    saw end on workers whose files do not hold them; and tasks that a worker had been sent as it
    left the cluster, as a client gave them up or as recording ended, of which nothing tells how far
    they came.

    Returns
    -------
    DataFrame
        ``key_id``; ``function``, ``step`` (Categorical); ``worker`` (a number of `NamedWorkers`);
        ``life`` (its row in `Trace.workers`); ``attempt`` (from 1, of each key); ``again`` (whether
        the one before it of its key failed: `RETRIED`; had made a result, which was lost or
        released: `RECOMPUTED`; or neither, as its worker was lost or it was cancelled: `RESTARTED`;
        else `FIRST`); ``status`` (Categorical, its categories in order: the state that it ended in,
        or one of `OPEN_STATES`); ``succeeded``; ``open`` (it has not ended: its seconds are those
        until evidence ends); ``start`` (it was given a thread; where no file tells, its function
        began, or it was sent to the worker); ``elapsed`` (until the worker knew the outcome),
        ``run`` (in the function),
        ``cpu`` and ``core_wait`` (its thread had no core) seconds; ``input_size`` (bytes);
        ``category`` (Categorical: the exception's type, or one of the constants here; NA if it
        succeeded), ``message`` and ``raised_at`` (the last line of user code in its traceback).
    """
    workers, ended = run.named, len(run.tasks)
    lost, earlier = left_unasked(run), earlier_attempts(run)
    run = run.whole
    steps, step_names = step_groups(run.tasks, run.scheduler_only)
    parts = [_recorded(run, steps[: len(run.tasks)], ended)]
    if len(run.scheduler_only):
        parts.append(_unrecorded(run, steps[len(run.tasks) :], lost))
    names = parts[0].keys()
    columns: dict[str, Any] = {name: np.concatenate([p[name] for p in parts]) for name in names}
    order = np.argsort(columns["start"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["life"] = columns.pop("worker_id")
    columns["worker"] = workers.of_lives[columns["life"]]
    number = _numbered(columns["key_id"])
    functions = run.tasks["function"].cat.categories
    columns["function"] = pd.Categorical.from_codes(columns["function"], categories=functions)
    columns["step"] = make_categorical(columns["step"], step_names)
    _name_outcomes(columns)
    columns["attempt"], columns["again"] = number, _why_again(columns, number)
    if len(earlier):
        known = earlier.reindex(run.keys.hashes()[columns["key_id"]])
        columns["attempt"] = number + known["attempts"].fillna(0).to_numpy(dtype=np.int64)
        again = known["follows"].fillna(FIRST).to_numpy(dtype=np.int64)
        columns["again"] = np.where(number == 1, again, columns["again"])
    return pd.DataFrame(columns, copy=False)


@once_per_trace
def earlier_attempts(run: Run) -> pd.DataFrame:
    """Return what is known of attempts before the part of a run that a trace is: see `at_keys`."""
    return pd.DataFrame({"attempts": [], "follows": []}, index=np.empty(0, dtype=np.uint64))


def at_keys(run: Run) -> pd.DataFrame:
    """Return what is known of the attempts at each key, by its hash.

    ``attempts`` is their number; ``follows`` says why there would be another one, as ``again`` of
    `find_attempts` does.
    """
    attempts = find_attempts(run)
    last = attempts[~attempts["key_id"].duplicated(keep="last")]
    columns = {str(name): column.to_numpy() for name, column in last.items()}
    told = {"attempts": columns["attempt"], "follows": _follows(columns)}
    table = pd.DataFrame(told, index=run.keys.hashes()[columns["key_id"]])
    return table.astype({"attempts": np.int32, "follows": np.int8})


def _recorded(run: Run, steps: Array, ended: int) -> dict[str, Array]:
    """Return the task runs that are in files of workers (or, without any, in the scheduler's).

    The first of them have ended.
    """
    tasks = run.tasks
    executing, start = tasks["executing"].to_numpy(), tasks["start"].to_numpy()
    begun = np.where(np.isfinite(executing), executing, start)
    length = tasks["duration"].to_numpy()
    with np.errstate(invalid="ignore"):  # of times beyond any clock
        elapsed = tasks["done"].to_numpy() - executing
    # A clock that was set back must not make it shorter than what it holds.
    elapsed = np.where(np.isfinite(elapsed), np.maximum(elapsed, length), np.nan)
    elapsed[ended:] = length[ended:]
    state = _objects(tasks["state"])
    lost = np.zeros(len(tasks), dtype=bool)
    lost[ended:] = state[ended:] == LOST
    return {
        "key_id": tasks["key_id"].to_numpy(),
        "worker_id": tasks["worker_id"].to_numpy(),
        "function": tasks["function"].cat.codes.to_numpy(),
        "step": steps,
        "start": begun,
        "elapsed": elapsed,
        "run": length,
        "cpu": tasks["cpu"].to_numpy(dtype=float),
        "core_wait": tasks["run_queue"].to_numpy(dtype=float),
        "input_size": tasks["input_size"].to_numpy(dtype=float),
        "status": state,
        "message": _objects(tasks["exception"]),
        "raised_at": _objects(tasks["raised_at"])
        if "raised_at" in tasks
        else np.full(len(tasks), None, dtype=object),
        "loss": np.where(lost, WORKER_LOST, "").astype(object),
    }


def _unrecorded(run: Run, steps: Array, lost: Array) -> dict[str, Array]:
    """Return what the scheduler alone tells of.

    Those are runs that it saw end, tasks of workers that left, those that clients gave up, and
    those on workers as recording ended.
    """
    rows = run.scheduler_only
    worker = rows["worker_id"].to_numpy()
    ran, with_worker = rows["lost"].to_numpy(), taken_back(run, rows)
    released = given_up(run, rows, (*DROPPED, CANCELLED_BY)) & ~ran
    killed = rows["scheduler_exception"].astype(object).fillna("").str.startswith(_KILLED)
    status = _objects(rows["scheduler_state"])
    open_ = ~ran & (status == "processing")
    status[open_] = WAITING
    status[released] = RELEASED
    loss = np.where(lost[worker], WORKER_LOST, WORKER_CLOSED).astype(object)
    loss[~with_worker] = ""
    kept = ran | with_worker | killed.to_numpy(dtype=bool) | released | open_
    status, loss = status[kept], loss[kept]
    rows, ran = rows[kept], ran[kept]
    start, stop = rows["scheduler_start"].to_numpy(), rows["scheduler_stop"].to_numpy()
    nothing = np.full(len(rows), np.nan)
    return {
        "key_id": rows["key_id"].to_numpy(),
        "worker_id": rows["worker_id"].to_numpy(),
        "function": rows["function"].cat.codes.to_numpy(),
        "step": steps[kept],
        "start": np.where(ran, start, rows["sent"].to_numpy()),
        "elapsed": nothing,
        "run": np.where(ran, np.maximum(stop - start, 0.0), np.nan),
        "cpu": nothing,
        "core_wait": nothing,
        "input_size": nothing,
        "status": status,
        "message": _objects(rows["scheduler_exception"]),
        "raised_at": np.full(len(rows), None, dtype=object),
        "loss": loss,
    }


def _objects(column: pd.Series) -> Array:
    objects = np.array([*column.cat.categories, None], dtype=object)
    found: Array = objects[column.cat.codes.to_numpy()]
    return found


def _numbered(key_ids: Array) -> Array:
    """Number equal keys from 1 in the order in which they come."""
    order = np.argsort(key_ids, kind="stable")
    ordered = key_ids[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(order)])
    numbers = np.empty(len(order), dtype=np.int64)
    lengths = np.diff(np.r_[begins, len(order)])
    numbers[order] = np.arange(1, len(order) + 1) - np.repeat(begins, lengths)
    return numbers


def _why_again(columns: dict[str, Any], number: Array) -> Array:
    """Say why each attempt was made, by how the one before it of the same key ended."""
    order = np.lexsort((number, columns["key_id"]))
    before = np.empty(len(order), dtype=np.int64)
    before[order] = np.r_[order[:1], order[:-1]]
    again: Array = np.where(number == 1, FIRST, _follows(columns)[before])
    return again


def _follows(columns: dict[str, Any]) -> Array:
    """Say why there would be an attempt after each."""
    ended = [columns["succeeded"], np.asarray(columns["status"] == "erred")]
    follows: Array = np.select(ended, [RECOMPUTED, RETRIED], default=RESTARTED)
    return follows


def _name_outcomes(columns: dict[str, Any]) -> None:
    """Say how each attempt ended, and what kind of failure it was."""
    loss = columns.pop("loss")
    codes, states = pd.factorize(columns["status"], sort=True)
    columns["status"] = make_categorical(codes, list(states))
    # Traces whose events tell no state hold finished tasks only.
    succeeded = ((codes < 0) | np.append(states == "memory", False)[codes]) & (loss == "")
    columns["succeeded"] = succeeded
    open_ = np.append(np.isin(states, (RUNNING, WAITING)), False)[codes] & (loss == "")
    columns["open"] = open_ | (np.append(states == RELEASED, False)[codes] & (loss == ""))
    messages, texts = pd.factorize(columns["message"])
    categories = [error_category(text) for text in texts]
    named = np.append(np.array(categories, dtype=object), UNKNOWN)[messages]
    silent = (messages < 0) & ~succeeded
    of_states = {"cancelled": CANCELLED, RELEASED: CANCELLED, "rescheduled": RESCHEDULED}
    for state, category in of_states.items():
        named[silent & np.append(states == state, False)[codes]] = category
    named[loss != ""] = loss[loss != ""]
    named[succeeded | open_] = None
    columns["category"] = make_categorical(*_factorized(named))
    columns["message"][succeeded] = None
    for name in ("message", "raised_at"):
        columns[name] = pd.Series(columns[name], dtype=object, copy=False)


def error_category(text: str) -> str:
    """Classify an exception by its representation."""
    found = _TYPE.match(text)
    if found is None:
        return UNKNOWN
    return WORKER_LOST if found[1] == _KILLED else found[1]


def _factorized(items: Array) -> tuple[Array, list[Any]]:
    codes, values = pd.factorize(items)
    return codes, list(values)
