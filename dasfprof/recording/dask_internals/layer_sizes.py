"""`BuiltLayer`: a layer of a collection's graph with the bytes of its chunks, as far as Dask knows.

Arrays know their chunks and types. Of dataframes, `from_pandas` and the footers of Parquet files
show rows and bytes, which stay the same in operations on single rows. Nothing is computed, and no
data is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from math import nan, prod
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.graph_values import values_in

#: The most files whose footers are read, and values of a column of text that are looked at.
MOST_FILES, _SAMPLE = 1000, 1000
#: The beginnings of the names that indexes without a name have in files.
_UNNAMED = ("__index_level_", "__null_dask_index__")
#: Layers of arrays whose chunks repeat one value that is in memory once.
_REPEATED = ("ones_like", "zeros_like", "full_like", "empty_like")
#: Reductions whose parts are arrays of the result's type; parts of others are dicts of arrays.
_PLAIN = {
    *("sum", "prod", "min", "max", "any", "all", "chunk_min", "chunk_max"),
    *("nansum", "nanprod", "nanmin", "nanmax"),
}
#: Expressions of dataframes whose results have at most the rows of what they take, those whose
#: results are at most as large, and those that leave columns of text as they are.
_FEWER_ROWS = {"Filter", "BlockwiseHead", "BlockwiseTail", "DropnaFrame"}
_SMALLER = {"TreeReduce", "Head", "Tail", "Projection"}
_SAME_TEXT = {"Projection", "Assign", *_FEWER_ROWS}


@dataclass(frozen=True)
class BuiltLayer:
    """A layer as the program built it, or an expression as Dask rewrote it."""

    name: str
    #: The layer of a `HighLevelGraph`, or the expression; and the names of layers that it takes.
    source: Any
    inputs: tuple[str, ...]
    #: How many chunks or partitions it has; None: unknown.
    chunks: int | None = None
    tasks: int = 0
    #: Bytes by block, or else upper bounds of them; None: unknown.
    grid: np.ndarray | None = None
    most: np.ndarray | None = None
    #: Whether results have at most the bytes of what they are made of.
    shrinks: bool = False
    #: Why `grid` is unknown.
    reason: str = "only arrays and dataframes know the sizes of their results"
    #: Of an array, the lengths of its chunks in each dimension.
    lengths: tuple[tuple[int, ...], ...] | None = None

    @property
    def function(self) -> str:
        """Return the name without its token."""
        return str(key_split(self.name))

    @property
    def largest(self) -> float:
        """Return the bytes of the largest chunk; NaN: unknown."""
        return nan if self.grid is None else float(self.grid.max(initial=0.0))

    def values(self) -> Iterator[tuple[Any, int]]:
        """Yield values in the layer, and how often each is there; of many, only some."""
        source = self.source
        if _is_part(source):  # what is fused has expressions in lists, layers of their own
            given = [item for item in source.operands if not isinstance(item, list)]
            source = [item for item in given if not _is_part(item)]
        elif hasattr(source, "mapping"):
            source = dict(source.mapping)
        yield from ((value, times) for _, value, times in values_in(source, self.tasks))


def built_layers(sources: Iterable[Any]) -> dict[str, BuiltLayer]:
    """Return the layers of graphs and expressions, by name."""
    found: dict[str, BuiltLayer] = {}
    frames: dict[str, _Rows | None] = {}
    for source in _graphs_and_expressions(sources):
        if _is_part(source):
            found.setdefault(source._name, _of_expression(source, frames))
            continue
        for name, layer in source.layers.items():
            if type(name) is str and name not in found:
                found[name] = _of_layer(BuiltLayer(name, layer, tuple(source.dependencies[name])))
    for layer in list(found.values()):
        if layer.function.endswith(("-partial", "-aggregate")):
            _set_parts_right(layer, found)
    return found


def _graphs_and_expressions(sources: Iterable[Any]) -> Iterator[Any]:
    """Yield the graphs of layers and the expressions in expressions, each once."""
    waiting, seen, graph = list(sources), set(), names.GRAPH.find("HighLevelGraph")
    for part in waiting:
        if id(part) not in seen:
            seen.add(id(part))
            if _is_part(part):
                waiting += part.operands
            elif isinstance(part, list | tuple) and len(part) < MOST_FILES:
                waiting += [item for item in part if _is_part(item)]
            if (_is_part(part) and hasattr(part, "npartitions")) or isinstance(part, graph):
                yield part


def _is_part(value: Any) -> bool:
    """Return whether a value is an expression; a delayed function has each attribute."""
    return hasattr(type(value), "_parameters")


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
    """Return a layer with the bytes of an array's chunks."""
    chunks = prod(len(axis) for axis in lengths)
    layer = replace(layer, chunks=chunks, tasks=chunks, lengths=lengths)
    if dtype is None or dtype.hasobject:
        return replace(layer, reason="its values are Python objects")
    axes = [np.array(axis, dtype=float) for axis in lengths]
    if any(np.isnan(axis).any() for axis in axes):
        return replace(layer, shrinks=True, reason="Dask does not know the lengths of its chunks")
    return replace(layer, grid=reduce(np.multiply.outer, axes, np.array(1.0)) * dtype.itemsize)


def _set_parts_right(layer: BuiltLayer, layers: dict[str, BuiltLayer]) -> None:
    """Set right the parts of a reduction: Dask notes them with the chunks of what is reduced."""
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
        # Dask may make what is reduced in the same task.
        grids = [layers[other].grid for other in part.inputs if other in layers]
        known = [grid for grid in grids if grid is not None and list(grid.shape) == shape]
        most = np.sum(known, axis=0) if grids and len(known) == len(grids) else None
        layers[name] = replace(part, grid=None, most=most, shrinks=True, reason=why)


# --- Dataframes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """The rows of each partition, and the bytes of a row in each column of text; NaN: unknown."""

    rows: np.ndarray
    widths: dict[Any, float]
    #: Bytes of a row in the index.
    index: int
    #: Whether there may be fewer rows.
    are_most: bool = False


def _of_expression(part: Any, known: dict[str, _Rows | None]) -> BuiltLayer:
    layer = BuiltLayer(part._name, part, tuple(x._name for x in part.operands if _is_part(x)))
    try:
        if isinstance(getattr(part, "chunks", None), tuple):
            return _of_array(layer, part.chunks, part.dtype)
        layer = replace(layer, chunks=part.npartitions, tasks=part.npartitions)
        return _of_frame(layer, part, _rows(part, known))
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        # It is not lowered, or of another version of Dask.
        return replace(layer, reason=f"Dask does not know its partitions: {error!r:.200}")


def _of_frame(layer: BuiltLayer, part: Any, rows: _Rows | None) -> BuiltLayer:
    if rows is None:
        shrinks = (
            bool(_kinds(part) & (_SMALLER | _FEWER_ROWS)) or type(part).__name__[-5:] == "Chunk"
        )
        return replace(layer, shrinks=shrinks, reason="the number of its rows is unknown")
    text = [name for name, dtype in _columns(part) if not _is_fixed(dtype)]
    unknown = [name for name in text if not rows.widths.get(name, nan) >= 0]
    if unknown:
        return replace(layer, reason=f"nothing shows the bytes of text in column {unknown[0]!r}")
    width = sum(dtype.itemsize for _, dtype in _columns(part) if _is_fixed(dtype))
    grid = rows.rows * (rows.index + width + sum(rows.widths[name] for name in text))
    if rows.are_most:
        return replace(layer, most=grid, reason="the number of its rows depends on values")
    return replace(layer, grid=grid)


def _kinds(part: Any) -> set[str]:
    return {kind.__name__ for kind in type(part).__mro__}


def _columns(part: Any) -> list[tuple[Any, Any]]:
    meta = part._meta
    return [(meta.name, meta.dtype)] if meta.ndim == 1 else list(meta.dtypes.items())


def _is_fixed(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and not dtype.hasobject


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
        places = {number: place for place, number in enumerate(read._partitions)}
        buckets = [[places[number] for number in bucket] for bucket in part._fusion_buckets]
        return inner and replace(inner, rows=np.array([inner.rows[own].sum() for own in buckets]))
    if kind == "Fused":
        return _rows(part.operand("exprs")[0], known)
    if not kinds & {"Elemwise", *_FEWER_ROWS}:
        return None
    taken = [_rows(item, known) for item in part.operands if _is_part(item)]
    first = taken[0] if taken else None
    if first is None or any(x is None or len(x.rows) != part.npartitions for x in taken):
        return None
    assigned = set(part.operands[1::2]) if kind == "Assign" else set()
    widths = first.widths if kinds & _SAME_TEXT else {}
    widths = {name: width for name, width in widths.items() if name not in assigned}
    are_most = bool(kinds & _FEWER_ROWS) or any(x is not None and x.are_most for x in taken)
    return replace(first, widths=widths, are_most=are_most)


def _of_pandas(part: Any) -> _Rows:
    frame, widths = part.frame._data, {}
    for name, dtype in _columns(part):
        if not _is_fixed(dtype) and len(frame):
            column = frame if frame.ndim == 1 else frame[name]
            values = column.iloc[:: max(len(column) // _SAMPLE, 1)]
            # As Arrow has text: its bytes, and where it begins.
            is_text = all(isinstance(value, str) for value in values)
            widths[name] = float(np.mean([len(x.encode()) + 8 for x in values])) if is_text else nan
    return _Rows(np.array(part._get_lengths(), dtype=float), widths, _index_width(part))


def _index_width(part: Any) -> int:
    return 0 if type(part._meta.index).__name__ == "RangeIndex" else 8


def _of_footers(part: Any) -> _Rows | None:
    groups = row_groups(part)
    if groups is None:
        return None
    rows = np.array([sum(group.num_rows for group in own) for own in groups], dtype=float)
    sums: dict[str, float] = {}
    for group in (group for own in groups for group in own):
        for column in map(group.column, range(group.num_columns)):
            # A dictionary has each value once.
            is_plain = not any("DICTIONARY" in encoding for encoding in column.encodings)
            size = column.total_uncompressed_size + 4 * group.num_rows if is_plain else nan
            sums[column.path_in_schema] = sums.get(column.path_in_schema, 0.0) + size
    widths = {name: size / max(rows.sum(), 1.0) for name, size in sums.items()}
    # An index without a name is in the files, and not in what Dask says of them.
    index = 8 if any(name.startswith(_UNNAMED) for name in widths) else _index_width(part)
    return _Rows(rows, widths, index, bool(part.operand("filters")))


def row_groups(part: Any) -> list[list[Any]] | None:
    """Return the metadata of the row groups that each partition of a Parquet read has.

    None if there are too many files, or this version of Dask does not say which they are.
    """
    import pyarrow.parquet as pq

    try:
        partitions = list(part._partitions)
        if len(partitions) > MOST_FILES:
            return None
        if hasattr(part, "fragments"):
            footers = [part.fragments[number] for number in partitions]
            return [[x.metadata.row_group(own.id) for own in x.row_groups] for x in footers]
        found = []
        for number in partitions:
            path, wanted, _ = part._plan["parts"][number]["piece"]
            with part._dataset_info["fs"].open(path, "rb") as file:
                footer = pq.read_metadata(file)
            own = range(footer.num_row_groups) if wanted in (None, [None]) else wanted
            found.append([footer.row_group(group) for group in own])
        return found
    except Exception:  # another version of Dask, or a file system that does not answer
        return None
