"""The tables of a run as files, in CSV that is safe to open in spreadsheets, and in Parquet."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.listed_events import json_value
from dasfprof.database.columns import Array
from dasfprof.errors import MissingExtraError
from dasfprof.report.documents import without_surrogates
from dasfprof.report.formats.parquet_schemas import SCHEMAS, ParquetColumn, TableSchema

if TYPE_CHECKING:
    from dasfprof.analysis import Analyser


#: Characters with which formulas in spreadsheets begin, including full-width characters.
_FORMULA_LEADS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001


def write_csv(frame: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write a complete table with a header row, in UTF-8. An existing file is replaced.

    In cells and labels, text that a spreadsheet would evaluate as a formula gets a leading
    apostrophe. Numbers are not changed. NA is an empty cell. Lone surrogates are written as
    ``\\udcxx``, because UTF-8 cannot encode them. NUL is written as ``\\x00``, because some readers
    take it for the end of the file.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path = Path(path)
    safe = frame.apply(_defused)
    safe.columns = pd.Index([defuse(label) for label in frame.columns], dtype=object)
    safe.to_csv(path, index=False, encoding="utf-8", errors="backslashreplace")
    return path


def defuse(cell: Any) -> Any:
    """Return a cell, with an apostrophe before text that a spreadsheet would take for a formula."""
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\0", "\\x00")
    # Spreadsheets ignore blanks before a formula.
    return "'" + cell if cell.lstrip(" \xa0").startswith(_FORMULA_LEADS) else cell


def _defused(column: pd.Series[Any]) -> pd.Series[Any]:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    # The type that pandas 3 would choose cannot contain lone surrogates.
    return pd.Series([defuse(cell) for cell in column.tolist()], column.index, dtype=object)


def write_tables(analyser: Analyser, directory: Path, title: str) -> None:
    """Write the table of each analysis that needs no arguments.

    Files have the names of the analyser's methods without ``per_``, such as
    ``function_bottleneck.csv``, ``processed_tasks.csv`` and ``node_summary.csv``. Tables with other
    groupings have the grouping in the name, as in ``time_accounting_by_worker.csv``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    from dasfprof.analysis.tables import questions
    from dasfprof.analysis.tables.questions import Request

    for question in questions.all():
        if question.needs_arguments:
            continue
        requests = [Request(question)]
        requests += [Request(question, {"by": by}) for by in question.further_groupings]
        for request in requests:
            write_csv(request.table(analyser), directory / f"{request.file_stem}.csv")


_MICROSECONDS = 1e6
#: Limit: floats with this absolute value, or a larger one, do not fit into an int64.
_LIMIT = float(1 << 63)
_UNITS = {"bytes": "B", "seconds": "s", "time": "UTC"}


def field_of(column: ParquetColumn) -> Any:
    """Return the Arrow field for a column, with the column's name, type, meaning and unit."""
    import pyarrow as pa

    types = {
        "id": pa.int64(),
        "count": pa.int64(),
        "bytes": pa.int64(),
        "seconds": pa.float64(),
        "number": pa.float64(),
        "time": pa.timestamp("us", "UTC"),
        "flag": pa.bool_(),
        "ids": pa.list_(pa.int64()),
    }
    about = {"description": column.about}
    if column.kind in _UNITS:
        about["unit"] = _UNITS[column.kind]
    name = without_surrogates(column.name)
    return pa.field(name, types.get(column.kind, pa.string()), metadata=about)


def as_array(column: pd.Series[Any], kind: str) -> Any:
    """Convert a column to an Arrow array, whose type depends on `kind`. NA becomes null."""
    import pyarrow as pa

    if kind == "text":
        return _texts(column)
    if kind == "flag":
        return pa.array(column, pa.bool_(), from_pandas=True)
    values = column.to_numpy(dtype=float, na_value=np.nan)
    if kind in ("seconds", "number"):
        return pa.array(values, pa.float64(), mask=np.isnan(values))
    if kind == "time":
        numbers = _integers(values * _MICROSECONDS)
        return numbers.cast(pa.timestamp("us", "UTC"))
    return _integers(np.where(values == -1, np.nan, values) if kind == "id" else values)


def as_lists(lengths: Array, ids: Array) -> Any:
    """Return an Arrow array of lists. If the length of a list is -1, the list is null.

    `ids` contains the items of all lists, one list after another.
    """
    import pyarrow as pa

    offsets = np.r_[0, np.cumsum(np.maximum(lengths, 0))].astype(np.int32)
    unknown = pa.array(lengths < 0)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids, pa.int64()), mask=unknown)


def _integers(values: Array) -> Any:
    import pyarrow as pa

    known = np.abs(values) < _LIMIT  # False for NaN
    numbers = np.rint(np.where(known, values, 0.0)).astype(np.int64)
    return pa.array(numbers, pa.int64(), mask=~known)


def _texts(column: pd.Series[Any]) -> Any:
    import pyarrow as pa

    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        names = pa.array([_text(name) for name in column.cat.categories], pa.string())
        return names.take(pa.array(codes, mask=codes < 0))
    # Equal rows share the same object. A dict cannot be hashed, so use the identity of the object.
    values = column.tolist()
    codes, distinct = pd.factorize(np.fromiter(map(id, values), np.int64, len(values)))
    known = dict(zip(map(id, values), values, strict=True))
    texts = pa.array([_text(known[number]) for number in distinct.tolist()], pa.string())
    return texts.take(pa.array(codes))


def _text(value: Any) -> str | None:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    nested = isinstance(value, dict) or (
        isinstance(value, tuple) and any(isinstance(item, dict | tuple) for item in value)
    )
    return without_surrogates(json.dumps(json_value(value)) if nested else str(value))


#: Number of rows per row group. This many rows are in memory at a time.
_ROWS = 1 << 16
_COMPRESSION = "zstd"
_NO_IDS = np.empty(0, dtype=np.int64)


def write_parquet(analyser: Analyser, directory: Path, title: str) -> None:
    """Write each table of a trace as ``{table}.parquet``.

    ``PARQUET.md`` and the metadata of fields (``description``, ``unit``) describe the columns.
    Tables without rows are also written, with all their columns.

    Raises
    ------
    MissingExtraError
        If pyarrow is not installed.
    OSError
        If a file cannot be written.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        needed = "the format 'parquet' needs pyarrow: pip install 'dasfprof[parquet]'."
        raise MissingExtraError(needed) from error
    directory.mkdir(parents=True, exist_ok=True)
    for schema in SCHEMAS:
        _write_table(analyser.run, schema, directory, title)


def _write_table(run: Run, schema: TableSchema, directory: Path, title: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path = directory / f"{schema.name}.parquet"
    columns = [*schema.columns, *_further_columns(run, schema)]
    about = {
        "description": schema.about,
        "run": without_surrogates(title),
        "dasfprof": version("dasfprof"),
        "notes": without_surrogates(json.dumps([note.text for note in run.notes])),
    }
    arrow = pa.schema([field_of(column) for column in columns], metadata=about)
    with parquet.ParquetWriter(path, arrow, compression=_COMPRESSION) as writer:
        for block in _blocks(run, schema.name):
            arrays = [_array(block, column) for column in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=arrow), row_group_size=_ROWS)


@dataclasses.dataclass(frozen=True)
class _Block:
    """A block of rows of a table."""

    trace: Run
    table: pd.DataFrame
    #: For a column of lists: number of key ids in each row (-1 if not recorded), and all ids.
    lists: tuple[Array, Array] = (_NO_IDS, _NO_IDS)


def _blocks(run: Run, name: str) -> Iterator[_Block]:
    """Yield the rows of a table in blocks. An empty table has one empty block."""
    if name == "keys":
        codes, names = run.keys.functions()
        for part in _parts(len(run.keys)):
            functions = pd.Categorical.from_codes(codes[part], pd.Index(names, dtype=object))
            ids = np.arange(part.start, part.stop)
            yield _Block(run, pd.DataFrame({"key_id": ids, "function": functions}))
        return
    table = run.workers.reset_index() if name == "workers" else getattr(run, name)
    if name == "stacks":
        table = table.rename_axis(index="number").reset_index()
    lengths, ids = {"tasks": run.task_dependencies, "transfers": run.transfer_keys}.get(
        name, (_NO_IDS, _NO_IDS)
    )
    if "waits_keys" in table:
        waited = table["waits_keys"].tolist()
        lengths = np.array([len(keys) for keys in waited], dtype=np.int64)
        ids = np.array([key for keys in waited for key in keys], dtype=np.int64)
    ends = np.r_[0, np.cumsum(np.maximum(lengths, 0))]
    for part in _parts(len(table)):
        lists = lengths[part], ids[ends[part.start] : ends[part.stop]] if len(lengths) else _NO_IDS
        yield _Block(run, table.iloc[part], lists)


def _parts(rows: int) -> Iterator[slice]:
    return (slice(at, min(at + _ROWS, rows)) for at in range(0, max(rows, 1), _ROWS))


def _further_columns(run: Run, schema: TableSchema) -> Iterator[ParquetColumn]:
    """Yield the columns of a table that are not in its schema."""
    if schema.name == "keys":
        return
    known = {column.name for column in schema.columns} | {"worker_id", "key_id"}
    table = getattr(run, schema.name)
    # They contain args that users recorded, or come from other versions of dasfprof.
    for name in table.columns:
        if name not in known:
            numeric = pd.api.types.is_numeric_dtype(table[name].dtype)
            yield ParquetColumn(str(name), "number" if numeric else "text", "as it was recorded")


def _array(block: _Block, column: ParquetColumn) -> Any:
    """Return a column of a block as an Arrow array, or only nulls if the trace lacks the column."""
    import pyarrow as pa

    trace, table, name = block.trace, block.table, column.name
    if column.kind == "ids":
        return as_lists(*block.lists)
    if column.kind in ("key", "stimulus"):
        source = "key_id" if name == "key" and "key_id" in table else name
        if source in table:
            keys = trace.keys if column.kind == "key" else trace.stimuli
            return _key_texts(keys, table[source].to_numpy())
    elif name in table:
        return as_array(table[name], column.kind)
    elif name in ("host", "worker"):
        texts = trace.workers[name].to_numpy(dtype=object)[table["worker_id"].to_numpy()]
        return as_array(pd.Series(texts, dtype=object), column.kind)
    return pa.nulls(len(table), field_of(column).type)


def _key_texts(keys: Any, ids: Array) -> Any:
    """Return the texts of keys, with null for an unknown id."""
    import pyarrow as pa

    # Each distinct id is converted once.
    codes, distinct = pd.factorize(np.where(ids >= 0, ids, -1).astype(np.int64))
    texts = keys.texts(distinct[distinct >= 0])
    known = iter(texts.tolist())
    dictionary = [without_surrogates(next(known)) if number >= 0 else None for number in distinct]
    return pa.array(dictionary, pa.string()).take(pa.array(codes))
