"""Rules about dataframes: joins that multiply rows, filters without effect, and unused columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.analysis.wording import Bytes, Count, Factor
from dasfprof.database.columns import Array

#: Names of the functions that join two dataframes and do nothing else.
_JOINS = ("hashjoinp2p", "hash-join", "blockwisemerge", "inter-broadcastjoin")
#: Threshold: number of a join's result rows, as a multiple of the rows of all its inputs.
_EXPLODES = 10.0
#: Name of the function that selects columns, or rows by a second input. Thresholds of a dataframe
#: with unused columns: its minimum number of columns, and the maximum fraction of them that is
#: used.
_SELECTS, _COLUMNS, _USED = "getitem", 4, 0.5
#: Functions of drop_duplicates(): the first one, two that may be the last one, and those in
#: between, which move rows.
_DROPS, _TREE, _DROPPED = "drop_duplicates", "dropduplicates-tree", "call_with_list_arg"
_MOVES = (
    *(_TREE, "operation", "shuffle-transfer", "shuffle-barrier", "p2pshuffle"),
    *("taskshuffle", "group-taskshuffle", "split-taskshuffle"),
)


#: Packages whose dataframes have a shape of rows and columns.
_PACKAGES = ("pandas.", "cudf.", "geopandas.")


@dataclass(frozen=True)
class Frames:
    """Sizes of the dataframes that tasks return, and the task runs that use each of them."""

    #: Number of rows and of columns of the result of each task run. Both are NaN if the result is
    #: neither a dataframe nor a series. The number of columns of a series is NaN.
    rows: Array
    columns: Array
    #: Pairs of task runs: the first task run (taker) uses the result of the second one (giver).
    takers: Array
    givers: Array
    #: Mask of the task runs whose inputs are all known.
    is_known: Array

    def inputs(self, rows: Array) -> Array | None:
        """Return the task runs whose dataframes the task runs `rows` use, or None if unknown."""
        front, inputs = rows, [np.zeros(0, dtype=np.int64)]
        while len(front):
            uses = np.isin(self.takers, front)
            if not self.is_known[front].all() or len(np.unique(self.takers[uses])) < len(front):
                return None
            # If an input is not a dataframe, such as a part of a shuffle, the dataframes from which
            # it was made count instead.
            before = np.unique(self.givers[uses])
            is_frame = np.isfinite(self.rows[before])
            inputs.append(before[is_frame])
            front = before[~is_frame]
        return np.unique(np.concatenate(inputs))


@once_per_trace
def frames_of(run: Run) -> Frames:
    """Return the dataframes of a run."""
    tasks, (lengths, items) = run.tasks, run.task_dependencies
    count = len(tasks)
    rows, columns = np.full(count, np.nan), np.full(count, np.nan)
    kinds = tasks["type"].astype("category").cat
    named = [
        str(kind).startswith(_PACKAGES) and str(kind).endswith(("DataFrame", "Series"))
        for kind in kinds.categories
    ]
    is_named = np.append(np.array(named, dtype=bool), False)[kinds.codes.to_numpy()]
    succeeded = (tasks["state"] == "memory").to_numpy(dtype=bool)
    last = np.full(len(run.keys), -1, dtype=np.int64)
    # If a key has several task runs, the last successful one counts.
    last[tasks["key_id"].to_numpy()[succeeded]] = np.flatnonzero(succeeded)
    shapes = tasks["shape"].to_numpy(dtype=object)
    for row in np.intersect1d(np.flatnonzero(is_named & succeeded), last).tolist():
        shape = shapes[row]
        if isinstance(shape, tuple) and len(shape) in (1, 2):
            rows[row] = shape[0]
            columns[row] = shape[1] if len(shape) == 2 else np.nan
    takers = np.repeat(np.arange(count), np.maximum(lengths, 0))
    givers = last[items]
    is_known = lengths >= 0
    is_known[takers[givers < 0]] = False
    is_pair = (givers >= 0) & np.isin(takers, last)
    return Frames(rows, columns, takers[is_pair], givers[is_pair], is_known)


def _layers(run: RunFigures, names: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    """Yield, for each layer of the functions `names`, the function and the layer's task runs.

    Only successful task runs that return dataframes are included.
    """
    frames = frames_of(run.trace)
    for code in np.flatnonzero(np.isin(run.function_names.astype(str), names)).tolist():
        rows = np.flatnonzero((run.functions.codes == code) & np.isfinite(frames.rows))
        layers = run.layers.codes[rows]
        for layer in np.unique(layers).tolist():
            yield str(run.function_names[code]), rows[layers == layer]


@rule("exploding-join", explains="dominant-function spilling")
def exploding_join(run: RunFigures) -> Iterator[Finding]:
    """Find the most expensive join that returns many times as many rows as its inputs have."""
    frames, sizes, joins = frames_of(run.trace), run.task_column("size"), []
    for name, rows in _layers(run, _JOINS):
        inputs = frames.inputs(rows)
        if inputs is None:
            continue
        before, after = frames.rows[inputs].sum(), frames.rows[rows].sum()
        if 0 < _EXPLODES * before < after:
            joins.append((float(run.working[rows].sum()), name, rows, inputs))
    if not joins:
        return
    costs, name, rows, inputs = max(joins, key=lambda join: join[0])
    before, after = frames.rows[inputs].sum(), frames.rows[rows].sum()
    yield Finding.of(
        "A join multiplies rows: {function} returns {rows:row} from inputs with {taken:row}, "
        "{times} times as many.",
        "The inputs take {input_size} in total, and the results take {size}. The largest of "
        "{tasks:result} has {largest:row}. A key that occurs several times in both dataframes is "
        "joined in all combinations of its rows.",
        "Remove repeated keys from one of the dataframes before you join them, or aggregate its "
        "rows by key. If they repeat because the join needs another column, add it to on=.",
        function=name,
        rows=Count(after),
        taken=Count(before),
        times=Factor(after / before),
        input_size=Bytes(np.nansum(sizes[inputs])),
        size=Bytes(np.nansum(sizes[rows])),
        tasks=Count(len(rows)),
        largest=Count(frames.rows[rows].max()),
        costs=costs / run.threads,
        at_least="low",
    )


@rule("filter-without-effect")
def filter_without_effect(run: RunFigures) -> Iterator[Finding]:
    """Find the most expensive filter or drop_duplicates() among those that remove no row."""
    frames = frames_of(run.trace)
    filters = []
    for name, rows in _layers(run, (_SELECTS, _DROPS)):
        if name == _SELECTS:
            steps, before = rows, _passed(run, rows)
        else:
            steps, after = _dropping(run, rows)
            inputs = frames.inputs(rows)
            before = np.nan if inputs is None else frames.rows[inputs].sum()
            before = before if before == after else np.nan
        if before > 0:
            filters.append((float(run.working[steps].sum()), name, steps, before))
    if not filters:
        return
    costs, name, steps, before = max(filters, key=lambda each: each[0])
    yield Finding.of(
        "drop_duplicates() removes none of {rows:row}."
        if name == _DROPS
        else "A filter removes none of {rows:row}.",
        "In total, {tasks:task} of this operation received and returned the same number of rows.",
        "Remove this operation if your data never needs it.",
        function=name,
        rows=Count(before),
        tasks=Count(len(steps)),
        costs=costs / run.threads,
        at_most="medium",
    )


def _passed(run: RunFigures, rows: Array) -> float:
    """Return how many dataframe rows the filters in the task runs `rows` returned.

    The result is NaN if some of these task runs are not filters, or if a filter removed any row.
    """
    frames, tasks = frames_of(run.trace), run.trace.tasks
    uses = np.isin(frames.takers, rows)
    takers, givers = frames.takers[uses], frames.givers[uses]
    # A filter has two inputs: a dataframe or series, and a series of booleans.
    is_mask = tasks["dtype"].astype(str).str.startswith("bool").to_numpy()[givers]
    if (
        frames.is_known[rows].all()
        and run.trace.keys.are_tuples(tasks["key_id"].to_numpy()[rows]).all()
        and (np.bincount(takers, minlength=len(tasks))[rows] == 2).all()
        and (np.bincount(takers[is_mask], minlength=len(tasks))[rows] >= 1).all()
        and (frames.rows[takers] == frames.rows[givers]).all()
    ):
        return float(frames.rows[rows].sum())
    return float("nan")


def _dropping(run: RunFigures, rows: Array) -> tuple[Array, float]:
    """Return all task runs of a drop_duplicates(), and the number of dataframe rows it returned.

    `rows` are the task runs of its first layer. The number is NaN if it is unknown.
    """
    frames, names = frames_of(run.trace), run.function_names.astype(str)[run.functions.codes]
    steps, takers = [rows], rows
    while len(takers):
        takers = np.unique(frames.takers[np.isin(frames.givers, steps[-1])])
        if not len(takers) or not np.isin(names[takers], _MOVES).all():
            break
        steps.append(takers)
    if len(takers) and (names[takers] == _DROPPED).all():
        steps.append(takers)
    is_last = len(steps) > 1 and np.isin(names[steps[-1]], (_DROPPED, _TREE)).all()
    return np.concatenate(steps), float(frames.rows[steps[-1]].sum()) if is_last else float("nan")


@rule("unused-columns", explains="spilling")
def unused_columns(run: RunFigures) -> Iterator[Finding]:
    """Find the largest dataframe from which all tasks only select a few columns."""
    frames, sizes = frames_of(run.trace), run.task_column("size")
    is_selection = run.functions.codes == -1
    for _, rows in _layers(run, (_SELECTS,)):
        is_selection[rows] = True
    layers = run.layers.codes
    selected = np.unique(layers[frames.givers[is_selection[frames.takers]]])
    largest: tuple[float, Array, float, Array] | None = None
    for layer in selected.tolist():
        of_layer = (layers == layer) & np.isfinite(frames.rows)
        uses = of_layer[frames.givers]
        takers, givers = frames.takers[uses], frames.givers[uses]
        columns = frames.columns[of_layer]
        is_read = not np.isin(np.flatnonzero(of_layer), frames.takers).any()
        widths = np.where(np.isnan(frames.columns[takers]), 1.0, frames.columns[takers])
        if (
            not (is_read and frames.is_known[of_layer].all())
            or not is_selection[takers].all()
            or not (frames.rows[takers] == frames.rows[givers]).all()
            or not (columns == columns[0]).all()
        ):
            continue
        used = sum(widths[layers[takers] == other].max() for other in np.unique(layers[takers]))
        size = float(np.nansum(sizes[of_layer]))
        is_unused = columns[0] >= _COLUMNS and used <= _USED * columns[0]
        if is_unused and (largest is None or size > largest[0]):
            largest = size, np.flatnonzero(of_layer), used, takers
    if largest is None:
        return
    size, rows, used, takers = largest
    yield Finding.of(
        "Tasks use at most {used} of the {columns:column} that {function} returns.",
        "The dataframes take {size} in {tasks:partition}. The selected columns take {used_size}.",
        "Select the columns when you read the data (columns= of read_parquet(), usecols= of "
        "read_csv()), or before you call persist().",
        function=str(run.function_names[run.functions.codes[rows[0]]]),
        columns=Count(frames.columns[rows[0]]),
        used=Count(used),
        size=Bytes(size),
        used_size=Bytes(np.nansum(sizes[takers])),
        tasks=Count(len(rows)),
        severity="low",
    )
