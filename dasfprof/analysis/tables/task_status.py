"""Statuses of task runs: what they waited for and did, in total and by function and step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import groups_by, has_steps
from dasfprof.analysis.numeric.groups import Groups, GroupSums, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.task_runs import OPEN_STATES, STATUSES
from dasfprof.analysis.tables.columns import LISTED, first_rows, folded, origin_columns, text
from dasfprof.analysis.tables.questions import InParts, question
from dasfprof.database.columns import Array
from dasfprof.schema.under_way import unfinished_in

#: Advice for functions, by the status in which they spend most of their time.
NEXT_STEPS = {
    "Not started": (
        "Shorten the tasks that its tasks depend on, or divide the chain into more parallel parts. "
        "critical_path() shows which tasks hold them up."
    ),
    "Inqueue": (
        "Add workers or threads, or make other tasks cheaper. If time_accounting() shows idle "
        "threads at the same time, use fewer, larger tasks if the scheduler is the limit, or check "
        "worker restrictions and balance if the tasks wait on the wrong worker."
    ),
    "Preparing": (
        "Use larger chunks with fewer dependencies, keep related tasks on one worker, scatter or "
        "persist shared inputs, and give workers enough memory to avoid spilling."
    ),
    "Running": (
        "Profile its function and speed it up, or split it into more tasks. per_task_bottleneck() "
        "lists its longest task runs."
    ),
    "Finalizing": (
        "Return smaller results, give workers more memory, and use fewer, larger tasks if the "
        "scheduler is busy."
    ),
}
#: Meaning of each status.
MEANINGS = {
    "Not started": "The task waited for its dependencies.",
    "Inqueue": (
        "The task was runnable: queued on the scheduler, in transit to a worker, or waiting for a "
        "thread there."
    ),
    "Preparing": "The worker fetched, unspilled or deserialized the task's inputs.",
    "Running": "The task's function ran.",
    "Finalizing": "The task's function had returned, but the scheduler did not know that yet.",
}
#: Names of two sums: of all statuses, and of the part of these that unfinished task runs have.
_TOTAL, _OPEN = "Total", "Open"
#: Advice for functions with unfinished tasks.
_NOT_ENDED = "Some of its tasks did not end. diagnose() reports why, if it is known."
#: Advice for functions whose task runs have no recorded times.
_NOTHING = "The times of its task runs are unknown."


def _in_order(table: pd.DataFrame) -> Array:
    return np.lexsort((table["Arrival (s)"], -table["Total (s)"]))


_FIRST = InParts(
    lambda run: (_listed(run, LISTED), len(run.task_runs)),
    lambda _, parts: first_rows(parts, _in_order),
    lambda *parts: folded(parts, _in_order),
)


@question("Time by status and task run", "time", in_parts=_FIRST)
def per_task_status(run: Run) -> pd.DataFrame:
    """Show what each task run waited for and did, from its arrival to its known outcome.

    Returns
    -------
    DataFrame
        One row per task run, sorted by total time in descending order:

        - ``Task Key``, ``Function``, ``Host``, ``Worker``, ``Run ID``
        - ``State``: its final state. An unfinished task run is ``running``, ``waiting`` or
          ``released by the client``, and its times end at the last recorded event
        - ``Arrival (s)``, since the start of the run
        - ``Not started (s)``: known to the scheduler, waiting for dependencies
        - ``Inqueue (s)``: runnable, and queued on the scheduler, in transit to a worker, or waiting
          for a thread there
        - ``Preparing (s)``: its inputs are fetched, unspilled and deserialized
        - ``Running (s)``: time of its function
        - ``Finalizing (s)``: finished, until the scheduler knows
        - ``Total (s)``: the sum of these five statuses
        - ``Dominant Status``: the longest of them

    Notes
    -----
    Times of other clocks are converted to the scheduler's clock. Times that contradict each other
    after this conversion are clamped. A status that no file records is NA, and its time counts for
    the previous status. Without a scheduler's file, a task run arrives when its worker receives it.
    Without a worker's file, preparing counts as being queued.
    """
    return _listed(run, None)


def _listed(run: Run, first: int | None) -> pd.DataFrame:
    """Return the first `first` rows of `per_task_status`, or all rows if `first` is None."""
    tasks = run.task_runs
    times, seconds = run.times, run.statuses
    total = times.known - times.arrival
    order = np.lexsort((times.arrival, -total))[:first]
    columns = {
        "Task Key": text(run.keys.texts(tasks["key_id"].to_numpy()[order])),
        "Function": text(tasks["function"].to_numpy(dtype=object)[order]),
        "Host": text(tasks["host"].to_numpy(dtype=object)[order]),
        "Worker": text(tasks["worker"].to_numpy(dtype=object)[order]),
        "Run ID": tasks["run_id"].to_numpy()[order],
        "State": text(tasks["state"].to_numpy(dtype=object)[order]),
        "Arrival (s)": times.arrival[order],
        **{f"{name} (s)": values[order] for name, values in seconds.items()},
        "Total (s)": total[order],
        "Dominant Status": _dominant(list(seconds.values()))[order],
        **origin_columns(run, order, tasks),
    }
    return pd.DataFrame(columns, copy=False)


@question(
    "Time by status and function",
    "time",
    page="status",
    in_parts=InParts(
        lambda run: _sums(run, "function"), lambda run, parts: _sum_up("Function", run, parts)
    ),
)
def per_function_status(run: Run) -> pd.DataFrame:
    """Sum up what the task runs of each function waited for and did, and suggest what to do.

    Returns
    -------
    DataFrame
        One row per function, sorted by total time in descending order:

        - ``Function``
        - ``Task Runs``: their number
        - the statuses of `per_task_status` in seconds, summed over task runs
        - ``Total (s)``, and the percentages of it, ``Running (%)`` and so on
        - ``Dominant Status``
        - ``Next steps``: advice for the dominant status. For tasks that did not end, see `diagnose`
        - ``Unfinished Tasks``: the scheduler's last count, if the run did not end. Tasks that never
          got a thread have no task run
    """
    return _sum_up("Function", run, [_sums(run, "function")])


@question(
    "Time by status and step",
    "steps",
    page="step-status",
    needs=has_steps,
    in_parts=InParts(
        lambda run: _sums(run, "step"), lambda run, parts: _sum_up("Step", run, parts)
    ),
)
def per_step_status(run: Run) -> pd.DataFrame:
    """Sum up what the task runs of each step of the pipeline waited for and did.

    Returns
    -------
    DataFrame
        The columns of `per_function_status` except ``Unfinished Tasks``, with ``Step`` instead of
        ``Function``. ``(no step)`` collects the task runs without a step.
    """
    return _sum_up("Step", run, [_sums(run, "step")])


def _sums(run: Run, by: str) -> GroupSums:
    """Return the seconds of each status, summed over the task runs of each function or step."""
    times, (codes, names) = run.times, groups_by(by, run.task_runs)
    seconds = {**run.statuses, _TOTAL: times.known - times.arrival}
    is_open = run.task_runs["state"].isin(OPEN_STATES).to_numpy()
    seconds[_OPEN] = np.where(is_open, seconds[_TOTAL], 0.0)
    return GroupSums.by_name(names, Groups(codes, len(names)), seconds)


def _sum_up(label: str, run: Run, parts: Sequence[GroupSums]) -> pd.DataFrame:
    """Return the table of statuses by function or step, from the sums of all time windows."""
    unfinished = _unfinished(run) if label == "Function" else {}
    sums = GroupSums.merged(parts, list(unfinished))
    names = np.array(sums.names, dtype=object)
    seconds = {name: sums.known_sum(name) for name in STATUSES}
    total = np.nan_to_num(sums.known_sum(_TOTAL))
    dominant = _dominant(list(seconds.values()))
    dominant[sums.rows == 0] = None
    shares = {f"{name} (%)": ratio(values, total) * 100 for name, values in seconds.items()}
    stuck = (sums.rows == 0) | (sums.sum(_OPEN) > total / 2)
    next_steps = [
        _NOT_ENDED if is_stuck else NEXT_STEPS.get(status, _NOTHING)
        for status, is_stuck in zip(dominant, stuck, strict=True)
    ]
    table = pd.DataFrame(
        {
            label: text(names),
            "Task Runs": sums.rows,
            **{f"{name} (s)": values for name, values in seconds.items()},
            "Total (s)": total,
            **shares,
            "Dominant Status": dominant,
            "Next steps": next_steps,
        }
    )
    if label == "Function":
        counts = [unfinished.get(name, 0) for name in names]
        table["Unfinished Tasks"] = np.array(counts, dtype=np.int64)
    order = np.lexsort((np.argsort(np.argsort(names)), -total))
    return table.take(order).reset_index(drop=True)


def _unfinished(run: Run) -> dict[str, int]:
    """Return the number of unfinished tasks of each function, or {} if the run completed."""
    end = run.ending
    tasks = (end.state or {}).get("tasks") if end is not None else None
    if not isinstance(tasks, dict):
        return {}
    counts = {name: unfinished_in([states]) for name, states in tasks.items()}
    return {str(name): count for name, count in counts.items() if count}


def _dominant(seconds: list[Array]) -> Array:
    """Return the status with most seconds in each group, or None if all seconds are unknown."""
    table = np.nan_to_num(np.stack(seconds), nan=-1.0)
    names = np.array([*STATUSES, None], dtype=object)
    longest = np.argmax(table, axis=0)
    known = table.max(axis=0) >= 0
    return names[np.where(known, longest, len(STATUSES))]
