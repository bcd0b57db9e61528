"""Sampled lines: where tasks, the client and blocked event loops spent their time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.flame_tree import StackTree, depth_first
from dasfprof.analysis.stack_samples.loop_blocks import loop_blocks as find_blocks
from dasfprof.analysis.stack_samples.places import UNKNOWN, By, all_stacks, hot_places, places
from dasfprof.analysis.stack_samples.spent import Samples, samples_of, spent
from dasfprof.analysis.tables.columns import integers, of_workers, text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.under_way.state import Frame
from dasfprof.database.columns import Array


@question(
    "Lines by sampled time",
    "lines",
    short="hot",
    expendable=("Interpreter's Lock (s)", "Uncertain (s)", "Samples"),
    needs="task_samples",
)
def hot_lines(
    run: Run, function: str | None = None, step: str | None = None, by: By = "line"
) -> pd.DataFrame:
    """Sum up the stack samples of tasks by line, function or library.

    Parameters
    ----------
    function
        The task prefix of the task runs. None selects all task runs.
    step
        Step of the pipeline. None selects all steps.
    by
        ``"line"`` groups by the innermost line of your own code, or the innermost line if a stack
        has none. ``"function"`` groups by the innermost function, and ``"library"`` by its library.

    Returns
    -------
    DataFrame
        One row per line, function or library, sorted by time in descending order:

        - By line: ``File``, ``Line``, ``Code`` (the function that contains it) and ``Inside`` (the
          library call in which it spent most of its time, or empty). By function: ``File`` and
          ``Code``. By library: ``Library``. ``(unknown)`` means that the function is C code, or
          that the stack is not in the file
        - ``Time (s)``: sum over the samples. Each sample counts for the time since the previous
          scheduled sample of its thread. Functions with task runs of at least 30 ms are sampled 20
          times per second, other functions about once per second. Task runs below 3 ms are rarely
          sampled
        - ``Share (%)``: percentage of all selected samples
        - ``Margin (points)``: half-width of the 95 % confidence interval of the percentage
        - ``Computing (s)``: on a core
        - ``Waiting for CPU (s)``: runnable, but without a core
        - ``Interpreter's Lock (s)``: waiting for the GIL
        - ``Waiting (s)``: waiting for anything else, such as a lock, a disk or the network. This
          column and the previous three are NA if the kernel does not count them
        - ``Uncertain (s)``: likely error of each of the columns ``Computing (s)``, ``Waiting for
          CPU (s)`` and ``Interpreter's Lock (s)``, see below
        - ``Samples``: number of samples. Coroutines and other processes are not sampled. If a task
          waits for a pool of threads, and only one function runs in the process, the line is that
          of a thread of the pool, and ``Inside`` is ``another thread``

    Notes
    -----
    On a host without a free core, the sampler waits for a core as well. It then oversamples lines
    that wait or release the GIL, because such lines leave the core to the sampler.

    The sampler gets the GIL when a line releases it, or after Python's switch interval (5 ms).
    Therefore, a line that releases the GIL may be charged up to 5 ms of the Python code before it.
    The same is true for a line with a call of C code that holds the GIL for milliseconds. This
    error can occur at each such call. Compared with stopwatches, most percentages were off by less
    than 7 points, and at most by 15. Work after the last call of a line, such as an operator or
    freeing objects, may count for the next line.

    The computing time of all task runs of a function is known from their starts and ends, and so is
    their wait for a core. For single lines it is an estimate. If tasks compete for the GIL or for
    cores, a line that mostly waits for them is charged too much computing. ``Uncertain (s)`` shows
    by how much. It is close to 0 if nearly all of the function's time is in one line, or is of one
    kind (computing, waiting for CPU, or waiting for the GIL).
    """
    hot = hot_places(run, function, step, by)
    columns = place_columns(hot.names, by)
    if by == "line":
        columns["Inside"] = text(hot.inside)
    spent = hot.spent
    return pd.DataFrame(
        {
            **columns,
            "Time (s)": spent.seconds,
            "Share (%)": spent.share * 100,
            "Margin (points)": spent.margin * 100,
            "Computing (s)": spent.computing,
            "Waiting for CPU (s)": spent.core_wait,
            "Interpreter's Lock (s)": spent.lock_wait,
            "Waiting (s)": spent.waiting,
            "Uncertain (s)": spent.uncertain,
            "Samples": spent.samples,
        }
    )


def place_columns(names: Sequence[Hashable], by: By) -> dict[str, pd.Series]:
    """Return the columns that identify the lines, functions or libraries in `names`."""

    def column(part: int) -> pd.Series:
        return text([name[part] if isinstance(name, tuple) else UNKNOWN for name in names])

    if by == "library":
        return {"Library": text([name or UNKNOWN for name in names])}
    if by == "function":
        return {"File": column(0), "Code": column(1)}
    lines = [name.line if isinstance(name, Frame) and name.line >= 0 else np.nan for name in names]
    return {"File": column(1), "Line": integers(np.array(lines, dtype=float)), "Code": column(0)}


@question("Call tree", "lines", short="calls", needs="task_samples")
def call_tree(
    run: Run, function: str | None = None, step: str | None = None, least: float = 1.0
) -> pd.DataFrame:
    """Sum up the stack samples of tasks by call, starting with the functions of the tasks.

    Parameters
    ----------
    function, step
        See `hot_lines`.
    least
        Threshold in percent: calls with a smaller percentage of the time are left out.

    Returns
    -------
    DataFrame
        One row per call, each followed by the calls that it makes, sorted by time in descending
        order:

        - ``Depth``: 0 for the functions that Dask calls
        - ``Code``, ``File``
        - ``Time (s)``, ``Share (%)``: including the calls that it makes
        - ``Self (s)``: excluding the calls that it makes
        - ``Samples``
    """
    samples, _ = samples_of(run, function, step)
    stacks = Groups(samples.stack, len(run.stacks))
    seconds, unknown = stacks.sum(samples.interval), samples.interval[samples.stack < 0].sum()
    total = float(seconds.sum() + unknown)
    tree = StackTree(all_stacks(run))
    of_calls, samples_of_calls = tree.sums(seconds), tree.sums(stacks.sizes)
    shown = (samples_of_calls > 0) & (of_calls >= least / 100 * total) & (total > 0)
    rows, depths = depth_first(tree.callers, of_calls, np.flatnonzero(shown))
    names = [tree.names[function] for function in tree.functions[rows].tolist()]
    return pd.DataFrame(
        {
            "Depth": depths,
            "Code": text([name.function for name in names]),
            "File": text([name.file for name in names]),
            "Time (s)": of_calls[rows],
            "Share (%)": of_calls[rows] / total * 100,
            "Self (s)": tree.self_sums(seconds)[rows],
            "Samples": samples_of_calls[rows].astype(np.int64),
        }
    )


@question(
    "Client activity by line",
    "lines",
    short="client",
    expendable=("Code", "Margin (points)", "Samples"),
    needs="client_samples",
)
def client_activity(run: Run) -> pd.DataFrame:
    """Sum up the samples of the client's main thread by phase and line.

    Returns
    -------
    DataFrame
        One row per phase and line of your program, sorted by time in descending order:

        - ``Phase``: waiting (for the cluster), pickling, optimising, hashing (to name tasks),
          sending (a graph), building (a graph; any other call into Dask counts here too), or
          program (outside of Dask)
        - ``File``, ``Line``, ``Code``: the innermost line of your own code, and its function
        - ``Time (s)``, ``Share (%)``, ``Margin (points)``, ``Computing (s)``, ``Samples``: see
          `hot_lines`
        - ``Cluster Idle (s)``: the part of this time in which no task ran
    """
    table = run.client_samples
    samples = Samples.from_table(table)
    places_of_stacks, codes = places(run, "line")
    lines, count = codes[samples.stack], len(places_of_stacks)
    phases = table["phase"].astype("category").cat
    phase = phases.codes.to_numpy(dtype=np.int64)
    pairs, groups = np.unique(phase * count + lines, return_inverse=True)
    totals = spent(samples, groups, len(pairs), np.zeros(len(samples), dtype=np.int64))
    idle = Groups(groups, len(pairs)).sum(samples.interval * _is_idle(run, samples.time))
    order = np.argsort(-totals.seconds, kind="stable")
    names = [places_of_stacks[row] for row in (pairs[order] % count).tolist()]
    known = [*map(str, phases.categories), UNKNOWN]
    return pd.DataFrame(
        {
            "Phase": text(known[row] for row in pairs[order] // count),
            **place_columns(names, "line"),
            "Time (s)": totals.seconds[order],
            "Share (%)": totals.share[order] * 100,
            "Margin (points)": totals.margin[order] * 100,
            "Computing (s)": totals.computing[order],
            "Cluster Idle (s)": idle[order],
            "Samples": totals.samples[order],
        }
    )


def _is_idle(run: Run, times: Array) -> Array:
    """Return a mask of the times at which no task ran."""
    tasks = run.task_runs
    start = tasks["start"].to_numpy(dtype=float)
    stop = start + tasks["duration"].to_numpy(dtype=float)
    known = np.isfinite(stop)
    begins, ends = union(start[known], stop[known])
    indices = np.searchsorted(begins, times, "right") - 1
    return (indices < 0) | (times > np.r_[ends, -np.inf][indices])


@question(
    "Blocked event loops",
    "lines",
    short="loops",
    expendable=("Code", "Inside", "Samples"),
    needs="loop_samples",
)
def loop_blocks(run: Run) -> pd.DataFrame:
    """List the times in which an event loop was blocked for more than 50 ms.

    A worker with a blocked event loop neither accepts new tasks nor sends results.

    Returns
    -------
    DataFrame
        One row per block, sorted by duration in descending order:

        - ``Worker``: label of the worker, or the scheduler
        - ``Start (s)``: last iteration before the block, since the start of the run
        - ``Duration (s)``: until the loop was next seen running, which is up to 0.07 s late
        - ``Cause``: working; no core (the loop was runnable, but no core was free); lock (other
          threads of its process held the GIL); waiting (in a blocking call); unknown (in every
          sample, the loop was about to continue)
        - ``File``, ``Line``, ``Code``: the line with most samples, of your own code if there is any
        - ``Inside``: the library call in that line
        - ``Importing``: the library that was being imported, or empty
        - ``Samples``: number of samples. C code that holds the GIL blocks the sampler, too
    """
    blocks = find_blocks(run)
    return pd.DataFrame(
        {
            "Worker": of_workers(run, [block.worker_id for block in blocks]),
            "Start (s)": run.since_begin([block.start for block in blocks]),
            "Duration (s)": np.array([block.stop - block.start for block in blocks], dtype=float),
            "Cause": text([block.cause for block in blocks]),
            **place_columns([block.line or Frame("", "", -1) for block in blocks], "line"),
            "Inside": text([block.inside for block in blocks]),
            "Importing": text([block.imported or "" for block in blocks]),
            "Samples": np.array([block.samples for block in blocks], dtype=np.int64),
        }
    )
