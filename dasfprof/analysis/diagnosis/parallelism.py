"""Rules about how much of a run could execute in parallel, and what the remainder waits for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.overheads import where_chunks_are_set
from dasfprof.analysis.diagnosis.registry import MEDIUM, Finding, needs_cores, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.critical_path import find_path
from dasfprof.analysis.model.links import dependency_rows
from dasfprof.analysis.model.sizing import find_chunks
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.stack_samples.calls import (
    BY_SLICE,
    BY_VALUE,
    DATEUTIL,
    GENFROMTXT,
    PYTHON_PARSER,
    time_by_row,
    time_by_value,
    time_in_nested_loops,
    time_one_by_one,
)
from dasfprof.analysis.stack_samples.places import (
    OTHER_TASKS,
    hottest_frame,
    hottest_line,
    waits_of,
)
from dasfprof.analysis.wording import Bytes, Count, Seconds, Share
from dasfprof.database.columns import Array

#: Thresholds: fraction of thread time without a runnable task, and fraction of wall time in which
#: only one task is running.
_NOTHING_RUNNABLE = 0.15
_SERIAL = 0.2
#: Minimum number of tasks in a chain.
_CHAIN = 3
#: Thresholds of a dominant function: its fraction of the seconds of all tasks, and its median
#: duration as a multiple of the mean of other functions.
_DOMINATES = 0.5
_TIMES_OTHERS = 3.0
#: Minimum bytes of a chunk whose size is reported.
_CHUNK = 10_000
#: Suffix of the names of dataframe reductions after their first step. These reductions return one
#: partition. Threshold (bytes): a larger result is worth splitting into several partitions.
_REDUCTION, _LARGE_RESULT = "-tree", 10_000_000
#: Name of the tasks of to_csv() that append to a single file.
_APPENDS = "write_csv"
#: Threshold: if the mean is this multiple of the median, it is reported as well.
_UNEVEN = 3.0
#: Maximum number of functions that are searched for row-wise code, and threshold (fraction of wall
#: time) for the cost of such code.
_MOST_ROW_WISE, _ROW_WISE = 5, 0.05
#: Thresholds of Python code that does little for each value: maximum CPU seconds per value, and
#: minimum fraction of the time in the loop that calls the code. Bytes of a value in an array.
_BRIEF_VALUE, _IN_LOOP, _VALUE_BYTES = 3e-5, 0.1, 8
#: Threshold (fraction of a function's time): nested loops in the user's code.
_NESTED = 0.5
#: Advice about libraries that handle elements one by one. Their Python code is about ten times
#: slower than the alternatives in the advice.
_FOR_ARRAYS = (
    "Replace {caller} by operations on whole arrays, or compile its function with Numba. In "
    "xarray, write the function for whole arrays and call apply_ufunc() without vectorize=True."
)
_INSTEAD = {
    **dict.fromkeys((*BY_SLICE, *BY_VALUE), _FOR_ARRAYS),
    PYTHON_PARSER: "Pass the separator as a single character, such as sep=';', and leave out "
    "engine='python', so that read_csv() uses its C parser.",
    GENFROMTXT: "Read the files with numpy.loadtxt() or pandas.read_csv(), whose parsers are "
    "written in C.",
    DATEUTIL: "Parse whole columns with pd.to_datetime() and format=, or each text with "
    "datetime.strptime().",
}
_LIBRARY_CODE = 0.9


@rule(
    "serial-chain",
    causes="load-imbalance too-few-tasks dominant-function",
    refutes="more-threads",
    because="tasks run one after another",
)
def serial_chain(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that run one after another while all other threads wait for them."""
    if run.threads < 2 or run.share_of(ThreadTime.NO_RUNNABLE_TASK) < _NOTHING_RUNNABLE:
        return
    on_path, lasted, alone, idle = _path_without_slow_tasks(run)
    # A task without inputs does not wait for other tasks. Its client submitted it late.
    linked = run.trace.task_dependencies[0][on_path] > 0
    mine = (alone > 0.5 * lasted) & linked & _in_chains(run, on_path, alone)
    seconds = float(alone[mine].sum())
    if seconds < _SERIAL * run.wall or np.count_nonzero(mine) < _CHAIN:
        return
    rows = on_path[mine]
    by_function = np.bincount(run.functions.codes[rows], weights=alone[mine])
    name = str(run.function_names[int(by_function.argmax())])
    of_function = rows[run.functions.codes[rows] == int(by_function.argmax())]
    size = float(np.nan_to_num(run.task_column("size")[of_function]).max(initial=0.0))
    reduces = name.endswith(_REDUCTION) and size >= _LARGE_RESULT
    waits = run.waits_for_cores
    yield Finding.of(
        "A chain of {tasks:task} runs one after another: for {alone} ({share} of the run) at "
        "most one task runs at a time, mostly {function}.",
        "{alone_in_function} of this time is spent in {function}. Threads are idle without a "
        f"runnable task for {{idle}} of their time. {needs_cores(waits)}See "
        "critical_path_summary() and critical_path().",
        "Split the result of the reduction into several partitions with split_out=, which "
        "groupby(...).agg(), drop_duplicates() and value_counts() accept. Currently, the last "
        "tasks of {function} produce a single partition of up to {reduced}."
        if reduces
        else "Leave out single_file=True, with which to_csv() appends one partition after another "
        "to a single file, or write Parquet."
        if name == _APPENDS
        else "Break the chain of {function}: make its steps independent, combine results "
        "pairwise in a tree (as Dask's reductions do with split_every=2), or run several "
        "chains in parallel.",
        reduced=Bytes(size) if reduces else None,
        tasks=Count(len(rows)),
        alone=Seconds(seconds),
        share=Share(seconds / run.wall),
        alone_in_function=Seconds(by_function.max()),
        idle=Share(run.share_of(ThreadTime.NO_RUNNABLE_TASK)),
        core_wait=waits,
        seconds=float(idle[mine].sum()),
        function=name,
        start=float(run.slots.times.executing[rows[0]]),
        stop=float(run.slots.times.done[rows[-1]]),
    )


@rule("too-few-tasks", refutes="more-threads", because="there are fewer tasks than threads")
def too_few_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find times at which there are fewer tasks than threads because there is no more work."""
    if run.threads < 2 or run.share_of(ThreadTime.NO_RUNNABLE_TASK) < _NOTHING_RUNNABLE:
        return
    on_path, lasted, alone, idle = _path_without_slow_tasks(run)
    # Unlike the tasks of a chain, a few tasks without inputs can be split.
    few = run.functions.sizes[run.functions.codes[on_path]] < run.threads
    serial = (alone > 0.5 * lasted) & ~(few & (run.trace.task_dependencies[0][on_path] == 0))
    mine = ~serial if np.count_nonzero(serial) >= _CHAIN else np.ones(len(serial), dtype=bool)
    seconds = float(idle[mine].sum())
    if seconds < 0.1 * run.wall:
        return
    rows = on_path[mine]
    codes = run.functions.codes[rows]
    name_code = int(np.bincount(codes, weights=idle[mine]).argmax())
    name, runs = str(run.function_names[name_code]), int(run.functions.sizes[name_code])
    chunk = np.fmax(run.task_column("size"), run.task_column("input_size"))
    usual = float(np.nan_to_num(run.functions.mean(chunk)[name_code]))
    of_function = rows[codes == name_code]
    times = Count(max(int(np.ceil(3 * run.threads / max(runs, 1))), 2))
    sized = f", chunks of {Bytes(usual / times)} instead of {{chunk}}" if usual > _CHUNK else ""
    begins, waits = not run.trace.task_dependencies[0][of_function].any(), run.waits_for_cores
    where = where_chunks_are_set(run, name, 1 / times)[0] if begins else ""
    where = f"{where} " if where.startswith("Set ") else ""
    yield Finding.of(
        "There are too few tasks for {threads:thread}: idle threads cost {lost} of the run's "
        "{wall}, mostly while {tasks:task} of {function} run.",
        f"Threads had no runnable task for {{idle}} of their time. {needs_cores(waits)}See "
        "time_accounting() and critical_path_summary().",
        f"{where}Split the work of {{function}} into {{times}} times as many partitions "
        f"({Count(runs * times):task}{sized}), so that there are three per thread, or run it on "
        "fewer workers."
        + (
            " If each task reads one file that cannot be split (gzip, a single row group of "
            "Parquet), write the data to several files."
            if begins
            else ""
        ),
        tasks=Count(runs),
        threads=Count(round(run.threads)),
        lost=Seconds(seconds),
        wall=Seconds(run.wall),
        idle=Share(run.share_of(ThreadTime.NO_RUNNABLE_TASK)),
        core_wait=waits,
        times=times,
        chunk=Bytes(usual) if usual > _CHUNK else None,
        begins=begins,
        seconds=seconds,
        function=name,
        start=float(run.slots.times.executing[of_function].min()),
        stop=float(run.slots.times.done[of_function].max()),
    )


@rule("dominant-function", general=True)
def dominant_function(run: RunFigures) -> Iterator[Finding]:
    """Find a function that takes most of the time and whose tasks are far longer than others."""
    # The cost of the first run on a worker is not part of the function's usual work.
    working, first = run.working.copy(), run.first_uses
    working[first.rows] = np.minimum(working[first.rows], first.usual)
    total = run.functions.sum(working)
    if not total.sum() > 0:
        return
    code = int(total.argmax())
    of_function = run.functions.codes == code
    share = float(total[code] / total.sum())
    median, others = float(np.median(working[of_function])), float(total.sum() - total[code])
    others_count = int(np.count_nonzero(~of_function))
    if share < _DOMINATES or median * others_count < _TIMES_OTHERS * others:
        return
    name, mean = str(run.function_names[code]), float(working[of_function].mean())
    frame = hottest_frame(run.trace, name)
    if not others_count and not frame:
        return  # It is obvious that the only function takes all of the time.
    if waits_of(run.trace, name).get(OTHER_TASKS, 0.0) >= 0.5:
        return  # The time is spent in the tasks that this function waits for.
    uneven = " (mean: {mean})" if mean > _UNEVEN * median else ""
    compared = ". Tasks of other functions take {others} on average" if others_count else ""
    p2p = bool(p2p_runs(run.trace)[of_function].any())
    faster = run.saved(0.5 * run.path_seconds_of(of_function), speedup={name: 2.0})
    if faster < MEDIUM * run.wall:
        return
    yield Finding.of(
        "One function takes most of the time: {function} takes {share} of the total task time. Its "
        f"median task takes {{median}}{uneven}.",
        "{tasks:task} took {lasted} in total, not counting CPU wait and slow first runs on each "
        f"worker{compared}. {{function}} uses the CPU for {{on_cpu}} of its time. {{hottest}}See "
        "per_function_bottleneck(), hot_lines() and per_task_bottleneck().",
        "Shuffle less: {function} is a part of Dask's P2P shuffle. Shuffle fewer columns and "
        "rows, or fewer and larger partitions, and give workers a local disk."
        if p2p
        else "Speed up {_frame}. If {function} were twice as fast, the run would be {faster} "
        "shorter.",
        share=Share(share),
        median=Seconds(median),
        mean=Seconds(mean) if uneven else None,
        tasks=Count(run.functions.sizes[code]),
        lasted=Seconds(total[code]),
        others=Seconds(others / others_count) if others_count else None,
        on_cpu=Share(run.cpu[of_function].sum() / run.working[of_function].sum()),
        hottest=hottest_line(run.trace, name),
        _frame=frame or run.called_by(name) or name,
        faster=Seconds(faster),
        p2p=p2p,
        # It is unknown whether the function can be made faster.
        severity="low",
        function=name,
    )


@rule("row-wise", explains="dominant-function")
def row_wise(run: RunFigures) -> Iterator[Finding]:
    """Find functions that call Python code for each row, or for each value of a column or array."""
    if not len(run.trace.task_samples):
        return
    order = np.argsort(-run.functions.sum(run.working), kind="stable")
    for code in order[:_MOST_ROW_WISE].tolist():
        name, rows = str(run.function_names[code]), np.flatnonzero(run.functions.codes == code)
        by_row, values = time_by_row(run.trace, name)
        caller, by_value, in_loop = time_one_by_one(run.trace, name)
        caller = "" if by_row > 0 else caller
        if not caller:
            by_value, in_loop = time_by_value(run.trace, name), 0.0
        of_array = caller in (*BY_SLICE, *BY_VALUE)
        each = by_value * _seconds_per_value(run, rows, code, caller)
        is_brief = by_value > 0 and (each < _BRIEF_VALUE or in_loop >= _IN_LOOP)
        line, nested = time_in_nested_loops(run.trace, name)
        # Loops that create objects contain the time of the garbage collector.
        collecting = np.nan_to_num(run.task_column("collecting")[rows]).sum()
        nested -= float(collecting) / max(float(run.cpu[rows].sum()), 1e-9)
        nested = nested if nested >= _NESTED and not (by_row > 0 or is_brief) else 0.0
        if not (by_row > 0 or is_brief or nested):
            continue
        library_code = _LIBRARY_CODE * in_loop if caller and not of_array else 1.0
        share = nested or by_row or by_value * library_code
        # A task that computes for less time also waits for a core for less time.
        left = run.with_durations(rows, (1 - share) * run.lasted[rows])
        seconds = run.saved(share * run.path_seconds_of(run.functions.codes == code), running=left)
        if seconds < _ROW_WISE * run.wall:
            continue
        if nested:
            text = "{function} runs nested Python loops for {nested} of its time, mostly at {line}."
            evidence = "Stack samples of {tasks:task} show these loops. "
            advice = (
                "Replace the loops at {line} by operations on whole arrays, or compile them with "
                "Numba (@numba.njit)."
            )
        elif by_row > 0:
            text = (
                "{function} handles tables row by row: for {by_row} of its time, pandas runs "
                "Python code for single rows."
            )
            evidence = (
                "In the samples of {tasks:task}, {values} of the time is spent on creating rows "
                "and on taking values out of them. "
            )
            advice = (
                'Compute whole columns at once (df["a"] * df["b"], numpy.where(), Series.map() '
                "with a dict) instead of apply(axis=1), iterrows() or a loop over rows."
            )
        elif caller:
            each_piece = {True: "slice", False: "value"}[caller in BY_SLICE]
            text = (
                f"{{function}} handles arrays piece by piece: it spends {{by_value}} of its time "
                f"in {{caller}}, which calls a Python function for each {each_piece}."
                if of_array
                else "{function} parses text in Python code: {caller} takes {by_value} of its time."
            )
            evidence = (
                "In {tasks:task}, the function uses {each} of CPU time per value. "
                if caller in BY_VALUE
                else "In {tasks:task}, {in_loop} of this time is spent in the code of {caller} "
                "itself. "
            )
            advice = _INSTEAD[caller]
        else:
            text = (
                "{function} handles columns value by value: it spends {by_value} of its time in "
                "pandas, which calls a Python function for each value."
            )
            evidence = "In {tasks:task}, the function uses {each} of CPU time per value. "
            advice = (
                "Replace the function that is passed to Series.map() or Series.apply() with "
                "operations on the whole column: dd.to_datetime(), the methods of Series.str and "
                "Series.dt, or NumPy functions."
            )
        yield Finding.of(
            text,
            f"{evidence}{{hottest}}See hot_lines().",
            advice,
            function=name,
            nested=Share(nested) if nested else None,
            line=line if nested else None,
            by_row=Share(by_row) if by_row > 0 else None,
            values=Share(values) if by_row > 0 else None,
            by_value=None if by_row > 0 or nested else Share(by_value),
            each=None if by_row > 0 or nested or np.isnan(each) else Seconds(each),
            caller=None if nested else caller or None,
            in_loop=Share(in_loop) if caller and not nested else None,
            tasks=Count(len(rows)),
            hottest=hottest_line(run.trace, name),
            seconds=seconds,
            # The function may do something for which a column has no method.
            at_most="high" if nested or by_row > 0 or caller else "medium",
        )


def _seconds_per_value(run: RunFigures, rows: Array, code: int, caller: str) -> float:
    """Return the CPU seconds that a function's task runs need per value of a column or array.

    The result is NaN if the CPU seconds are unknown, or if `caller` is a library function that does
    not call Python code for each value.
    """
    tasks = run.trace.tasks.iloc[rows]
    cpu = float(tasks["cpu"].sum(skipna=False))
    if caller:
        # Dask may have fused a reduction into the tasks, so use the chunk size and not the results.
        values = len(rows) * float(find_chunks(run.trace).size[code]) / _VALUE_BYTES
        return cpu / max(values, 1.0) if caller in BY_VALUE else float("nan")
    lengths = [
        shape[0] if isinstance(shape, tuple) and shape else np.nan for shape in tasks["shape"]
    ]
    return cpu / max(float(np.sum(lengths)), 1.0)


def _in_chains(run: RunFigures, on_path: Array, alone: Array) -> Array:
    """Return a mask of the tasks `on_path` (of the critical path) that belong to a chain.

    In a chain, each task uses the result of the previous one. `alone` is the time for which each
    task ran alone.
    """
    if not len(on_path):
        return np.zeros(0, dtype=bool)
    users, producers = dependency_rows(run.trace)
    rows = len(run.trace.tasks)
    linked = np.isin(on_path[1:] * rows + on_path[:-1], users * rows + producers)
    chain = np.cumsum(np.append(False, ~linked))
    longest = np.zeros(chain[-1] + 1)
    np.maximum.at(longest, chain, alone)
    # If one task has most of this time in a chain, the other tasks hardly wait for each other.
    return (longest <= 0.5 * np.bincount(chain, weights=alone))[chain]


def _path_without_slow_tasks(run: RunFigures) -> tuple[Array, Array, Array, Array]:
    """Return the compute segments of the critical path, except those of slow tasks.

    Slow tasks are stragglers and tasks on slow workers. The result consists of four arrays with one
    item per segment: its row of `Trace.tasks`, its seconds, the seconds in which no other task ran,
    and the seconds for which threads were idle during the segment.
    """
    path, times = find_path(run.trace), run.slots.times
    of_tasks = path.rows < len(run.trace.tasks)
    rows = path.rows[of_tasks]
    start = np.maximum(times.executing[rows], path.begin[of_tasks])
    stop = np.minimum(run.slots.end[rows], path.end[of_tasks])
    usual = (stop > start) & ~np.isin(rows, run.stragglers.rows) & ~run.on_slow_worker[rows]
    rows, start, stop = rows[usual], start[usual], stop[usual]
    alone = run.integrate(run.concurrency[1] <= 1, start, stop)
    return rows, stop - start, alone, run.idle_between(start, stop)
