"""`BuiltLayer`: a layer of a collection's graph, with the bytes of its chunks if Dask knows them.

Arrays know their chunks and dtypes. For dataframes, the numbers of rows and the bytes come from
`from_pandas` and from the footers of Parquet files. Elementwise operations keep the number of rows.
Nothing is computed, and no data is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from math import nan, prod
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.built_lines import is_expression
from dasfprof.recording.dask_internals.graph_values import values_in

#: Maximum number of files of which the footers are read, and maximum number of values of a text
#: column that are sampled.
MOST_FILES, _SAMPLE = 1000, 1000
#: Starts of the names that files give to an index without a name.
_UNNAMED = ("__index_level_", "__null_dask_index__")
#: Functions that create arrays in which each chunk repeats one value. The value is in memory once.
_REPEATED = ("ones_like", "zeros_like", "full_like", "empty_like")
#: Reductions with partial results that are arrays of the result's type. Partial results of other
#: reductions are dicts of arrays.
_PLAIN = {
    *("sum", "prod", "min", "max", "any", "all", "chunk_min", "chunk_max"),
    *("nansum", "nanprod", "nanmin", "nanmax"),
}
#: Dataframe expressions: those with at most as many rows in the result as in the input, those with
#: at most as many bytes in the result as in the input, and those that do not change text columns.
_FEWER_ROWS = {"Filter", "BlockwiseHead", "BlockwiseTail", "DropnaFrame"}
_SMALLER = {"TreeReduce", "Head", "Tail", "Projection"}
_SAME_TEXT = {"Projection", "Assign", *_FEWER_ROWS}


@dataclass(frozen=True)
class BuiltLayer:
    """A layer that the program built, or an expression that Dask rewrote."""

    name: str
    #: The layer object of a `HighLevelGraph`, or the expression; and the names of its input layers.
    source: Any
    inputs: tuple[str, ...]
    #: Number of chunks or partitions, or None if unknown.
    chunks: int | None = None
    tasks: int = 0
    #: Bytes of each chunk, or None if unknown. If only upper bounds of the bytes are known, `most`
    #: has the bounds.
    grid: np.ndarray | None = None
    most: np.ndarray | None = None
    #: Whether a result has at most as many bytes as its inputs.
    shrinks: bool = False
    #: The reason why `grid` is unknown, if it is.
    reason: str = "only arrays and dataframes know the sizes of their results"
    #: The lengths of an array's chunks in each dimension. None for other collections.
    lengths: tuple[tuple[int, ...], ...] | None = None

    @property
    def function(self) -> str:
        """Return the name of the layer without its token."""
        return str(key_split(self.name))

    @property
    def largest(self) -> float:
        """Return the bytes of the largest chunk, or NaN if unknown."""
        return nan if self.grid is None else float(self.grid.max(initial=0.0))

    def values(self) -> Iterator[tuple[Any, int]]:
        """Yield the values in the layer, each with its number of uses.

        If the layer has many values, only evenly spaced values are yielded. Their numbers of uses
        include the values that were skipped.
        """
        source = self.source
        if is_expression(source):  # A list contains fused expressions, which are separate layers.
            source = [
                x for x in source.operands if not isinstance(x, list) and not is_expression(x)
            ]
        elif hasattr(source, "mapping"):
            source = dict(source.mapping)
        yield from ((value, times) for _, value, times in values_in(source, self.tasks))


def built_layers(sources: Iterable[Any]) -> dict[str, BuiltLayer]:
    """Return the layers of graphs and expressions as a dict by name."""
    layers: dict[str, BuiltLayer] = {}
    frames: dict[str, _Rows | None] = {}
    for source in _graphs_and_expressions(sources):
        if is_expression(source):
            layers.setdefault(source._name, _of_expression(source, frames))
            continue
        for name, layer in source.layers.items():
            if type(name) is str and name not in layers:
                layers[name] = _of_layer(BuiltLayer(name, layer, tuple(source.dependencies[name])))
    for layer in list(layers.values()):
        if layer.function.endswith(("-partial", "-aggregate")):
            _correct_parts(layer, layers)
    return layers


def _graphs_and_expressions(sources: Iterable[Any]) -> Iterator[Any]:
    """Yield the graphs and the expressions in `sources`, without duplicates.

    Expressions within other expressions are included. Expressions without partitions are not
    yielded.
    """
    waiting, seen, graph = list(sources), set(), names.GRAPH.find("HighLevelGraph")
    for part in waiting:
        if id(part) not in seen:
            seen.add(id(part))
            if is_expression(part):
                waiting += part.operands
            elif isinstance(part, list | tuple) and len(part) < MOST_FILES:
                waiting += [item for item in part if is_expression(item)]
            if (is_expression(part) and hasattr(part, "npartitions")) or isinstance(part, graph):
                yield part


def _of_layer(layer: BuiltLayer) -> BuiltLayer:
    source = layer.source
    about = getattr(source, "collection_annotations", None) or {}
    tasks = len(source) if source.is_materialized() else 0
    if "chunks" not in about:
        return replace(layer, tasks=tasks)
    layer = _of_array(layer, about["chunks"], about.get("dtype"))
    if layer.function in _REPEATED and layer.grid is not None:
        layer = replace(layer, grid=np.full(layer.grid.shape, about["dtype"].itemsize))
    if layer.function == "broadcast_to":
        why = "its chunks may be views that repeat values"
        layer = replace(layer, grid=None, shrinks=True, reason=why)
    return replace(layer, tasks=tasks or layer.tasks)


def _of_array(layer: BuiltLayer, lengths: Any, dtype: Any) -> BuiltLayer:
    """Return a layer with the bytes of an array's chunks, or with the reason why they are unknown.

    `lengths` has, for each axis, the lengths of the chunks.
    """
    chunks = prod(len(axis) for axis in lengths)
    layer = replace(layer, chunks=chunks, tasks=chunks, lengths=lengths)
    if dtype is None or dtype.hasobject:
        return replace(layer, reason="its values are Python objects")
    axes = [np.array(axis, dtype=float) for axis in lengths]
    if any(np.isnan(axis).any() for axis in axes):
        return replace(layer, shrinks=True, reason="Dask does not know the lengths of its chunks")
    return replace(layer, grid=reduce(np.multiply.outer, axes, np.array(1.0)) * dtype.itemsize)


def _correct_parts(layer: BuiltLayer, layers: dict[str, BuiltLayer]) -> None:
    """Correct the sizes of a reduction's partial results in `layers`, a dict by name.

    `layer` is a layer of the reduction.
    """
    # Dask stores wrong sizes for the partial results: those of the reduction's input.
    is_plain = layer.function.rpartition("-")[0] in _PLAIN
    why = "the parts of this reduction have no known size"
    if layer.function.endswith("-partial") and not is_plain:
        layers[layer.name] = replace(layer, grid=None, shrinks=True, reason=why)
    for name in layer.inputs:
        part = layers.get(name)
        if part is None or part.lengths is None or part.function.endswith("-partial"):
            continue
        shape = [len(axis) for axis in part.lengths]
        if is_plain and layer.grid is not None and layer.grid.size:
            layers[name] = replace(part, grid=np.full(shape, layer.grid.mean()))
            continue
        # Dask may create the input of the reduction in the same task.
        grids = [layers[other].grid for other in part.inputs if other in layers]
        known = [grid for grid in grids if grid is not None and list(grid.shape) == shape]
        most = np.sum(known, axis=0) if grids and len(known) == len(grids) else None
        layers[name] = replace(part, grid=None, most=most, shrinks=True, reason=why)


@dataclass(frozen=True)
class _Rows:
    """The number of rows of each partition of a dataframe, and the bytes per row."""

    rows: np.ndarray
    #: Bytes per row of each text column, by the column's name. NaN if unknown.
    widths: dict[Any, float]
    #: Bytes per row of the index.
    index: int
    #: Whether the numbers of rows are upper bounds.
    are_bounds: bool = False


def _of_expression(part: Any, known: dict[str, _Rows | None]) -> BuiltLayer:
    layer = BuiltLayer(part._name, part, tuple(x._name for x in part.operands if is_expression(x)))
    try:
        if isinstance(getattr(part, "chunks", None), tuple):
            return _of_array(layer, part.chunks, part.dtype)
        layer = replace(layer, chunks=part.npartitions, tasks=part.npartitions)
        return _of_frame(layer, part, _rows(part, known))
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        # The expression is not lowered, or it is an expression of another version of Dask.
        return replace(layer, reason=f"Dask does not know its partitions: {error!r:.200}")


def _of_frame(layer: BuiltLayer, part: Any, rows: _Rows | None) -> BuiltLayer:
    if rows is None:
        is_chunk = type(part).__name__.endswith("Chunk")
        shrinks = is_chunk or bool(_kinds(part) & (_SMALLER | _FEWER_ROWS))
        return replace(layer, shrinks=shrinks, reason="the number of its rows is unknown")
    text = [name for name, dtype in _columns(part) if not _is_fixed(dtype)]
    unknown = [name for name in text if not rows.widths.get(name, nan) >= 0]
    if unknown:
        return replace(layer, reason=f"the bytes of text are unknown in column {unknown[0]!r}")
    width = sum(dtype.itemsize for _, dtype in _columns(part) if _is_fixed(dtype))
    grid = rows.rows * (rows.index + width + sum(rows.widths[name] for name in text))
    if rows.are_bounds:
        return replace(layer, most=grid, reason="the number of its rows depends on values")
    return replace(layer, grid=grid)


def _kinds(part: Any) -> set[str]:
    return {kind.__name__ for kind in type(part).__mro__}


def _columns(part: Any) -> list[tuple[Any, Any]]:
    meta = part._meta
    return [(meta.name, meta.dtype)] if meta.ndim == 1 else list(meta.dtypes.items())


def _is_fixed(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and not dtype.hasobject


def rows_of(part: Any) -> np.ndarray | None:
    """Return the number of rows of each partition of an expression, or None if unknown."""
    rows = _rows(part, {})
    return None if rows is None or rows.are_bounds else rows.rows


def _rows(part: Any, known: dict[str, _Rows | None]) -> _Rows | None:
    if part._name not in known:
        known[part._name] = _rows_of(part, known)
    return known[part._name]


def _rows_of(part: Any, known: dict[str, _Rows | None]) -> _Rows | None:
    kind, kinds = type(part).__name__, _kinds(part)
    if kind == "FromPandas":
        return _of_pandas(part)
    if "ReadParquet" in kinds:
        return _of_footers(part)
    if "FusedIO" in kinds:
        read = part.operand("_expr")
        inner = _rows(read, known)
        index = {number: position for position, number in enumerate(read._partitions)}
        buckets = [[index[number] for number in bucket] for bucket in part._fusion_buckets]
        return inner and replace(inner, rows=np.array([inner.rows[x].sum() for x in buckets]))
    if kind == "Fused":
        return _rows(part.operand("exprs")[0], known)
    if not kinds & {"Elemwise", *_FEWER_ROWS}:
        return None
    inputs = [_rows(item, known) for item in part.operands if is_expression(item)]
    first = inputs[0] if inputs else None
    if first is None or any(x is None or len(x.rows) != part.npartitions for x in inputs):
        return None
    assigned = set(part.operands[1::2]) if kind == "Assign" else set()
    widths = first.widths if kinds & _SAME_TEXT else {}
    widths = {name: width for name, width in widths.items() if name not in assigned}
    are_bounds = bool(kinds & _FEWER_ROWS) or any(x and x.are_bounds for x in inputs)
    return replace(first, widths=widths, are_bounds=are_bounds)


def _of_pandas(part: Any) -> _Rows:
    frame, widths = part.frame._data, {}
    for name, dtype in _columns(part):
        if not _is_fixed(dtype) and len(frame):
            column = frame if frame.ndim == 1 else frame[name]
            values = column.iloc[:: max(len(column) // _SAMPLE, 1)]
            # Arrow stores the bytes of each text, and 8 bytes for its offset.
            is_text = all(isinstance(value, str) for value in values)
            widths[name] = float(np.mean([len(x.encode()) + 8 for x in values])) if is_text else nan
    return _Rows(np.array(part._get_lengths(), dtype=float), widths, _index_width(part))


def _index_width(part: Any) -> int:
    return 0 if type(part._meta.index).__name__ == "RangeIndex" else 8


def _of_footers(part: Any) -> _Rows | None:
    groups = row_groups(part)
    if groups is None:
        return None
    rows = np.array([sum(x.num_rows for x in partition) for partition in groups], dtype=float)
    sums: dict[str, float] = {}
    for group in chain.from_iterable(groups):
        for column in map(group.column, range(group.num_columns)):
            # A dictionary contains each value once, so the bytes of the column in memory are
            # unknown.
            is_plain = not any("DICTIONARY" in encoding for encoding in column.encodings)
            size = column.total_uncompressed_size + 4 * group.num_rows if is_plain else nan
            sums[column.path_in_schema] = sums.get(column.path_in_schema, 0.0) + size
    widths = {name: size / max(rows.sum(), 1.0) for name, size in sums.items()}
    # If the index has no name, it is in the files, but not in Dask's metadata.
    index = 8 if any(name.startswith(_UNNAMED) for name in widths) else _index_width(part)
    return _Rows(rows, widths, index, bool(part.operand("filters")))


def row_groups(part: Any) -> list[list[Any]] | None:
    """Return the row groups' metadata for each partition of a Parquet read, or None if unknown."""
    import pyarrow.parquet as pq

    try:
        partitions = list(part._partitions)
        if len(partitions) > MOST_FILES:
            return None
        if hasattr(part, "fragments"):
            footers = [part.fragments[number] for number in partitions]
            return [[x.metadata.row_group(group.id) for group in x.row_groups] for x in footers]
        groups = []
        for number in partitions:
            path, numbers, _ = part._plan["parts"][number]["piece"]
            with part._dataset_info["fs"].open(path, "rb") as file:
                footer = pq.read_metadata(file)
            is_all = numbers in (None, [None])
            selected = range(footer.num_row_groups) if is_all else numbers
            groups.append([footer.row_group(group) for group in selected])
        return groups
    except Exception:  # Dask has another version, or the file system does not answer.
        return None
