"""Columns of the page from stack samples: flame graphs, source lines, and the client's activity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.client_time import RECORDING
from dasfprof.analysis.model.steps import has_steps, step_groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.flame_tree import FlameTree, Name, StackTree, flame_tree
from dasfprof.analysis.stack_samples.loop_blocks import in_the_loop
from dasfprof.analysis.stack_samples.places import UNKNOWN, all_stacks, library_of, places
from dasfprof.analysis.stack_samples.spent import (
    Parts,
    Samples,
    Split,
    parts_of,
    run_of_samples,
    samples_of,
    split,
)
from dasfprof.analysis.under_way.state import Frame, is_of_user
from dasfprof.database.columns import Array
from dasfprof.report.formats.speedscope import samples_beside_tasks
from dasfprof.report.page.document import (
    PackedColumn,
    in_group,
    offsets,
    pack_integers,
    seconds,
    texts,
)

#: Maximum number of lines per function, and of functions. Those with most time are selected.
MOST_LINES, MOST_FUNCTIONS = 20, 300
#: Maximum number of samples in the lines of task runs. Task runs with most samples are selected.
MOST_SAMPLES = 200_000
#: Precision of the times, in seconds.
STEP = 1e-4


def _line_data(
    run: Run, rows: Array, stacks: Array, functions: Array, parts: Parts
) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the lines of user code with their time, as in `hot_lines`.

    Parameters
    ----------
    rows
        For each row of the page, its row in `Run.task_runs`.
    stacks, functions, parts
        Stacks, functions and times of the samples of tasks. See `samples_of` and `parts_of`.

    Returns
    -------
    columns
        One row per task run and line: ``rows`` (row of the page), ``places`` (index in the list
        ``places``), and the columns of `amounts_of`.
    facts
        Each item of ``places`` is a list of file, line and function. ``functions`` contains, by
        function name, one list per line: the index in ``places``, and the values of `amounts_of`.
        ``fewest`` is a number of samples. Task runs with fewer samples are left out.
    """
    names, codes = places(run, "line")
    lines, count = codes[stacks], len(names)
    used: dict[int, int] = {}
    columns, fewest = _of_runs(run, rows, lines, parts, used)
    by_function = _of_functions(run, functions * count + lines, parts, count, used)
    # Lists of file, line (0 if unknown) and function. Other data refers to them by index.
    frames = [names[number] for number in used]
    known = [each if isinstance(each, Frame) else Frame(UNKNOWN, "", 0) for each in frames]
    listed = [[frame.file, max(frame.line, 0), frame.function] for frame in known]
    return columns, {"places": listed, "functions": by_function, "fewest": fewest}


def _of_runs(
    run: Run, rows: Array, lines: Array, parts: Parts, used: dict[int, int]
) -> tuple[dict[str, PackedColumn], int]:
    """Return the lines of task runs as columns, and a minimum number of samples per task run.

    Task runs with fewer samples are left out. `lines` has the index of each sample's line. `used`
    maps these indices to indices in the page's list of lines. New lines are added to `used`.
    """
    tasks = run.task_runs
    place = np.full(len(tasks) + 1, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    of_page = place[run_of_samples(run)] if len(lines) else lines
    counts = np.bincount(of_page[of_page >= 0], minlength=len(rows))
    most_first = np.sort(counts)[::-1]
    taken = int(np.searchsorted(np.cumsum(most_first), MOST_SAMPLES, "right"))
    fewest = int(most_first[taken]) + 1 if taken < len(counts) else 1
    selected = np.flatnonzero((of_page >= 0) & (np.append(counts, 0)[of_page] >= fewest))
    count = int(lines.max(initial=0)) + 1
    codes, pairs = pd.factorize(of_page[selected] * count + lines[selected], sort=True)
    spent = split(parts.take(selected).summed(codes, len(pairs)))
    of_rows, names = np.divmod(pairs, count)
    numbers = [used.setdefault(name, len(used)) for name in names.tolist()]
    columns = {
        "rows": pack_integers(of_rows, delta=True),
        "places": pack_integers(np.array(numbers, dtype=np.int64)),
        **{name: seconds(values, step=STEP) for name, values in amounts_of(spent).items()},
    }
    return in_group("run-lines", columns), fewest


def _of_functions(
    run: Run, groups: Array, parts: Parts, count: int, used: dict[int, int]
) -> dict[str, list[list[float | None]]]:
    """Return, by function, the lines in which the function spent the most time.

    Each line is a list: its index in the page's list of lines, and the values of `amounts_of`.
    `groups` has ``function * count + line`` for each sample. Functions are numbered from 1, and 0
    means an unknown function. `used` maps lines to indices, as in `_of_runs`.
    """
    codes, pairs = pd.factorize(groups)
    spent = split(parts.summed(codes, len(pairs)))
    of_function, of_line = np.divmod(pairs, count)
    amounts, order = amounts_of(spent), np.argsort(-spent.seconds, kind="stable")
    tasks = run.task_runs
    names = list(map(str, tasks["function"].cat.categories))
    listed: dict[str, list[list[float | None]]] = {}
    for pair in order.tolist():
        function = int(of_function[pair]) - 1
        if function < 0 or (names[function] not in listed and len(listed) >= MOST_FUNCTIONS):
            continue
        of_it = listed.setdefault(names[function], [])
        if len(of_it) < MOST_LINES:
            place = used.setdefault(int(of_line[pair]), len(used))
            of_it.append([place, *(_number(values[pair]) for values in amounts.values())])
    return listed


def amounts_of(spent: Split) -> dict[str, Array]:
    """Return the seconds of a `Split`, in total and by activity, by their names in the page."""
    return {
        "seconds": spent.seconds,
        "computing": spent.computing,
        "core": spent.core_wait,
        "lock": spent.lock_wait,
        "uncertain": spent.uncertain,
    }


def _number(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def flame_columns(run: Run, rows: Array) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the data of the page's flame graphs. Each view has one tree of calls.

    Parameters
    ----------
    rows
        For each row of the page, its row in `Run.task_runs`.

    Returns
    -------
    columns, facts
        The columns' names begin with the name of their view. The fact ``views`` is a list of
        dicts with ``name``, ``title``, ``seconds``, ``samples`` and ``omitted`` (number of calls
        that were left out). The fact ``lines`` has the facts that `_line_data` returns.
    """
    samples, functions = samples_of(run)
    parts = parts_of(samples, functions)
    columns, lines = _line_data(run, rows, samples.stack, functions, parts)
    views = []
    names: dict[Name, int] = {}
    for name, title, tree, number in _views(run, samples.stack, functions, parts):
        columns |= in_group(f"flame-{name}", _packed(tree, names))
        facts = {"seconds": tree.seconds, "samples": number, "omitted": tree.omitted}
        views.append({"name": name, "title": title, **facts})
    # Add the library of each function. It is empty for user code and for groups.
    listed = []
    for function in names:
        is_of_program = not function.file or is_of_user(Frame(*function, 0))
        listed.append([*function, "" if is_of_program else library_of(function.file)])
    columns |= in_group("flames", {"names": texts(listed)})
    return columns, {"views": views, "lines": lines}


def _views(
    run: Run, stacks: Array, functions: Array, parts: Parts
) -> Iterator[tuple[str, str, FlameTree, int]]:
    """Yield name, title, tree and number of samples of each view that has samples."""
    if len(run.task_samples):
        stacks, parts, groups = _of_tasks(run, stacks, functions, parts)
        calls = StackTree(all_stacks(run))
        for by, (codes, names) in groups.items():
            tree = flame_tree(calls, codes, names, stacks, parts)
            yield by, f"Tasks by {by}", tree, len(run.task_samples)
    for of, table, codes, names in samples_beside_tasks(run):
        samples, frames = Samples.from_table(table), all_stacks(run)
        name, title, domains = "client", "Client", np.zeros(len(samples), dtype=np.int64)
        if of != "client":
            name, title, domains = "loops", "Event loops", codes
            frames = [in_the_loop(stack) for stack in frames]
        parts = parts_of(samples, domains)
        tree = flame_tree(StackTree(frames), codes, names, samples.stack, parts)
        yield name, title, tree, len(table)


def _of_tasks(
    run: Run, stacks: Array, functions: Array, parts: Parts
) -> tuple[Array, Parts, dict[str, tuple[Array, list[str]]]]:
    """Merge samples that have equal stacks and the same function, step and worker.

    Return the stacks and the seconds of the merged samples. Also return a dict with two values for
    each view (function, step and worker): the index of each merged sample's group, and the names of
    the groups.
    """
    tasks, runs = run.task_runs, run_of_samples(run)
    groups: dict[str, tuple[Array, list[str]]] = {}
    if "function" in tasks:
        groups["function"] = functions - 1, list(map(str, tasks["function"].cat.categories))
    if has_steps(run):
        codes, steps = step_groups(tasks)
        groups["step"] = np.r_[codes, -1][runs], steps
    workers = run.task_samples["worker_id"].to_numpy(dtype=np.int64)
    groups["worker"] = workers, run.workers["worker"].astype(object).astype(str).tolist()
    alike = stacks + 1
    for codes, names in groups.values():
        alike = alike * (len(names) + 1) + codes + 1
    places, distinct = pd.factorize(alike)
    first = np.zeros(len(distinct), dtype=np.int64)
    first[places] = np.arange(len(places))
    taken = {by: (codes[first], names) for by, (codes, names) in groups.items()}
    return stacks[first], parts.summed(places, len(distinct)), taken


def _packed(tree: FlameTree, names: dict[Name, int]) -> dict[str, PackedColumn]:
    """Pack the columns of a tree. `names` maps functions to indices. New functions are added."""
    numbers = [names.setdefault(name, len(names)) for name in tree.names]
    totals, of_lines = amounts_of(tree.spent), amounts_of(tree.line_spent)
    amounts = {"seconds": totals.pop("seconds"), "own": tree.self_seconds, **totals}
    amounts |= {f"line_{name}": values for name, values in of_lines.items()}
    return {
        "depths": pack_integers(tree.depths),
        "functions": pack_integers(np.array(numbers, dtype=np.int64)[tree.functions]),
        "first_lines": offsets(tree.line_counts),
        "lines": pack_integers(tree.lines),
        **{name: seconds(values, step=STEP) for name, values in amounts.items()},
    }


#: Maximum number of calls, and of stays (see `client_columns`). The longest are selected.
MOST_CALLS, MOST_STAYS = 20_000, 100_000
#: Maximum seconds between two samples of the same stack, so that they belong to the same stay.
_APART = 0.002


def client_columns(run: Run) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the client's calls to Dask, and its stays. Both are sorted by time.

    A stay is a time range in which all samples show the client's main thread with the same stack.

    Returns
    -------
    columns, facts
        The columns of calls are their start, duration, total seconds, number of calls, index in
        ``kinds``, index in ``places``, and whether the main thread made the call. A row may stand
        for several calls. The columns of stays are their end, duration, and index in ``places``.
        Stays do not overlap. The facts ``called`` and ``sampled`` are the start and end of the
        recording of calls and samples, or None if they were not recorded. ``left`` contains the
        number of calls, and the number of stays, that the page lacks.
    """
    known: dict[tuple[str, int, str], int] = {}
    calls, kinds, called, fewer_calls = _calls(run, known)
    stays, sampled, fewer_stays = _stays(run, known)
    facts = {
        "kinds": kinds,
        "places": [list(place) for place in known],
        "called": called,
        "sampled": sampled,
        "left": [fewer_calls, fewer_stays],
    }
    return {**calls, **stays}, facts


def _calls(
    run: Run, known: dict[tuple[str, int, str], int]
) -> tuple[dict[str, PackedColumn], list[str], list[float] | None, int]:
    table = run.client_calls
    if not len(table):
        return {}, [], None, 0
    begin, stop, spent = (table[name].to_numpy(dtype=float) for name in ("time", "stop", "seconds"))
    begin, stop = run.since_begin(begin), run.since_begin(stop)
    # A row with a single call ended after the seconds of this call.
    stop = np.where(table["calls"].to_numpy() <= 1, begin + spent, stop)
    placed = np.isfinite(begin) & np.isfinite(stop) & (stop > 0)
    recording = (table["call"].astype(object) == RECORDING).to_numpy()
    timed = placed & recording if (placed & recording).any() else placed
    called = [float(begin[timed].min()), float(stop[timed].max())] if timed.any() else None
    calls = np.flatnonzero(placed & ~recording)
    rows = calls[np.argsort(-spent[calls], kind="stable")[:MOST_CALLS]]
    rows = rows[np.argsort(begin[rows], kind="stable")]
    codes, kinds = pd.factorize(table["call"].astype(object).to_numpy()[rows])
    names = table[["file", "line", "code"]].astype(object).iloc[rows]
    numbers = [_place(known, *place) for place in names.itertuples(index=False)]
    columns = {
        "call_begins": seconds(np.maximum(begin[rows], 0.0), delta=True),
        "call_lengths": seconds(stop[rows] - np.maximum(begin[rows], 0.0)),
        "call_seconds": seconds(spent[rows]),
        "call_counts": pack_integers(np.maximum(table["calls"].to_numpy(dtype=np.int64)[rows], 1)),
        "call_kinds": pack_integers(codes),
        "call_places": pack_integers(np.array(numbers, dtype=np.int64)),
        "call_main": pack_integers(table["main"].to_numpy(dtype=np.int64)[rows] == 1),
    }
    return columns, list(map(str, kinds)), called, len(calls) - len(rows)


def _stays(
    run: Run, known: dict[tuple[str, int, str], int]
) -> tuple[dict[str, PackedColumn], list[float] | None, int]:
    table = run.client_samples
    if not len(table):
        return {}, None, 0
    time = run.since_begin(table["time"])
    interval = np.maximum(np.nan_to_num(table["interval"].to_numpy(dtype=float)), 0.0)
    order = np.flatnonzero(np.isfinite(time) & (time >= 0))
    order = order[np.argsort(time[order], kind="stable")]
    if not len(order):
        return {}, None, 0
    # An interval may be longer than the time since the previous sample. Cut it, so that stays do
    # not overlap.
    time = time[order]
    interval = np.minimum(interval[order], np.diff(time, prepend=0.0))
    stack = table["stack"].to_numpy(dtype=np.int64)[order]
    goes_on = (stack[1:] == stack[:-1]) & (time[1:] - interval[1:] - time[:-1] < _APART)
    first = np.flatnonzero(np.append(True, ~goes_on))
    ends = time[np.append(first[1:], len(time)) - 1]
    lengths = np.add.reduceat(interval, first)
    names, codes = places(run, "line")
    longest = np.sort(np.argsort(-lengths, kind="stable")[:MOST_STAYS])
    frames = [names[code] for code in codes[stack[first[longest]]].tolist()]
    nowhere = UNKNOWN, 0, ""
    numbers = [
        _place(known, *((f.file, f.line, f.function) if isinstance(f, Frame) else nowhere))
        for f in frames
    ]
    columns = {
        "stay_ends": seconds(ends[longest], delta=True),
        "stay_lengths": seconds(lengths[longest]),
        "stay_places": pack_integers(np.array(numbers, dtype=np.int64)),
    }
    sampled = [max(float(time[0] - interval[0]), 0.0), float(time[-1])]
    return columns, sampled, len(first) - len(longest)


def _place(known: dict[tuple[str, int, str], int], file: Any, line: Any, code: Any) -> int:
    """Return the index of a line of code in `known`, and add the line if it is new.

    `code` is the name of the function. An unknown file has an empty name.
    """
    texts = [each if isinstance(each, str) else "" for each in (file, code)]
    place = texts[0], max(int(line), 0) if pd.notna(line) else 0, texts[1]
    return known.setdefault(place, len(known))
