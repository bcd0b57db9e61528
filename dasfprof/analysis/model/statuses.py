"""What each task run waited for and did, from its arrival until the scheduler knew its outcome."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.steps import step_column, step_groups
from dasfprof.analysis.model.times import ordered_times, recorded_times
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: For each status the stages of `TaskTimes` between which a task run has it.
STATUSES = {
    "Not started": (("arrival", "runnable"),),
    "Inqueue": (("runnable", "sent"), ("sent", "received"), ("ready", "executing")),
    "Preparing": (("received", "ready"), ("executing", "start")),
    "Running": (("start", "stop"),),
    "Finalizing": (("stop", "done"), ("done", "known")),
}

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


def per_task_status(trace: Trace) -> pd.DataFrame:
    """Tell how long each task run had each status; see `TraceAnalyser`."""
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


def per_function_status(trace: Trace) -> pd.DataFrame:
    """Sum up how long the task runs of each function had each status; see `TraceAnalyser`."""
    function = trace.tasks["function"].cat
    return _sum_up(trace, "Function", function.codes.to_numpy(), list(function.categories))


def per_step_status(trace: Trace) -> pd.DataFrame:
    """Sum up how long the task runs of each step had each status; see `TraceAnalyser`."""
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


@once_per_trace
def status_seconds(trace: Trace) -> dict[str, Array]:
    """Give the seconds that each task run had each status, which sum to ``known - arrival``.

    A status of which nothing is known has NaN: its seconds are in the status before it.
    """
    recorded, times = recorded_times(trace), ordered_times(trace)
    seconds = {}
    for name, spans in STATUSES.items():
        length = np.zeros(len(times))
        told = np.isfinite(recorded[spans[0][0]]) & np.isfinite(recorded[spans[-1][1]])
        for begin, end in spans:
            length += getattr(times, end) - getattr(times, begin)
            told |= np.isfinite(recorded[begin]) & np.isfinite(recorded[end])
        seconds[name] = np.where(told | (length > 0), length, np.nan)
    return seconds


def _dominant(seconds: list[Array]) -> Array:
    """Name the status with the most seconds; None where nothing is known."""
    table = np.nan_to_num(np.stack(seconds), nan=-1.0)
    names = np.array([*STATUSES, None], dtype=object)
    longest = np.argmax(table, axis=0)
    known = table.max(axis=0) >= 0
    return names[np.where(known, longest, len(STATUSES))]
