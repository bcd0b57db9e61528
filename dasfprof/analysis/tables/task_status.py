"""What each task run waited for and did, by task run, function and step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.model.statuses import STATUSES, status_seconds
from dasfprof.analysis.model.steps import has_steps, step_groups
from dasfprof.analysis.model.times import ordered_times
from dasfprof.analysis.numeric.group_sums import GroupSums
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.tables.in_parts import InParts
from dasfprof.analysis.tables.listed_rows import LISTED, Listed, first_rows, folded
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import step_column, text
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: What to do where a status takes most of a function's time.
NEXT_STEPS = {
    "Not started": (
        "Its tasks wait for the tasks before them: shorten those, or cut the chain into more "
        "parallel parts. critical_path() shows which tasks hold them up."
    ),
    "Inqueue": (
        "Its tasks could run, but no thread is free: add workers or threads, or make other tasks "
        "cheaper. If time_accounting() shows idle threads meanwhile, the scheduler is the limit "
        "(use fewer, larger tasks) or the tasks wait on the wrong worker (check worker "
        "restrictions and balance)."
    ),
    "Preparing": (
        "Its inputs are fetched from other workers, read back from disk or deserialised: use "
        "larger chunks with fewer dependencies, keep related tasks on one worker, scatter or "
        "persist shared inputs, and give workers the memory to not spill."
    ),
    "Running": (
        "Its own function is what takes time: profile and speed it up, or split it into more "
        "tasks. per_task_bottleneck() lists its longest runs."
    ),
    "Finalizing": (
        "Its results are stored, spilled or waited for by the scheduler: return smaller results, "
        "give workers memory, and use fewer, larger tasks if the scheduler is busy."
    ),
}
#: What the statuses of a task run sum to.
_TOTAL = "Total"
#: What to do where no time of a function is known.
_NOTHING = "No time of its task runs is known."


def _first(trace: Trace) -> Listed:
    trace = with_open_runs(trace)
    return _listed(trace, LISTED), len(trace.tasks)


def _in_order(table: pd.DataFrame) -> Array:
    return np.lexsort((table["Arrival (s)"], -table["Total (s)"]))


_FIRST = InParts(
    _first,
    lambda _, parts: first_rows(parts, _in_order),
    lambda *parts: folded(parts, _in_order),
)


@question("What each task waited for and did", "time", in_parts=_FIRST)
def per_task_status(trace: Trace) -> pd.DataFrame:
    """Show what each task run waited for and did, from its arrival to its known outcome.

    Returns
    -------
    DataFrame
        A row a task run, the longest total first: ``Task Key``, ``Function``, ``Host``, ``Worker``,
        ``Run ID``, ``State`` (of one that had not ended ``running``, ``waiting`` or ``released by
        the client``: its times are those until evidence ends), ``Arrival (s)`` (from the trace's
        begin), then

        - ``Not started (s)``: known to the scheduler, waiting for dependencies
        - ``Inqueue (s)``: runnable, and held at the scheduler, on its way to a worker, or
          there and waiting for a thread
        - ``Preparing (s)``: its inputs are fetched, unspilled and deserialised
        - ``Running (s)``: of its function
        - ``Finalizing (s)``: finished, until the scheduler knows
        - ``Total (s)``: their sum; and ``Dominant Status``, the longest of them

    Notes
    -----
    Times of several clocks are put on the scheduler's, and clamped where they still disagree.
    A status that no file tells is NA, and its time is in the status before it: without a
    scheduler's file a run arrives when its worker learns of it; without the worker's,
    preparing counts as being queued.
    """
    return _listed(with_open_runs(trace), None)


def _listed(trace: Trace, first: int | None) -> pd.DataFrame:
    """List the first task runs, or all."""
    tasks = trace.tasks
    times, seconds = ordered_times(trace), status_seconds(trace)
    total = times.known - times.arrival
    order = np.lexsort((times.arrival, -total))[:first]
    columns = {
        "Task Key": text(trace.keys.texts(tasks["key_id"].to_numpy()[order])),
        "Function": text(tasks["function"].to_numpy(dtype=object)[order]),
        "Host": text(tasks["host"].to_numpy(dtype=object)[order]),
        "Worker": text(tasks["worker"].to_numpy(dtype=object)[order]),
        "Run ID": tasks["run_id"].to_numpy()[order],
        "State": text(tasks["state"].to_numpy(dtype=object)[order]),
        "Arrival (s)": times.arrival[order],
        **{f"{name} (s)": values[order] for name, values in seconds.items()},
        "Total (s)": total[order],
        "Dominant Status": _dominant(list(seconds.values()))[order],
        **step_column(trace, order),
    }
    return pd.DataFrame(columns, copy=False)


def _of_functions(trace: Trace) -> GroupSums:
    trace = with_open_runs(trace)
    function = trace.tasks["function"].cat
    return _sums(trace, function.codes.to_numpy(), list(function.categories))


def _of_steps(trace: Trace) -> GroupSums:
    trace = with_open_runs(trace)
    return _sums(trace, *step_groups(trace.tasks))


@question(
    "What the tasks of each function waited for and did",
    "time",
    page="status",
    in_parts=InParts(_of_functions, lambda _, parts: _sum_up("Function", parts)),
)
def per_function_status(trace: Trace) -> pd.DataFrame:
    """Sum up what the task runs of each function waited for and did, and what to do about it.

    Returns
    -------
    DataFrame
        A row a function, the longest total first: ``Function``, ``Task Runs``, the statuses
        of `per_task_status` in seconds summed over the runs, ``Total (s)``, their shares of
        it (``Running (%)`` and so on), ``Dominant Status``, and ``Next steps`` for that.
    """
    return _sum_up("Function", [_of_functions(trace)])


@question(
    "What the tasks of each step waited for and did",
    "steps",
    page="step-status",
    needs=has_steps,
    in_parts=InParts(_of_steps, lambda _, parts: _sum_up("Step", parts)),
)
def per_step_status(trace: Trace) -> pd.DataFrame:
    """Sum up what the task runs of each step of the pipeline waited for and did.

    Returns
    -------
    DataFrame
        As `per_function_status`, a row a ``Step``; ``(no step)`` for the runs of none.
    """
    return _sum_up("Step", [_of_steps(trace)])


def _sums(trace: Trace, codes: Array, names: list[str]) -> GroupSums:
    """Sum up the statuses of task runs by group."""
    times = ordered_times(trace)
    seconds = {**status_seconds(trace), _TOTAL: times.known - times.arrival}
    return GroupSums.of(names, Groups(codes, len(names)), seconds)


def _sum_up(label: str, parts: Sequence[GroupSums]) -> pd.DataFrame:
    """Make the table of the sums of all parts."""
    sums = GroupSums.merged(parts)
    names = np.array(sums.names, dtype=object)
    seconds = {name: sums.told(name) for name in STATUSES}
    whole = np.nan_to_num(sums.told(_TOTAL))
    dominant = _dominant(list(seconds.values()))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = {f"{name} (%)": values / whole * 100 for name, values in seconds.items()}
    table = pd.DataFrame(
        {
            label: text(names),
            "Task Runs": sums.rows,
            **{f"{name} (s)": values for name, values in seconds.items()},
            "Total (s)": whole,
            **shares,
            "Dominant Status": dominant,
            "Next steps": [NEXT_STEPS.get(status, _NOTHING) for status in dominant],
        }
    )
    order = np.lexsort((np.argsort(np.argsort(names)), -whole))
    return table.take(order).reset_index(drop=True)


def _dominant(seconds: list[Array]) -> Array:
    """Name the status with the most seconds; None where nothing is known."""
    table = np.nan_to_num(np.stack(seconds), nan=-1.0)
    names = np.array([*STATUSES, None], dtype=object)
    longest = np.argmax(table, axis=0)
    known = table.max(axis=0) >= 0
    return names[np.where(known, longest, len(STATUSES))]
