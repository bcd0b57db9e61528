"""In which lines tasks, the client and blocked event loops spent their time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.loop_blocks import loop_blocks as find_blocks
from dasfprof.analysis.stack_samples.places import (
    UNKNOWN,
    By,
    CallTree,
    all_stacks,
    hot_places,
    import_of,
    places,
)
from dasfprof.analysis.stack_samples.spent import Samples, samples_of, spent
from dasfprof.analysis.tables.columns import of_workers, text, whole
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.under_way.state import Frame
from dasfprof.database.columns import Array


@question(
    "Lines that take the time",
    "lines",
    short="hot",
    expendable=("Interpreter's Lock (s)", "Uncertain (s)", "Samples"),
    needs="task_samples",
)
def hot_lines(
    run: Run, function: str | None = None, step: str | None = None, by: By = "line"
) -> pd.DataFrame:
    """Sum up the samples of stacks of tasks by line, function or library.

    Parameters
    ----------
    function
        Of the task runs, as Dask calls it; None: of any.
    step
        Of the pipeline; None: of any.
    by
        What a row is: a line of the program (of the user's own code; where a stack has none, the
        innermost line), the innermost function, or its library.

    Returns
    -------
    DataFrame
        A row each, the longest first:

        - ``File``, ``Line``, ``Code`` (the function that it is in) and ``Inside`` (the library's
          call in which most of its time was spent; empty: in none), by line; ``File`` and ``Code``,
          by function; ``Library``, by library. ``(unknown)``: the function is C code, or the stack
          is not in the file
        - ``Time (s)``: each sample stands for the time since the last look of its kind: functions
          whose task runs take 30 ms and more are looked at 20 times a second, others about once,
          runs of under 3 ms hardly ever
        - ``Share (%)`` of all these samples; ``Margin (points)``: by how much it may be off, in 95
          of 100 cases
        - ``Computing (s)``: on a core; ``Waiting for CPU (s)``: it could have run;
          ``Interpreter's Lock (s)``: other threads of the process ran Python code; ``Waiting (s)``:
          for anything else, such as a lock, a disk, the network. NA where the kernel does not count
        - ``Uncertain (s)``: by how much each of the first three may well be off, see below
        - ``Samples``: how many. Threads that tasks start, coroutines and other processes have none

    Notes
    -----
    Where a host has no free core, the sampler waits for one as well. Lines that wait, or give up
    the GIL, are then seen more often than they should be: they leave it the core.

    The sampler gets the GIL where a line gives it up, or after Python's switch interval (5 ms). So
    a line that gives the GIL up, and C code that keeps it for milliseconds, get up to 5 ms of the
    Python code before each of their calls. Against stopwatches, most shares were off by less than
    7 points, and at most by 15. What a line does after its last call, such as an operator or the
    freeing of what it made, may count for the next line.

    What all task runs of a function computed is known from their begins and ends, and for how long
    they had no core. Of lines that is an estimate: where tasks compete for the interpreter's lock,
    or for cores, a line at which they mostly wait for it gets too much of the computing.
    ``Uncertain (s)`` says so. It is next to nothing where one of the three has nearly all of the
    function's time, or one line has.
    """
    found = hot_places(run, function, step, by)
    columns = place_columns(found.names, by)
    if by == "line":
        columns["Inside"] = text(found.inside)
    spent = found.spent
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
    """Return the columns that name lines, functions or libraries of samples."""

    def column(part: int) -> pd.Series:
        return text([name[part] if isinstance(name, tuple) else UNKNOWN for name in names])

    if by == "library":
        return {"Library": text([name or UNKNOWN for name in names])}
    if by == "function":
        return {"File": column(0), "Code": column(1)}
    lines = [name.line if isinstance(name, Frame) else np.nan for name in names]
    return {"File": column(1), "Line": whole(np.array(lines, dtype=float)), "Code": column(0)}


@question("Tree of calls", "lines", short="calls", needs="task_samples")
def call_tree(
    run: Run, function: str | None = None, step: str | None = None, least: float = 1.0
) -> pd.DataFrame:
    """Sum up the samples of stacks of tasks by call, from the tasks' functions inwards.

    Parameters
    ----------
    function, step
        See `hot_lines`.
    least
        Calls of a smaller share are left out, percent.

    Returns
    -------
    DataFrame
        A row a call, each followed by those that it makes, the longest first:

        - ``Depth``: 0 for the functions that Dask calls
        - ``Code``, ``File``
        - ``Time (s)``, ``Share (%)``: of it and of what it calls
        - ``Self (s)``: of it alone
        - ``Samples``
    """
    samples, _ = samples_of(run, function, step)
    stacks = Groups(samples.stack, len(run.stacks))
    seconds, unknown = stacks.sum(samples.interval), samples.interval[samples.stack < 0].sum()
    total = float(seconds.sum() + unknown)
    tree = CallTree(all_stacks(run), seconds, stacks.sizes)
    kept = [call for call in tree.calls() if total and call.seconds >= least / 100 * total]
    return pd.DataFrame(
        {
            "Depth": np.array([call.depth for call in kept], dtype=np.int64),
            "Code": text([call.function for call in kept]),
            "File": text([call.file for call in kept]),
            "Time (s)": np.array([call.seconds for call in kept], dtype=float),
            "Share (%)": np.array([call.seconds / total * 100 for call in kept], dtype=float),
            "Self (s)": np.array([call.own_seconds for call in kept], dtype=float),
            "Samples": np.array([call.samples for call in kept], dtype=np.int64),
        }
    )


@question(
    "What the client did",
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
        A row a phase and line of the program, the longest first:

        - ``Phase``: waiting (for the cluster), pickling, optimising, hashing (names for tasks),
          sending (a graph), building (a graph, or another call of Dask's); program: in none
        - ``File``, ``Line``, ``Code`` (the function that it is in): the innermost line of the
          user's own code
        - ``Importing``: the library that was imported there, if one was
        - ``Time (s)``, ``Share (%)``, ``Margin (points)``, ``Computing (s)``, ``Samples``: see
          `hot_lines`
        - ``Cluster Idle (s)``: of this time, that in which no task ran
    """
    table = run.client_samples
    samples = Samples.of(table)
    named = places(run, "line")
    lines = named.of(samples.stack)
    phases = table["phase"].astype("category").cat if len(table) else None
    phase = phases.codes.to_numpy(dtype=np.int64) if phases is not None else lines
    pairs, groups = np.unique(phase * len(named.names) + lines, return_inverse=True)
    groups = groups.reshape(-1)
    found = spent(samples, groups, len(pairs), np.zeros(len(samples), dtype=np.int64))
    idle = Groups(groups, len(pairs)).sum(samples.interval * _is_idle(run, samples.time))
    order = np.argsort(-found.seconds, kind="stable")
    names = [named.names[row] for row in (pairs[order] % max(len(named.names), 1)).tolist()]
    frames = [name if isinstance(name, Frame) else Frame(UNKNOWN, UNKNOWN, -1) for name in names]
    known = [*(map(str, phases.categories) if phases is not None else ()), UNKNOWN]
    imports = _imports(run, samples.stack, groups, len(pairs))
    return pd.DataFrame(
        {
            "Phase": text(known[row] for row in (pairs[order] // max(len(named.names), 1))),
            "File": text(frame.file for frame in frames),
            "Line": whole(np.array([f.line if f.line >= 0 else np.nan for f in frames], float)),
            "Code": text(frame.function for frame in frames),
            "Importing": text(imports[row] for row in order.tolist()),
            "Time (s)": found.seconds[order],
            "Share (%)": found.share[order] * 100,
            "Margin (points)": found.margin[order] * 100,
            "Computing (s)": found.computing[order],
            "Cluster Idle (s)": idle[order],
            "Samples": found.samples[order],
        }
    )


def _is_idle(run: Run, times: Array) -> Array:
    """Return whether no task ran at each time."""
    tasks = run.whole.tasks
    if not len(tasks):
        return np.ones(len(times), dtype=bool)
    start = tasks["start"].to_numpy(dtype=float)
    stop = start + tasks["duration"].to_numpy(dtype=float)
    known = np.isfinite(stop)
    begins, ends = union(start[known], stop[known])
    places = np.searchsorted(begins, times, "right") - 1
    return (places < 0) | (times > np.r_[ends, -np.inf][places])


def _imports(run: Run, stacks: Array, groups: Array, count: int) -> list[str]:
    """Return the library that each group imported: that of most of its stacks, or none."""
    frames = all_stacks(run)
    found = [""] * count
    for group, stack in sorted(set(zip(groups.tolist(), stacks.tolist(), strict=True))):
        library = import_of(frames[stack]) if stack >= 0 else None
        found[group] = found[group] or library or ""
    return found


@question(
    "Event loops that did not turn",
    "lines",
    short="loops",
    expendable=("Code", "Inside", "Samples"),
    needs="loop_samples",
)
def loop_blocks(run: Run) -> pd.DataFrame:
    """List the times in which an event loop had not turned for over 50 ms.

    While that of a worker does not turn, it neither takes new tasks nor sends results.

    Returns
    -------
    DataFrame
        A row each, the longest first:

        - ``Worker``: its label, or the scheduler's
        - ``Start (s)``: its last turn, from the trace's begin; ``Duration (s)``: until it was seen
          to turn again, which is up to 0.07 s after it did
        - ``Cause``: working; no core (it could have run: the host had none free); lock (other
          threads of its process had the interpreter's lock); waiting (in a call that waits);
          unknown (it was about to turn whenever it was looked at)
        - ``File``, ``Line``, ``Code``: the line of the user's code at which it was seen longest,
          or of whatever ran; ``Inside``: the library's call in it
        - ``Importing``: the library that was imported there; empty if none was
        - ``Samples``: how many times it was looked at. C code that keeps the interpreter's lock
          keeps the sampler away, too
    """
    blocks = find_blocks(run)
    lines = [block.line for block in blocks]
    return pd.DataFrame(
        {
            "Worker": of_workers(run, [block.worker_id for block in blocks]),
            "Start (s)": run.since_begin([block.start for block in blocks]),
            "Duration (s)": np.array([block.stop - block.start for block in blocks], dtype=float),
            "Cause": text([block.cause for block in blocks]),
            "File": text(["" if line is None else line.file for line in lines]),
            "Line": whole(np.array([np.nan if line is None else line.line for line in lines])),
            "Code": text(["" if line is None else line.function for line in lines]),
            "Inside": text([block.inside for block in blocks]),
            "Importing": text([block.imported or "" for block in blocks]),
            "Samples": np.array([block.samples for block in blocks], dtype=np.int64),
        }
    )
