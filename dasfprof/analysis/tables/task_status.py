"""What each task run waited for and did, by task run, function and step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.model.statuses import STATUSES, status_seconds
from dasfprof.analysis.model.steps import has_steps, step_groups
from dasfprof.analysis.model.times import ordered_times
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
#: What to do where no time of a function is known.
_NOTHING = "No time of its task runs is known."


@question("What each task waited for and did", "time")
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
    trace = with_open_runs(trace)
    tasks = trace.tasks
    times, seconds = ordered_times(trace), status_seconds(trace)
    total = times.known - times.arrival
    order = np.lexsort((times.arrival, -total))
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


@question("What the tasks of each function waited for and did", "time", page="status")
def per_function_status(trace: Trace) -> pd.DataFrame:
    """Sum up what the task runs of each function waited for and did, and what to do about it.

    Returns
    -------
    DataFrame
        A row a function, the longest total first: ``Function``, ``Task Runs``, the statuses
        of `per_task_status` in seconds summed over the runs, ``Total (s)``, their shares of
        it (``Running (%)`` and so on), ``Dominant Status``, and ``Next steps`` for that.
    """
    trace = with_open_runs(trace)
    function = trace.tasks["function"].cat
    return _sum_up(trace, "Function", function.codes.to_numpy(), list(function.categories))


@question(
    "What the tasks of each step waited for and did", "steps", page="step-status", needs=has_steps
)
def per_step_status(trace: Trace) -> pd.DataFrame:
    """Sum up what the task runs of each step of the pipeline waited for and did.

    Returns
    -------
    DataFrame
        As `per_function_status`, a row a ``Step``; ``(no step)`` for the runs of none.
    """
    trace = with_open_runs(trace)
    return _sum_up(trace, "Step", *step_groups(trace.tasks))


def _sum_up(trace: Trace, label: str, codes: Array, groups: list[str]) -> pd.DataFrame:
    times = ordered_times(trace)
    names = np.array(groups, dtype=object)
    runs = np.bincount(codes, minlength=len(names))

    def total(values: Array) -> Array:
        known = ~np.isnan(values)
        sums = np.bincount(codes[known], weights=values[known], minlength=len(names))
        counts = np.bincount(codes[known], minlength=len(names))
        return np.where(counts > 0, sums, np.nan)

    seconds = {name: total(values) for name, values in status_seconds(trace).items()}
    whole = np.nan_to_num(total(times.known - times.arrival))
    dominant = _dominant(list(seconds.values()))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = {f"{name} (%)": values / whole * 100 for name, values in seconds.items()}
    table = pd.DataFrame(
        {
            label: text(names),
            "Task Runs": runs,
            **{f"{name} (s)": values for name, values in seconds.items()},
            "Total (s)": whole,
            **shares,
            "Dominant Status": dominant,
            "Next steps": [NEXT_STEPS.get(status, _NOTHING) for status in dominant],
        }
    )
    ran = np.flatnonzero(runs)
    order = ran[np.lexsort((np.argsort(np.argsort(names[ran])), -whole[ran]))]
    return table.take(order).reset_index(drop=True)


def _dominant(seconds: list[Array]) -> Array:
    """Name the status with the most seconds; None where nothing is known."""
    table = np.nan_to_num(np.stack(seconds), nan=-1.0)
    names = np.array([*STATUSES, None], dtype=object)
    longest = np.argmax(table, axis=0)
    known = table.max(axis=0) >= 0
    return names[np.where(known, longest, len(STATUSES))]
