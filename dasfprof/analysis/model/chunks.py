"""The chunks that functions work on: how large they are and can be, and what time does with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups, distinct, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.database.columns import Array
from dasfprof.database.keys import TUPLE

#: Chunks tell what time does with size if so many runs have sizes that differ by such a factor
#: in one step of the graph, and the logarithms of both correlate so well.
_FEWEST = 12
_UNLIKE = 2.0
_CORRELATION = 0.6


@dataclass(frozen=True)
class Chunks:
    """The chunks of each function, by its place among the categories of functions."""

    #: Mean bytes of a run: of its result, or of its share of the inputs if that is more.
    size: Array
    #: The most runs that a step of the graph has: all its chunks in one would be so much larger.
    width: Array
    #: The power of their size by which the time of runs grows; NaN: they do not tell.
    power: Array
    #: The usual shape of its results if they are arrays, with how many blocks there are in each
    #: direction; None: no arrays.
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]] | None]
    #: Whether its results are arrays or frames, which can be cut into larger pieces.
    divisible: Array


@once_per_trace
def find_chunks(trace: Run) -> Chunks:
    """Find the chunks of each function from the runs that ended in memory."""
    tasks = trace.tasks
    kept = tasks["state"].isin(["memory"]).to_numpy()
    runs = tasks[kept]
    function = runs["function"].cat
    groups = Groups(function.codes.to_numpy(), len(function.categories))
    size = runs["size"].to_numpy(dtype=float)
    given = runs["input_size"].to_numpy(dtype=float)
    own = np.fmax(given * _own_share(trace, groups, kept)[groups.codes], size)
    codes, shapes = pd.factorize(runs["shape"].to_numpy(dtype=object))
    # The place of a run's shape among those of arrays and frames; -1: its result is neither.
    is_shape = np.array([isinstance(shape, tuple) for shape in shapes] + [False], dtype=bool)
    shape = np.where(is_shape[codes], codes, -1)
    width, widest = _widths(trace)
    usual = _usual_shapes(groups, np.where(_are_arrays(runs), shape, -1), shapes)
    return Chunks(
        groups.mean(own),
        width,
        _powers(groups, _steps(trace, runs), np.fmax(given, size), runs["duration"].to_numpy()),
        [_in_blocks(trace, *pair) for pair in zip(usual, widest.tolist(), strict=True)],
        groups.sum((shape >= 0).astype(float)) > groups.sizes / 2,
    )


def larger_shape(shape: tuple[int, ...], blocks: tuple[int, ...], factor: float) -> tuple[int, ...]:
    """Return a shape with so many times the elements, grown evenly up to the array's own."""
    grown = list(shape)
    open_ = sorted((at for at in range(len(shape)) if blocks[at] > 1), key=lambda at: blocks[at])
    for left, at in zip(range(len(open_), 0, -1), open_, strict=True):
        times = min(factor ** (1 / left), float(blocks[at]))
        grown[at] = max(round(shape[at] * times), 1)
        factor /= times
    return tuple(grown)


def _own_share(trace: Run, groups: Groups, kept: Array) -> Array:
    """Return by what each function's inputs are to be divided, as its runs share them."""
    lengths, items = trace.task_dependencies
    row = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    place = np.full(len(lengths), -1, dtype=np.int64)
    place[kept] = groups.codes
    inside = place[row] >= 0
    codes, key_ids = place[row[inside]], items[inside].astype(np.int64)
    pairs = distinct(codes * (len(trace.keys) + 1) + key_ids)
    different = np.bincount(pairs // (len(trace.keys) + 1), minlength=groups.count)
    return np.nan_to_num(ratio(different, np.bincount(codes, minlength=groups.count)), nan=1.0)


def _widths(trace: Run) -> tuple[Array, Array]:
    """Return for each function the most keys of a step, and the head of these (-1: no tuples)."""
    tasks, keys = trace.tasks, trace.keys
    in_tuples = np.array([kind >= TUPLE for kind, _ in keys.heads], dtype=bool)
    pairs = pd.DataFrame(
        {"function": tasks["function"].cat.codes.to_numpy(), "key": tasks["key_id"].to_numpy()}
    ).drop_duplicates()
    heads = keys.head_ids[pairs["key"].to_numpy()]
    pairs["head"] = np.where(in_tuples[heads], heads, -1) if len(heads) else heads
    counts = pairs.groupby(["function", "head"]).size().reset_index(name="keys")
    counts = counts.sort_values("keys", kind="stable").drop_duplicates("function", keep="last")
    width = np.zeros(len(tasks["function"].cat.categories), dtype=np.int64)
    widest = np.full(len(width), -1, dtype=np.int64)
    width[counts["function"]], widest[counts["function"]] = counts["keys"], counts["head"]
    return width, widest


def _steps(trace: Run, runs: pd.DataFrame) -> Groups:
    """Return the runs by the step of the graph that they belong to."""
    keys = trace.keys
    in_tuples = np.array([kind >= TUPLE for kind, _ in keys.heads], dtype=bool)
    heads = keys.head_ids[runs["key_id"].to_numpy()].astype(np.int64)
    function = runs["function"].cat.codes.to_numpy(dtype=np.int64)
    alone = len(keys.heads) + function if len(heads) else function
    steps = np.where(in_tuples[heads], heads, alone) if len(heads) else alone
    return Groups(steps, len(keys.heads) + len(runs["function"].cat.categories))


def _powers(groups: Groups, steps: Groups, size: Array, seconds: Array) -> Array:
    """Fit the power of size by which the seconds of each function grow within a step."""
    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = np.log(size), np.log(seconds)
    known = np.isfinite(x) & np.isfinite(y)
    x, y = np.where(known, x, np.nan), np.where(known, y, np.nan)
    x, y = x - steps.mean(x)[steps.codes], y - steps.mean(y)[steps.codes]
    apart = groups.max(x) - groups.min(x) >= np.log(_UNLIKE)
    both, of_x, of_y = groups.sum(x * y), groups.sum(x * x), groups.sum(y * y)
    correlation = ratio(both, np.sqrt(of_x * of_y))
    told = apart & (groups.known(x) >= _FEWEST) & (correlation >= _CORRELATION)
    return np.where(told, ratio(both, of_x), np.nan)


def _are_arrays(runs: pd.DataFrame) -> Array:
    """Return which runs have arrays as results."""
    types = runs["type"].cat
    # The last is that of no type, whose code is -1.
    arrays = [str(name).endswith("ndarray") for name in types.categories] + [False]
    return np.array(arrays, dtype=bool)[types.codes.to_numpy()]


def _usual_shapes(groups: Groups, codes: Array, shapes: Array) -> list[tuple[int, ...] | None]:
    """Return the shape that most runs of each group have; None where no run has any."""
    usual: list[tuple[int, ...] | None] = []
    for rows in np.split(codes[groups.order], groups.begins[1:-1])[: groups.count]:
        counts = np.bincount(rows[rows >= 0])
        usual.append(shapes[int(counts.argmax())] if len(counts) else None)
    return usual


def _in_blocks(
    trace: Run, shape: tuple[int, ...] | None, head: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return a shape, and how many blocks keys of a head number in each direction."""
    if shape is None or head < 0:
        return None
    if trace.keys.heads[head][0] - TUPLE != len(shape):  # the key does not number its blocks
        return None
    tails = trace.keys.tails[trace.keys.head_ids == head][:, : len(shape)]
    return shape, tuple((tails.max(axis=0) + 1).tolist())
