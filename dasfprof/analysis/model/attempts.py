"""All attempts at tasks in a trace, including attempts on lost workers."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import groups_by
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.run_end import CANCELLED as CANCELLED_BY
from dasfprof.analysis.run.run_end import DROPPED, cancelled_runs, left_unasked, taken_back
from dasfprof.analysis.run.task_runs import LOST, RELEASED, RUNNING, WAITING, open_runs, to_ticks
from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.analysis.trace.keys import function_name
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array
from dasfprof.database.ends import End

#: Categories of failures that are not types of exceptions.
WORKER_LOST, CANCELLED, RESCHEDULED, UNKNOWN = "worker lost", "cancelled", "rescheduled", "unknown"
#: Category of attempts whose worker was asked to leave.
WORKER_CLOSED = "worker closed"

#: Reasons for an attempt at a key. See ``again`` in `find_attempts`.
FIRST, RETRIED, RECOMPUTED, RESTARTED = range(4)

#: Type of an exception, at the start of its representation: ``ValueError('no 3')``.
_TYPE = re.compile(r"\s*<?([^\W\d]\w*(?:\.\w+)*)")
#: Exception with which Dask fails a task if several workers died while running the task.
_KILLED = "KilledWorker"


def find_attempts(run: Run) -> pd.DataFrame:
    """List the attempts at tasks, in the order of their start.

    These are the task runs of `Trace.tasks`, unfinished task runs, task runs whose end only the
    scheduler recorded, and tasks that were assigned to a worker when the worker left, when a client
    cancelled them, or when recording ended. It is unknown how far such assigned tasks had been
    executed.

    Returns
    -------
    DataFrame
        One row per attempt:

        - ``key_id``
        - ``function``, ``step``, ``client`` (Categorical)
        - ``worker``: the number of the worker in `NamedWorkers`
        - ``life``: the row of the worker instance in `Trace.workers`
        - ``attempt``: the number of the attempt among all attempts at the key, from 1
        - ``again``: `FIRST` for the first attempt at the key. For others, the reason for another
          attempt: `RETRIED` if the previous attempt failed, `RECOMPUTED` if its result was lost or
          released later, and `RESTARTED` if it did not finish, because its worker was lost or it
          was cancelled
        - ``status`` (Categorical, sorted): the final state of the task run, or one of `OPEN_STATES`
        - ``succeeded``
        - ``open``: whether the attempt is unfinished. If so, its seconds end at the last recorded
          event
        - ``start``: the time at which the attempt got a thread. If that was not recorded, the time
          at which its function started, or at which it was assigned to the worker
        - ``elapsed``: seconds until the worker knew the outcome
        - ``run``, ``cpu``, ``core_wait``: seconds in the function, on a core, and waiting for a
          core
        - ``input_size``: bytes of all inputs
        - ``category`` (Categorical): type of the exception, or one of the constants of this module.
          NA if the attempt succeeded
        - ``message``
        - ``raised_at``: the last line of user code in the traceback
    """
    workers, earlier = run.named, earlier_attempts(run)
    tables = run.task_runs, open_runs(run).others
    parts = [_recorded(run), *([_unrecorded(run, tables[1])] if len(tables[1]) else [])]
    names = parts[0].keys()
    columns: dict[str, Any] = {name: np.concatenate([p[name] for p in parts]) for name in names}
    order = np.argsort(columns["start"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["life"] = columns.pop("worker_id")
    columns["worker"] = workers.of_lives[columns["life"]]
    keys = columns["key_id"]
    number = 1 + pd.Series(keys).groupby(keys).cumcount().to_numpy()
    functions = run.task_runs["function"].cat.categories
    columns["function"] = pd.Categorical.from_codes(columns["function"], categories=functions)
    rows = columns.pop("row")
    for name in ("step", "client"):
        codes, labels = groups_by(name, *tables)
        columns[name] = make_categorical(codes[rows], labels)
    _name_outcomes(columns)
    columns["attempt"] = number
    before = pd.Series(_follows(columns)).groupby(keys).shift(fill_value=FIRST)
    columns["again"] = before.to_numpy(dtype=np.int64)
    if len(earlier):
        known = earlier.reindex(run.keys.hashes()[columns["key_id"]])
        columns["attempt"] = number + known["attempts"].fillna(0).to_numpy(dtype=np.int64)
        again = known["follows"].fillna(FIRST).to_numpy(dtype=np.int64)
        columns["again"] = np.where(number == 1, again, columns["again"])
    return pd.DataFrame(columns, copy=False)


@once_per_trace
def earlier_attempts(run: Run) -> pd.DataFrame:
    """Return the table of `at_keys` for the time before the trace's time window."""
    # A full run has no earlier attempts.
    return pd.DataFrame({"attempts": [], "follows": []}, index=np.empty(0, dtype=np.uint64))


def at_keys(run: Run) -> pd.DataFrame:
    """Return one row per attempted key, indexed by the hash of the key.

    ``attempts`` is the number of attempts. ``follows`` is the value of ``again`` (see
    `find_attempts`) for the next attempt at the key, if there was one.
    """
    attempts = find_attempts(run)
    last = attempts.drop_duplicates("key_id", keep="last")
    at_key = {"attempts": last["attempt"].to_numpy(), "follows": _follows(last)}
    table = pd.DataFrame(at_key, index=run.keys.hashes()[last["key_id"]])
    return table.astype({"attempts": np.int32, "follows": np.int8})


def _recorded(run: Run) -> dict[str, Array]:
    """Return the task runs in workers' files, or in the scheduler's if no worker has a file."""
    tasks, ended = run.task_runs, len(run.tasks)
    executing, start = tasks["executing"].to_numpy(), tasks["start"].to_numpy()
    start = np.where(np.isfinite(executing), executing, start)
    length = tasks["duration"].to_numpy()
    elapsed = tasks["done"].to_numpy() - executing
    # If a clock was set back, the attempt would seem shorter than its function.
    elapsed = np.maximum(elapsed, length)
    elapsed[ended:] = length[ended:]
    state = _objects(tasks["state"])
    lost = (state == LOST) & (np.arange(len(tasks)) >= ended)
    return {
        "row": np.arange(len(tasks)),
        "key_id": tasks["key_id"].to_numpy(),
        "worker_id": tasks["worker_id"].to_numpy(),
        "function": tasks["function"].cat.codes.to_numpy(),
        "start": start,
        "elapsed": elapsed,
        "run": length,
        "cpu": tasks["cpu"].to_numpy(dtype=float),
        "core_wait": tasks["run_queue"].to_numpy(dtype=float),
        "input_size": tasks["input_size"].to_numpy(dtype=float),
        "status": state,
        "message": _objects(tasks["exception"]),
        "raised_at": _objects(tasks["raised_at"]),
        "loss": np.where(lost, WORKER_LOST, "").astype(object),
    }


def _unrecorded(run: Run, rows: pd.DataFrame) -> dict[str, Array]:
    """Return the attempts that only the scheduler recorded, as `rows`."""
    worker = rows["worker_id"].to_numpy()
    ran, with_worker = rows["lost"].to_numpy(), taken_back(run, rows)
    released = cancelled_runs(run, rows, (*DROPPED, CANCELLED_BY)) & ~ran
    killed = rows["scheduler_exception"].astype(object).fillna("").str.startswith(_KILLED)
    status = _objects(rows["scheduler_state"])
    open_ = ~ran & (status == "processing")
    status[open_] = WAITING
    status[released] = RELEASED
    loss = np.where(left_unasked(run)[worker], WORKER_LOST, WORKER_CLOSED).astype(object)
    loss[~with_worker] = ""
    listed = ran | with_worker | killed.to_numpy(dtype=bool) | released | open_
    status, loss = status[listed], loss[listed]
    rows, ran = rows[listed], ran[listed]
    start, stop = rows["scheduler_start"].to_numpy(), rows["scheduler_stop"].to_numpy()
    nothing = np.full(len(rows), np.nan)
    return {
        "row": len(run.task_runs) + np.flatnonzero(listed),
        "key_id": rows["key_id"].to_numpy(),
        "worker_id": rows["worker_id"].to_numpy(),
        "function": rows["function"].cat.codes.to_numpy(),
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
    return objects[column.cat.codes.to_numpy()]


def _follows(columns: dict[str, Any] | pd.DataFrame) -> Array:
    """Return the value of ``again`` for the next attempt at the key of each attempt."""
    ended = [np.asarray(columns["succeeded"]), np.asarray(columns["status"] == "erred")]
    return np.select(ended, [RECOMPUTED, RETRIED], default=RESTARTED)


def _name_outcomes(columns: dict[str, Any]) -> None:
    """Add the outcome of each attempt, and the category of its failure."""
    loss = columns.pop("loss")
    codes, states = pd.factorize(columns["status"], sort=True)
    columns["status"] = make_categorical(codes, list(states))

    def has_state(*names: str) -> Array:
        return np.append(np.isin(states, names), False)[codes]

    # In traces whose events lack states, all tasks have finished.
    succeeded = ((codes < 0) | has_state("memory")) & (loss == "")
    columns["succeeded"] = succeeded
    open_ = has_state(RUNNING, WAITING) & (loss == "")
    columns["open"] = has_state(RUNNING, WAITING, RELEASED) & (loss == "")
    messages, texts = pd.factorize(columns["message"])
    categories = [error_category(text) for text in texts]
    named = np.append(np.array(categories, dtype=object), UNKNOWN)[messages]
    silent = (messages < 0) & ~succeeded
    of_states = {"cancelled": CANCELLED, RELEASED: CANCELLED, "rescheduled": RESCHEDULED}
    for state, category in of_states.items():
        named[silent & has_state(state)] = category
    named[loss != ""] = loss[loss != ""]
    named[succeeded | open_] = None
    kinds, names = pd.factorize(named)
    columns["category"] = make_categorical(kinds, list(names))
    columns["message"][succeeded] = None
    for name in ("message", "raised_at"):
        columns[name] = pd.Series(columns[name], dtype=object, copy=False)


def error_category(text: str) -> str:
    """Return the category of an exception, given its representation."""
    match = _TYPE.match(text)
    if match is None:
        return UNKNOWN
    return WORKER_LOST if match[1] == _KILLED else match[1]


#: A step function: sorted times, and the value from each time until the next.
Steps = tuple[Array, Array]

NONE: Steps = (np.empty(0), np.empty(0, dtype=np.int64))


@once_per_trace
def live_at_counts(run: Run) -> Array:
    """Return how many task runs were unfinished each time that the scheduler counted its tasks."""
    at = _counted(run)
    times, more = run.all_slots.times, run.unlisted
    order = np.argsort(at, kind="stable")
    live = np.zeros(len(at), dtype=np.int64)
    came, ended = np.append(times.arrival, more.arrival), np.append(times.known, more.known)
    for sign, moments in ((1, came), (-1, ended)):
        passed = np.bincount(np.searchsorted(at[order], moments), minlength=len(at) + 1)
        live[order] += sign * np.cumsum(passed[:-1])
    return live


def unlisted_tasks(run: Run) -> Steps:
    """Return how many of the scheduler's unfinished tasks have no recorded task run, over time.

    The first array has the times at which this number changes. The second one has the number from
    each of these times onwards.
    """
    states, at = run.scheduler_states, _counted(run)
    more = np.nan_to_num(states["unfinished"].to_numpy(dtype=float)).astype(np.int64)
    more = np.maximum(more - live_at_counts(run), 0)
    if not more.any():
        return NONE
    # Between two counts, the number is the smaller of those at both.
    gone = states["occasion"].iloc[-1] == "client-left"
    held = np.minimum(more, np.append(more[1:], 0 if gone else more[-1]))
    # If a count is higher than the one before, the new tasks came with the last graph before it.
    graphs = np.append(-np.inf, np.sort(run.since_begin(run.graphs["time"])))
    came = to_ticks(graphs[np.searchsorted(graphs, at, side="right") - 1])
    came = np.where(came > np.append(-np.inf, at[:-1]), came, at)
    times = np.concatenate([came, at])
    order = np.argsort(times, kind="stable")
    return times[order], np.concatenate([more, held])[order]


def _counted(run: Run) -> Array:
    """Return the times at which the scheduler counted its unfinished tasks."""
    return to_ticks(run.since_begin(run.scheduler_states["time"]))


NO_WORKER = "no-worker"


class UnsentTask(NamedTuple):
    """A task that has no task run."""

    #: Text of the task's key.
    key: str
    function: str
    #: `WAITING`, `NO_WORKER`, or `RELEASED` (by the client).
    status: str


def unsent_tasks(run: Run, sent: set[str] | None = None) -> list[UnsentTask]:
    """Return the tasks that were unfinished when recording ended, and that have no task run.

    Tasks whose keys were not recorded are left out. `sent` is the union of `sent_tasks` over all
    time windows, or None if `run` is the full run.
    """
    sent = sent_tasks(run) if sent is None else sent
    return [task for task in _named_tasks(run) if task.key not in sent]


def sent_tasks(run: Run) -> set[str]:
    """Return the recorded keys of unfinished tasks (see `_named_tasks`) that have task runs."""
    wanted = {task.key for task in _named_tasks(run)}
    if not wanted:
        return set()
    ids = [table["key_id"] for table in (run.task_runs, run.scheduler_only)]
    known = np.unique(np.concatenate([column.to_numpy(dtype=np.int64) for column in ids]))
    functions, names = run.keys.functions()
    near = {function_name(key) for key in wanted}
    known = known[np.isin(functions[known], np.flatnonzero([name in near for name in names]))]
    return wanted & set(run.keys.texts(known).tolist())


def _named_tasks(run: Run) -> list[UnsentTask]:
    end = run.ending
    if end is None:
        return []
    state: dict[str, Any] = end.state or {}
    statuses = {
        str(key): WAITING
        for holder in (*(state.get("clients") or ()), *(state.get("workers") or ()))
        for key in holder.get("keys") or ()
    }
    statuses |= {str(task["key"]): NO_WORKER for task in state.get("held_back") or ()}
    keys = run.keys.texts(run.unsent["key"].to_numpy()).tolist()
    for key, name in zip(keys, run.unsent["state"].astype(object), strict=True):
        statuses.setdefault(key, NO_WORKER if name == NO_WORKER else WAITING)
    return [
        UnsentTask(key, function_name(key), RELEASED if end.how is End.LEFT else status)
        for key, status in statuses.items()
    ]
