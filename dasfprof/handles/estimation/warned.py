"""`find_warnings`: warnings about operations that will be expensive, each with its source line.

Each rule uses only the graph. If a figure that it needs is unknown, the rule gives no warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

from dasfprof.handles.estimation.facts import LayerFacts, line_of_layer, line_text
from dasfprof.recording.dask_internals.graph_values import LEAST, size_of_value
from dasfprof.recording.dask_internals.layer_sizes import BuiltLayer
from dasfprof.recording.dask_internals.merges import product_merges
from dasfprof.recording.dask_internals.parquet_reads import late_selections, skippable_reads
from dasfprof.recording.dask_internals.sent_graphs import SentGraph, repeated_calls
from dasfprof.text import format_size

#: Threshold: factor by which an operation multiplies chunks, tasks or bytes. Minimum number of
#: tasks for which this matters, minimum bytes of a large chunk, and maximum bytes of a tiny chunk,
#: which costs more to schedule than to compute.
_MULTIPLIES, _MANY, _LARGE, _TINY = 10, 1000, 100e6, 1e6
#: Threshold (tasks) of an exchange in which each output chunk needs all input chunks.
_ALL_TO_ALL = 100_000
#: Thresholds (bytes) of one object in the graph, and of all objects of a layer together.
_OBJECT, _OBJECTS = 1e6, 10e6
#: Threshold: how often stored chunks are read on average.
_READ_AGAIN = 1.5
#: Functions that select, reorder or split values but do not compute any.
_MOVES = ("getitem", "reshape", "rechunk", "take", "vindex", "shuffle", "setitem")


class Warned(NamedTuple):
    """A warning about a layer of the graph, with a suggestion and the line that built the layer."""

    severity: str
    finding: str
    suggestion: str
    line: str | None


def find_warnings(
    built: dict[str, BuiltLayer],
    facts: list[LayerFacts],
    sent: SentGraph,
    threads: list[int],
    memory_limit: float | None,
) -> list[Warned]:
    """Return the warnings, most severe first.

    Parameters
    ----------
    built
        Layers as the program built them.
    facts, sent
        Facts about the layers of the graph that Dask would send, and this graph.
    threads, memory_limit
        Threads of each worker, and its memory in bytes, or None if unknown.
    """
    warned = [*_all_to_all(facts), *_parquet(built), *_merges(built), *_repeated(sent)]
    if memory_limit is not None:
        warned += _large_chunks(facts, memory_limit / max(threads))
    for layer in built.values():
        warned += [*_multiplied(layer, built), *_objects(layer), *_stored_chunks(layer, built)]
    return sorted(
        dict.fromkeys(warned), key=lambda warning: ("high", "medium", "low").index(warning[0])
    )


def _large_chunks(facts: list[LayerFacts], most: float) -> Iterator[Warned]:
    """Yield warnings about chunks of more than `most` bytes, a thread's share of the memory.

    A layer is left out if one of its inputs has such chunks.
    """
    for fact in facts:
        if fact.most > most and not any(facts[number].most > most for number in fact.takes):
            yield Warned(
                "high",
                f"A chunk of {fact.made_by!r} has {format_size(fact.most)}, and each thread of a "
                f"worker has {format_size(most)} of memory.",
                "Use smaller chunks, for example with x.rechunk(...), or fewer threads per worker.",
                fact.made_at,
            )


def _multiplied(layer: BuiltLayer, built: dict[str, BuiltLayer]) -> Iterator[Warned]:
    """Yield a warning if a layer has far more chunks or tasks than its inputs, or larger chunks."""
    is_rechunk, line = layer.function.startswith("rechunk"), line_of_layer(layer.name)
    inputs = [built[name] for name in layer.inputs if name in built]
    while is_rechunk and len(inputs) == 1 and inputs[0].function.startswith("rechunk"):
        inputs = [built[name] for name in inputs[0].inputs if name in built]  # Skip its steps.
    before = max((other.chunks or 0 for other in inputs), default=0)
    if not before or layer.chunks is None:
        return
    if layer.function.startswith(_MOVES) and layer.tasks >= _MANY:
        is_tiny = layer.grid is not None and float(layer.grid.mean()) < _TINY
        if layer.chunks > _MULTIPLIES * before and (is_tiny or not is_rechunk):
            yield Warned(
                "medium",
                f"{layer.function!r} makes {layer.chunks:,} chunks of {before:,}.",
                "Sort or group the index first, or choose chunks that fit this operation.",
                line,
            )
        elif layer.tasks > _MULTIPLIES * max(before, layer.chunks):
            yield Warned(
                "medium",
                f"{layer.function!r} needs {layer.tasks:,} tasks for {layer.chunks:,} chunks.",
                "Choose chunks of the input that match those of the result in more dimensions.",
                line,
            )
    values = [
        prod(map(max, other.lengths))
        for other in (layer, *inputs)
        if other.lengths and other.chunks
    ]
    growth = values[0] / max(values[1:]) if len(values) == len(inputs) + 1 and all(values) else 0.0
    if growth > _MULTIPLIES and not is_rechunk and layer.largest > _LARGE:
        yield Warned(
            "high",
            f"{layer.function!r} makes chunks of up to {format_size(layer.largest)}, with "
            f"{growth:,.0f} times as many values as the chunks of its inputs.",
            "Use smaller chunks of the inputs, in the dimensions that grow.",
            line,
        )


def _all_to_all(facts: list[LayerFacts]) -> Iterator[Warned]:
    """Yield warnings about operations that need very many tasks.

    In these operations, every output chunk depends on every input chunk.
    """
    exchanges: dict[str, list[int]] = {}
    for number, fact in enumerate(facts):
        if "rechunk" in fact.function or "shuffle" in fact.function:
            exchanges.setdefault((fact.name or "").rpartition("-")[2], []).append(number)
    for numbers in exchanges.values():
        tasks = sum(facts[number].tasks for number in numbers)
        if tasks > _ALL_TO_ALL:
            function = facts[numbers[0]].function
            takers = [fact for fact in facts if set(fact.takes) & set(numbers)]
            places = [fact.place for fact in (*map(facts.__getitem__, numbers), *takers)]
            option = {"rechunk": "array.rechunk", "taskshuffle": "dataframe.shuffle"}
            p2p = next((option[kind] for kind in option if kind in function), None)
            cluster = (
                p2p
                and f'On a cluster, use dask.config.set({{"{p2p}.method": "p2p"}}). Otherwise, use'
            )
            yield Warned(
                "high",
                f"{function!r} needs {tasks:,} tasks, in which every output chunk depends on every "
                "input chunk.",
                f"{cluster or 'Use'} fewer and larger chunks.",
                line_text(next((place for place in places if place is not None), None)),
            )


def _objects(layer: BuiltLayer) -> Iterator[Warned]:
    """Yield a warning about large objects that a layer embeds in the graph."""
    values = ((size_of_value(value), times, value) for value, times in layer.values())
    sizes = [entry for entry in values if entry[0] >= LEAST]
    largest, _, value = max(sizes, key=lambda entry: entry[0], default=(0, 0, None))
    total = sum(size * times for size, times, _ in sizes)
    if largest >= _OBJECT or total >= _OBJECTS:
        yield Warned(
            "medium" if total >= _OBJECTS else "low",
            f"{layer.function!r} embeds {format_size(total)} of objects of type "
            f"{type(value).__name__} in the graph, which is sent to the scheduler.",
            "Load the data in tasks, for example from a file, or use client.scatter(...).",
            line_of_layer(layer.name),
        )


def _stored_chunks(layer: BuiltLayer, built: dict[str, BuiltLayer]) -> Iterator[Warned]:
    """Yield a warning if a layer's chunks do not align with the chunks of a stored array."""
    if layer.lengths is None or not all(sum(axis) > 0 for axis in layer.lengths):
        return
    arrays = [layer, *(built[name] for name in layer.inputs if name in built)]
    sources = [source for source in arrays if source is layer or source.chunks is None]
    shape = tuple(sum(axis) for axis in layer.lengths)
    for value in (value for source in sources for value, _ in source.values()):
        stored = _chunks_of(value, shape)
        if stored is None:
            continue
        axes = list(zip(layer.lengths, stored, strict=True))
        read = prod(sum(_touched(lengths, size)) for lengths, size in axes)
        there = prod(-(-sum(lengths) // size) for lengths, size in axes)
        # If chunks do not align, stored chunks are read several times.
        if read > _READ_AGAIN * there:
            chunks = tuple(int(max(axis)) for axis in layer.lengths)
            yield Warned(
                "medium",
                f"{layer.function!r} reads {read:,} times from {there:,} stored chunks: its chunks "
                f"{chunks} do not align with the stored {stored}.",
                f"Use multiples of {stored} as chunks.",
                line_of_layer(layer.name),
            )
        return


def _touched(lengths: tuple[int, ...], size: int) -> Iterator[int]:
    """Yield, for each chunk along an axis, the number of stored chunks that must be read for it.

    `lengths` has the lengths of the chunks. `size` is the length of a stored chunk.
    """
    for length, end in zip(lengths, accumulate(lengths), strict=True):
        yield -(-int(end) // size) - int(end - length) // size


def _chunks_of(value: Any, shape: tuple[float, ...]) -> tuple[int, ...] | None:
    """Return the shape of the chunks of a stored array.

    Return None if `value` is not a stored array with chunks, or if its shape is not `shape`.
    """
    while type(value).__module__.startswith("xarray."):  # Skip layers that index the array.
        value = getattr(value, "array", getattr(value, "_array", None))
    chunks = getattr(value, "chunks", None)
    if not isinstance(chunks, tuple) or getattr(value, "shape", None) != shape:
        return None
    sizes = [size for size in chunks if hasattr(size, "__index__") and size > 0]
    return tuple(map(int, sizes)) if len(sizes) == len(shape) else None


def _parquet(built: dict[str, BuiltLayer]) -> Iterator[Warned]:
    """Yield warnings about data that read_parquet could skip with a filter or selected columns."""
    for name, filters, skipped, groups in skippable_reads(x.source for x in built.values()):
        yield Warned(
            "medium",
            f"A filter right after read_parquet needs {groups - skipped:,} of {groups:,} row "
            "groups, but all of them are read.",
            f"Use dd.read_parquet(..., filters={filters!r}).",
            line_of_layer(name),
        )
    for name, used, columns in late_selections(x.source for x in built.values()):
        yield Warned(
            "medium",
            f"All {columns} columns are read by read_parquet, and later layers use {len(used)}.",
            f"Use dd.read_parquet(..., columns={used!r}).",
            line_of_layer(name),
        )


def _merges(built: dict[str, BuiltLayer]) -> Iterator[Warned]:
    """Yield warnings about merges in which many rows of both dataframes may have the same key."""
    for name, left, right, keys in product_merges(layer.source for layer in built.values()):
        yield Warned(
            "high",
            f"A merge of {left:,.0f} and {right:,.0f} rows has at most {keys:,.0f} different keys. "
            f"If they are evenly distributed, it makes {left * right / keys:,.0f} rows.",
            "Merge on more columns, or aggregate the rows of one of the dataframes by key first.",
            line_of_layer(name),
        )


def _repeated(sent: SentGraph) -> Iterator[Warned]:
    """Yield warnings about delayed functions that several lines call with the same arguments."""
    for function, keys in repeated_calls(sent):
        lines = sorted({line for key in keys if (line := line_of_layer(key)) is not None})
        if len(lines) > 1:
            yield Warned(
                "low",
                f"{function!r} is called with the same arguments at {' and '.join(lines[:5])}, and "
                "each call is computed.",
                "If it always returns the same result, call it once and reuse the result.",
                lines[0],
            )
