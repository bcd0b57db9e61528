"""Rules about overhead of Dask: many small tasks, the scheduler, and deserializing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.chunk_arguments import Blocks, larger_chunks_in
from dasfprof.analysis.diagnosis.cores import fewer_threads
from dasfprof.analysis.diagnosis.registry import NEGLIGIBLE, Advice, Change, Edit, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import HANDLING, RunFigures
from dasfprof.analysis.model.client_time import single_calls
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.links import dependency_rows
from dasfprof.analysis.model.sizing import find_chunks, larger_shape, task_overhead
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.stack_samples.loop_blocks import blocked_on_the_way
from dasfprof.analysis.wording import Bytes, Count, Factor, Figures, Seconds, Share
from dasfprof.database.columns import Array

#: Thresholds of small tasks: median seconds, and overhead as a multiple of the tasks' durations.
_SMALL = 0.010
_BY_COMPUTE = 0.5
#: Threshold (bytes): smaller partitions of a P2P shuffle count as small.
_SMALL_PARTITION = 500_000
#: Threshold (fraction of thread time): overhead, or waits for the scheduler.
_SHARE = 0.2
#: Approximate seconds that Dask needs to handle an empty task.
_EMPTY = 0.001
#: Maximum seconds per task that Dask needs to build, send and unpack a graph. Longer waits for a
#: graph have other causes, such as the first use of a module.
_GRAPH = 0.002
#: Threshold (seconds per task): such a long handling is not explained by the number of tasks alone.
_COSTLY = 0.012
#: Thresholds of exceptionally long overhead of a single task: seconds, and multiple of the median.
_RARE, _RARELY = 0.5, 50.0
#: Threshold (fraction of thread time, or of the critical path): tasks in transit.
_LATE = 0.1
#: Threshold (fraction of the time in transit): the worker's event loop is the cause.
_BLOCKED = 0.5
#: Threshold (calls per task): the client fetches the results of most tasks one by one.
_EACH = 0.5
#: Minimum factors by which tasks can become larger: for the advice to make them larger, and for
#: more than low severity.
_WORTH_IT, _FEW = 1.5, 4.0
#: Advice if tasks arrive late although no large values were sent with them.
_NO_LARGE_VALUES = (
    "Make fewer, larger tasks, which need fewer messages. No large values were sent with these "
    "tasks, so also check what else the scheduler's process and its host do "
    "(node_resource_usage())."
)
#: Minimum bytes of a chunk that can be made larger.
_DIVISIBLE = 1000


@rule(
    "tasks-too-small",
    causes="scheduler-bound load-imbalance too-few-tasks poor-placement transfer-bound "
    "slow-dispatch gil-contention",
)
def tasks_too_small(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that are so short that handling them takes longer than running them."""
    shuffles = _small_shuffles(run)
    shuffling = float(run.working[shuffles].sum())
    durations = run.working[run.succeeded & ~shuffles]
    # If there are at most as many tasks as threads, fewer tasks would not help.
    if len(durations) <= run.threads or not len(run.chunk_costs):
        return
    median, compute = float(np.median(durations)), float(durations.sum()) / run.threads
    # Time in transit counts, because each task needs a message. It does not count if it has another
    # cause: a blocked event loop, or a process pool whose processes have not started.
    in_pools = "processes" in run.trace.surroundings.local
    received = 0.0 if in_pools else 1.0 - _blocked_share(run)
    handled = run.seconds_of(*HANDLING) + received * run.seconds_of(ThreadTime.ON_ITS_WAY)
    share = run.share_of(*HANDLING) + received * run.share_of(ThreadTime.ON_ITS_WAY)
    # Subtract the time that has other causes: large values, requests for results that the scheduler
    # answers, and results that workers serialize in their event loops. If the client fetches each
    # result separately, the requests are not subtracted, because fewer tasks have fewer results to
    # fetch.
    calls, fetching = run.fetched_singly
    of_each = calls >= _EACH * len(durations)
    others = (0.0 if of_each else _asked(run)) + _serialising(run) + _of_few(run)
    others = min(others, max(handled - _EMPTY * len(durations), 0.0))
    overhead = max(handled - run.carrying - others, 0.0)
    share *= overhead / handled if handled > 0 else 0.0
    overhead, share = overhead + shuffling / run.threads, share + run.share(shuffling)
    if not (median < _SMALL and overhead > _BY_COMPUTE * compute and share >= _SHARE):
        return
    costs = run.chunk_costs
    # Consider only functions with small tasks, even if other functions have more overhead.
    small = run.functions.median(np.where(run.succeeded, run.working, np.nan)) < _SMALL
    most = int(next((code for code in costs.index if small[code]), costs.index[0]))
    name, costly = str(costs["function"][most]), bool(costs["overhead"][most] > _COSTLY)
    advice = _larger_chunks(run, most)
    besides = Seconds(costs["overhead"][most])
    # Graphs with fewer tasks are built, sent and unpacked in less time, unless they are large
    # because of the values that they contain.
    fewer = 0.0 if run.sent_large else 1.0 - 1.0 / _factor(advice)
    graphs = fewer * min(float(run.waits_for_graphs[0].sum()), _GRAPH * len(durations))
    graphs = graphs if graphs >= NEGLIGIBLE else 0.0
    suggestion, settings = (_costly(run), []) if costly else _larger_tasks(run, advice)
    factor = _factor(advice)
    # Slightly larger tasks leave a part of the overhead.
    saved = overhead * (1.0 - 1.0 / factor if 1 < factor < _FEW else 1.0)
    of_results = (
        "The client fetches their results one at a time, which takes {fetching} after the tasks "
        "have finished. "
    )
    of_graphs = "Dask needs {graphs} longer to build, send and unpack graphs of so many tasks. "
    of_shuffles = (
        "The overhead includes P2P shuffles of small partitions, which take {shuffling} of thread "
        "time. "
    )
    yield Finding.of(
        f"{'Tasks are slow to handle' if costly else 'Tasks are too small'}: {{tasks:task}} take "
        "{median} each (the median), and handling them takes {handling} of thread time.",
        f"Overhead takes {'{overhead}' if compute > 0 else 'many'} times as long as the "
        "computation of the tasks. A task of {function} has {besides} of overhead, and computes "
        f"for {{own}} (means, not counting CPU wait). {of_shuffles if shuffling > 0 else ''}"
        f"{of_results if of_each else ''}{of_graphs if graphs else ''}"
        "See chunk_sizing() and time_accounting().",
        suggestion,
        function=name,
        tasks=Count(len(durations)),
        median=Seconds(median),
        handling=Share(share),
        overhead=Factor(overhead / compute) if compute > 0 else None,
        besides=besides,
        own=Seconds(run.working[run.rows_of(name)].mean()),
        costly=costly,
        fetching=Seconds(fetching) if of_each else None,
        shuffling=Share(run.share(shuffling)) if shuffling > 0 else None,
        graphs=Seconds(graphs) if graphs else None,
        sent_large=run.sent_large,
        advice=advice,
        settings=settings,
        seconds=float("nan") if costly else saved + of_each * fetching + graphs,
        of_client=of_each or graphs > 0,
        at_least="medium" if costly else "info",
        at_most="medium" if costly else "low" if 1 < factor < _FEW else "high",
    )


def _small_shuffles(run: RunFigures) -> Array:
    """Return a mask of the task runs of P2P shuffles, if their partitions are small.

    Otherwise, the mask is all False.
    """
    shuffles = p2p_runs(run.trace)
    sizes = np.fmax(run.task_column("size"), run.task_column("input_size"))[shuffles]
    known = sizes[np.isfinite(sizes)]
    # Such a task takes almost the same time for a larger partition.
    return shuffles & (len(known) > 0 and float(np.median(known)) < _SMALL_PARTITION)


def _of_few(run: RunFigures) -> float:
    """Return the excess seconds of tasks that took exceptionally long to handle.

    The excess is the time beyond the median. It is in thread-seconds, divided by the number of
    threads.
    """
    each = task_overhead(run.trace)[: len(run.succeeded)][run.succeeded]
    usual = float(np.nanmedian(each)) if np.isfinite(each).any() else np.nan
    # The time beyond the median does not depend on the number of tasks. For example, a worker
    # imports modules when it unpickles its first task.
    excess = each[each > max(_RARE, _RARELY * usual)] - usual
    return float(excess.sum()) / run.threads


def _asked(run: RunFigures) -> float:
    """Return the seconds for which the scheduler answered requests for single results."""
    calls = single_calls(run.trace)
    begin, end = run.trace.begin + run.begin, run.trace.begin + run.begin + run.wall
    lasted = (calls["stop"] - calls["time"]).clip(lower=1e-9)
    within = (calls["stop"].clip(upper=end) - calls["time"].clip(lower=begin)).clip(lower=0)
    return float((calls["in_vain"] * within / lasted).sum())


def _serialising(run: RunFigures) -> float:
    """Return the thread-seconds for serializing results, divided by the number of threads."""
    rows, threads = run.trace.serialised, run.trace.workers["nthreads"].to_numpy(dtype=float)
    if not len(rows) or not run.threads > 0:
        return 0.0
    theirs = np.nan_to_num(threads[rows["worker_id"].to_numpy(dtype=np.int64)], nan=1.0)
    return float((rows["seconds"].to_numpy(dtype=float) * theirs).sum()) / run.threads


def _costly(run: RunFigures) -> str:
    """Return the advice for the case that every single task takes long to handle."""
    others = (
        "slow pickling, blocked event loops, or a busy host. This trace does not show which of "
        "these is the cause."
    )
    alone = (
        "An overhead of {besides} per task is unusual: Dask handles an empty task in about "
        f"{Seconds(_EMPTY)}. "
    )
    if run.sent_large is False:
        return (
            "Measure how long pickle.dumps() takes for one task's function and arguments, and for "
            f"a result of {{function}}. {alone}No large values were sent with these tasks. "
            f"Possible causes are {others}"
        )
    return (
        "Check the size of pickle.dumps() of one task's function and arguments, and scatter() "
        f"what is large. {alone}Possible causes are large arguments, functions that hold large "
        f"objects and are sent with each task of {{function}}, {others}"
    )


def _larger_tasks(run: RunFigures, f: Figures) -> tuple[list[str | Advice], list[Change]]:
    """Return the advice to make tasks larger or fewer, and the settings for that."""
    if f.how == "fewer-steps":
        fewer = "Alternatively, use fewer threads."
        return [
            "Reduce the number of tasks: combine several steps of the pipeline in one function. "
            "Larger chunks would leave threads without work, because a layer has only "
            "{advice.width:task} of {advice.function}.",
            Advice("fewer-threads", fewer, changes=fewer_threads(run)),
        ], []
    where, edit = where_chunks_are_set(run, f.function, _factor(f))
    if f.how == "more-work":
        words = "Put more work into each task of {advice.function}: batch inputs, or fuse it with "
        return [where or f"{words}other tasks."], []
    left = "Each layer then has {advice.left} tasks."
    if f.how == "batches":
        batches = "Put {advice.inputs} inputs into each task of {advice.function}, as a list."
        # Tasks of collections have tuples as keys. The program does not pass inputs to them.
        if (
            run.text_of_key(int(run.trace.tasks["key_id"].iloc[run.rows_of(f.function)[0]]))[0]
            == "("
        ):
            batches = (
                "Make the chunks or partitions of {advice.function} {advice.inputs} times as large."
            )
        times = float(f.inputs)
        change = Change({"batch": int(f.inputs)}, function=f.function, times=times, edit=edit)
        return [where or batches, left], [change]
    shapes = ", chunks={advice.new_chunks} instead of {advice.chunks}" if f.chunks else ""
    chunks = str(f.new_chunks or f.new_size)
    return [
        where
        or "Make the tasks of {advice.function} about {advice.factor} times as large: chunks of "
        f"{{advice.new_size}} instead of {{advice.size}}{shapes}. This assumes that the "
        "duration is proportional to the size.",
        left,
    ], [Change({"chunks": chunks}, function=f.function, times=float(f.factor), edit=edit)]


def _factor(f: Figures) -> float:
    """Return the factor by which tasks should become larger, or 1 if it is unknown.

    `f` is a result of `_larger_chunks`.
    """
    return float(f.inputs if f.how == "batches" else vars(f).get("factor") or 1)


def where_chunks_are_set(run: RunFigures, function: str, factor: float) -> tuple[str, Edit | None]:
    """Return an instruction to make chunks `factor` times as large, and the edit that does this.

    The instruction is empty if the factor is 1, or if it is unknown where chunks are set. Its
    braces are doubled, as in a format string. The edit is None if no edit of a single line is
    known.
    """
    lines = run.trace.lines
    if not len(lines) or factor == 1:
        return "", None
    alone = lines[lines["fused"].str.len() == 0]
    places = zip(alone["file"], alone["number"], strict=True)
    names = dict(zip(places, alone["line"], strict=True))
    # A row may combine several fused lines. The last of these lines made the result.
    parts = {
        line: (*fused, names[file, number])
        for line, fused, file, number in lines[["line", "fused", "file", "number"]].to_numpy()
    }
    chunks = find_chunks(run.trace)
    built = run.trace.tasks[["line"]].assign(code=run.functions.codes).dropna().drop_duplicates()
    arrays: dict[str, list[Blocks]] = {}
    for line, code in zip(built["line"], built["code"], strict=True):
        if (blocks := chunks.shapes[code]) is not None:
            arrays.setdefault(parts[line][-1], []).append(blocks)
    rows = run.rows_of(function)
    of_function = int(run.functions.codes[rows[0]])
    lines_of_function = built["line"][built["code"] == of_function].tolist()
    # An array of a store is an input of all tasks that read its chunks.
    users, makers = dependency_rows(run.trace)
    inputs, counts = np.unique(makers[np.isin(users, rows)], return_counts=True)
    input_lines = run.trace.of_slots("line")[inputs[counts == len(rows)]]
    lines_of_function += [line for line in input_lines if line in parts]
    built_by = {part for line in lines_of_function for part in parts[line]}
    # To make chunks smaller, search only the lines that built the function's tasks.
    searched = alone if factor > 1 else alone[alone["line"].isin(built_by)]
    larger = larger_chunks_in(
        searched[["line", "text"]].dropna().itertuples(index=False),
        built_by,
        arrays,
        int(chunks.width[of_function]),
        factor,
    )
    edit = None
    if larger.text:
        row = alone[alone["line"] == larger.line].iloc[0]
        edit = Edit(row["file"], int(row["number"]), row["text"], larger.text)
    return larger.words.replace("{", "{{").replace("}", "}}"), edit


@rule("scheduler-bound")
def scheduler_bound(run: RunFigures) -> Iterator[Finding]:
    """Find threads that are idle until the scheduler sends a task or learns that one finished."""
    share = run.share_of(ThreadTime.SCHEDULER_LATENCY)
    on_path = run.path_seconds(SegmentKind.SCHEDULER)
    if share < _SHARE or on_path < _SHARE * run.wall:
        return
    yield Finding.of(
        "The scheduler is the bottleneck: for {idle} of their time, threads are idle because "
        "runnable tasks wait on the scheduler, or because it has not yet learned that earlier "
        "tasks finished.",
        "The scheduler handled {tasks_a_second:.0f} tasks per second. The critical path spends "
        "{on_path} in the scheduler. See critical_path_summary().",
        "Give the scheduler fewer, larger tasks (chunk_sizing() suggests sizes), and fuse or "
        "batch short tasks. Keep large objects out of the graph, and check what else the "
        "scheduler's process does.",
        idle=Share(share),
        on_path=Seconds(on_path),
        tasks_a_second=len(run.trace.tasks) / run.wall,
        costs=run.seconds_of(ThreadTime.SCHEDULER_LATENCY),
    )


@rule("slow-dispatch")
def slow_dispatch(run: RunFigures) -> Iterator[Finding]:
    """Find threads that are idle while tasks for them are in transit from the scheduler."""
    share = run.share_of(ThreadTime.ON_ITS_WAY)
    on_path = run.path_seconds(SegmentKind.ON_ITS_WAY)
    # The rule warm-up reports the time that workers need for imports.
    recurs, way = 1.0 - run.share_of_imports, run.slots.on_its_way
    late = recurs * share >= _LATE and recurs * on_path >= _LATE * run.wall
    if not late or "processes" in run.trace.surroundings.local:
        return
    by_function = np.bincount(run.slots.function, weights=way)
    blocked = _blocked_share(run)
    busy, sent_large = blocked >= _BLOCKED, run.sent_large
    because = ", because the workers' event loops are blocked"
    large = "unpickling of large arguments and functions (client.scatter() them), "
    yield Finding.of(
        "Tasks take up to {longest} to get from the scheduler to a "
        f"worker{because if busy else ''}. Threads are idle for {{idle}} of their time as a "
        "result.",
        "The critical path spends {on_path} in transit, mostly for tasks of {function}. For "
        "{blocked} of the time in transit, the event loop of the task's worker did not answer. See "
        "critical_path_summary() and time_accounting().",
        "Find out what blocks the event loops of workers: "
        f"{'' if sent_large is False else large}imports of modules in tasks (import them in "
        "advance with client.run), spilling, or code that holds the GIL for long."
        if busy
        else _NO_LARGE_VALUES
        if sent_large is False
        else "Keep large objects out of the graph: client.scatter() them, or load them in the "
        "tasks. Make fewer, larger tasks, which need fewer messages.",
        function=str(run.slots.functions[int(by_function.argmax())]),
        idle=Share(share),
        longest=Seconds(way.max()),
        on_path=Seconds(on_path),
        blocked=Share(blocked),
        sent_large=sent_large,
        seconds=recurs * run.seconds_of(ThreadTime.ON_ITS_WAY),
    )


def _blocked_share(run: RunFigures) -> float:
    """Return the fraction of time in transit in which the event loop of the worker was blocked."""
    way = float(run.slots.on_its_way.sum())
    return float(blocked_on_the_way(run.trace).sum()) / way if way > 0 else 0.0


def _larger_chunks(run: RunFigures, most: int) -> Figures:
    """Return the figures of the advice to make the tasks of a function larger.

    `most` is the code of the function.
    """
    costs, chunks = run.chunk_costs, find_chunks(run.trace)
    name, chunk = str(costs["function"][most]), float(costs["chunk"][most])
    larger, width = float(costs["times_larger"][most]), int(chunks.width[most])
    factor = min(larger, width / (3 * run.threads))
    times = Factor(factor) if factor >= _WORTH_IT else None
    more_work = Figures(how="more-work", function=name, factor=times)
    if not larger > 1:
        return more_work
    if factor < _WORTH_IT:
        return Figures(how="fewer-steps", function=name, width=Count(width))
    source = _chunks_are_chosen_in(run, most, chunk * factor)
    if source != most:
        return _larger_chunks(run, source) if costs["times_larger"][source] > 1 else more_work
    if not chunks.divisible[most] or chunk < _DIVISIBLE:
        begun = _cut_as_finely(run, most)
        if begun is None and _depends_on_itself(run, most):
            return more_work
        if begun is None:
            inputs = Count(max(2, round(factor)))
            left = Count(np.ceil(width / inputs))
            return Figures(how="batches", function=name, inputs=inputs, left=left)
        most, width = begun, int(chunks.width[begun])
        name, chunk = str(costs["function"][most]), float(chunks.size[most])
    arrays = chunks.shapes[most] if _has_axes_of_sources(run, most) else None
    return Figures(
        how="larger-chunks",
        function=name,
        factor=Factor(factor),
        size=Bytes(chunk),
        new_size=Bytes(chunk * factor),
        chunks=None if arrays is None else str(arrays[0]),
        new_chunks=None if arrays is None else str(larger_shape(*arrays, factor)),
        left=Count(round(width / factor)),
    )


def _chunks_are_chosen_in(run: RunFigures, most: int, wanted: float) -> int:
    """Return the code of the function whose chunk size determines the chunk size of `most`.

    `most` is the code of a function, too. `wanted` is its suggested chunk size in bytes.
    """
    chunks = find_chunks(run.trace)
    sources = np.flatnonzero(_begins(run) & chunks.divisible)
    totals = (chunks.size * chunks.width)[sources]
    if not len(sources) or wanted <= totals.max():
        return most
    # All arrays and dataframes that the run begins with are smaller than one chunk of the wanted
    # size. So the chunks of `most` follow from those of other arrays. For example, the chunks of an
    # intermediate array in a matrix product follow from those of both matrices.
    return int(sources[totals.argmax()])


def _cut_as_finely(run: RunFigures, most: int) -> int | None:
    """Return the code of a function that reads or creates at least as many chunks as `most` has.

    `most` is the code of a function, too. The chunks of the returned function can become larger.
    The result is None if there is no such function, or if the function `most` reads or creates its
    chunks.
    """
    chunks = find_chunks(run.trace)
    fine = _begins(run) & chunks.divisible & (chunks.size >= _DIVISIBLE)
    fine &= chunks.width >= chunks.width[most]
    candidates = np.flatnonzero(fine)
    # Making the chunks of such a function larger is better than passing lists of inputs to each
    # task of `most`.
    return (
        None
        if _begins(run)[most] or not len(candidates)
        else int(candidates[chunks.size[candidates].argmax()])
    )


def _depends_on_itself(run: RunFigures, most: int) -> bool:
    """Return whether most task runs of a function depend on other tasks of the same function."""
    rows = np.flatnonzero(run.functions.codes == most)
    users, makers = dependency_rows(run.trace)
    return bool(np.isin(rows, users[np.isin(makers, rows)]).mean() > 0.5)


def _has_axes_of_sources(run: RunFigures, most: int) -> bool:
    """Return whether the arrays of the function `most` have as many axes as some source array.

    Source arrays are the results of tasks without dependencies. The result is also True if no such
    array, or no array of `most`, is known.
    """
    shapes = find_chunks(run.trace).shapes
    given = [shapes[code] for code in np.flatnonzero(_begins(run)).tolist()]
    axes = {len(arrays[0]) for arrays in given if arrays is not None}
    arrays_of_function = shapes[most]
    # Users do not choose the chunks of other arrays. For example, a matrix product has an
    # intermediate array with three axes.
    return arrays_of_function is None or not axes or len(arrays_of_function[0]) in axes


def _begins(run: RunFigures) -> Array:
    """Return a mask of functions that have task runs without dependencies."""
    begins = np.zeros(len(run.function_names), dtype=bool)
    begins[run.functions.codes[run.trace.task_dependencies[0] == 0]] = True
    return begins
