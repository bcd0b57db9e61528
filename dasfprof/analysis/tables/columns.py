"""What several tables share: columns, texts of keys, rows of a function, times, whole numbers."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray, ExtensionDtype, take

from dasfprof.analysis.model.steps import has_steps, step_groups
from dasfprof.analysis.model.thread_time import RunningSeconds
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.keys import KeyCollector, KeyTable, split_keys
from dasfprof.database.columns import Array
from dasfprof.text import count_of

#: The label of the begin of an interval.
INTERVAL = "Time Interval (seconds from begin)"

#: The parts of the seconds of functions, see `RunningSeconds`, by the labels of their columns.
RUNNING = {
    "cpu": "CPU (s)",
    "core_wait": "Waiting for a core (s)",
    "storage": "Waiting for storage (s)",
    "blocked": "Blocked (s)",
}
#: Unix seconds that nanoseconds in 64 bits can hold.
_LATEST = 9.2e9
#: Numbers up to here are exact in a float.
_EXACT = float(1 << 53)


def text(items: Iterable[Any]) -> pd.Series:
    """Return texts as plain objects, whatever pandas makes of texts by itself."""
    return pd.Series(items, dtype=object, copy=False)


def of_workers(run: Run, lives: Any, name: str = "worker") -> pd.Series:
    """Return the labels, or another text, of rows of `Trace.workers`."""
    return text(run.workers[name].to_numpy(dtype=object)[np.asarray(lives, dtype=np.int64)])


def places_of(run: Run, lives: Any) -> dict[str, pd.Series]:
    """Return the hosts and the labels of rows of `Trace.workers`."""
    return {"Host": of_workers(run, lives, "host"), "Worker": of_workers(run, lives)}


def known_texts(column: pd.Series) -> pd.Series:
    """Return the texts of a column; empty for what is none."""
    return text([each if isinstance(each, str) else "" for each in column])


def utc(seconds: Array) -> pd.Series:
    """Return Unix seconds as times without a zone, which spreadsheets can read; to microseconds."""
    known = np.abs(seconds) < _LATEST
    microseconds = np.round(np.where(known, seconds, 0.0) * 1e6).astype(np.int64)
    times = microseconds.astype("datetime64[us]").astype("datetime64[ns]")
    times[~known] = np.datetime64("NaT", "ns")
    return pd.Series(times)


def whole(numbers: Array) -> pd.Series:
    """Return whole numbers; what is none, or has no end, is NA."""
    rounded = np.round(numbers.astype(float))
    known = np.abs(rounded) <= _EXACT
    values = np.where(known, rounded, 0.0).astype(np.int64)
    return pd.Series(pd.arrays.IntegerArray(values, ~known))


def flags(found: Array, known: Array) -> pd.Series:
    """Truths, NA where nothing is known."""
    return pd.Series(pd.arrays.BooleanArray(found, ~known))


def of_function(run: Run, events: pd.DataFrame, function: str | None) -> tuple[pd.DataFrame, Array]:
    """Return the events of the tasks of a function (None: of all) by time, and their functions."""
    codes, names = run.keys.functions()
    table = events.sort_values("time", kind="stable")
    functions = np.array(names, dtype=object)[codes[table["key_id"].to_numpy()]]
    if function is None:
        return table, functions
    kept = functions == function
    return table[kept], functions[kept]


def running_columns(running: RunningSeconds, summed: Callable[[Array], Array]) -> dict[str, Array]:
    """The columns that split the seconds of functions, each as `summed` makes it of the runs'."""
    return {label: summed(getattr(running, name)) for name, label in RUNNING.items()}


def step_column(run: Run, rows: Array, *more: pd.DataFrame) -> dict[str, pd.Series]:
    """The column in which tables of task runs end, where steps are known; else nothing.

    Parameters
    ----------
    run
        The run.
    rows
        Rows of `Trace.tasks` and, after those, of the other tables.
    *more
        Further tables of task runs.
    """
    if not has_steps(run):
        return {}
    codes, names = step_groups(run.tasks, *more)
    texts = np.array([*names[:-1], np.nan], dtype=object)
    return {"Step": text(texts[codes[rows]])}


class KeyTextDtype(ExtensionDtype):
    """The type of a `KeyTextArray`. Its values are texts, or NaN."""

    type = str
    name = "key-text"
    na_value = np.nan

    @classmethod
    def construct_array_type(cls) -> builtins.type[KeyTextArray]:
        """Return the class of its arrays."""
        return KeyTextArray


class KeyTextArray(ExtensionArray):
    """Texts of keys, four bytes each.

    Parameters
    ----------
    keys
        The distinct keys.
    ids
        The key of each row; -1: none.
    """

    def __init__(self, keys: KeyTable, ids: Array) -> None:
        self._keys, self._ids = keys, ids

    dtype = KeyTextDtype()
    __hash__ = ExtensionArray.__hash__  # which says that there is none

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, without the keys, which the trace has."""
        return int(self._ids.nbytes)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, int | np.integer):
            ids = self._ids[np.array([item])]
            return self._keys.texts(ids)[0] if ids[0] >= 0 else np.nan
        return KeyTextArray(self._keys, self._ids[pd.api.indexers.check_array_indexer(self, item)])

    def __setitem__(self, item: Any, value: Any) -> None:
        texts = self.__array__()
        texts[pd.api.indexers.check_array_indexer(self, item)] = value
        new = self._from_sequence(texts)
        self._keys, self._ids = new._keys, new._ids

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        texts = np.full(len(self), np.nan, dtype=object)
        known = self._ids >= 0
        texts[known] = self._keys.texts(self._ids[known])
        return texts if dtype is None else texts.astype(dtype, copy=False)

    def __arrow_array__(self, type: Any = None) -> Any:
        import pyarrow

        return pyarrow.array(self.__array__(), type=type or pyarrow.string(), from_pandas=True)

    def __eq__(self, other: Any) -> Any:
        return pd.Series(self.__array__(), dtype=object).eq(other).to_numpy()

    def __getattr__(self, name: str) -> Any:
        # What Series.str calls, which pandas knows for its own arrays alone.
        if name.startswith("_str_"):
            return getattr(pd.Series(self.__array__(), dtype=object).array, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def isna(self) -> Array:
        """Return which rows have no key."""
        return self._ids < 0

    def value_counts(self, dropna: bool = True) -> pd.Series:
        """Count the rows of each text."""
        return pd.Series(self.__array__(), dtype=object).value_counts(dropna=dropna)

    def copy(self) -> KeyTextArray:
        """Return a copy."""
        return KeyTextArray(self._keys, self._ids.copy())

    def take(
        self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None
    ) -> KeyTextArray:
        """Return some rows; see `pandas.api.extensions.ExtensionArray.take`."""
        rows = np.asarray(indices, dtype=np.intp)
        ids = take(self._ids, rows, allow_fill=allow_fill, fill_value=-1)
        return KeyTextArray(self._keys, np.asarray(ids))

    def _values_for_factorize(self) -> tuple[Array, float]:
        return self.__array__(), np.nan

    def _values_for_argsort(self) -> Array:
        return self.__array__()

    @classmethod
    def _from_sequence(
        cls, scalars: Iterable[Any], *, dtype: Any = None, copy: bool = False
    ) -> KeyTextArray:
        texts = np.array(list(scalars), dtype=object)
        known = np.array([isinstance(text, str) for text in texts], dtype=bool)
        collector = KeyCollector()
        collector.add(split_keys(texts[known]))
        table, found = collector.finish()
        ids = np.full(len(texts), -1, dtype=np.int32)
        ids[known] = found
        return cls(table, ids)

    @classmethod
    def _from_factorized(cls, values: Iterable[Any], original: KeyTextArray) -> KeyTextArray:
        return cls._from_sequence(values)

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[KeyTextArray]) -> KeyTextArray:
        first = to_concat[0]
        if all(each._keys is first._keys for each in to_concat):
            return cls(first._keys, np.concatenate([each._ids for each in to_concat]))
        return cls._from_sequence(np.concatenate([each.__array__() for each in to_concat]))


# The first rows of tables with a row a task run, of runs whose tables do not fit into memory.

#: So many rows are listed.
LISTED = 10_000


#: The first rows of a part, and how many it has.
Listed = tuple[pd.DataFrame, int]


def folded(parts: Sequence[Listed], order: Callable[[pd.DataFrame], Array]) -> Listed:
    """Put the first rows of parts together, and keep the first of all; `order` sorts them."""
    # Those without rows may have columns of other types.
    tables = [table for table, count in parts if count] or [parts[0][0]]
    table = pd.concat(tables, ignore_index=True)
    table = table.take(order(table)[:LISTED]).reset_index(drop=True)
    return table, sum(count for _, count in parts)


def first_rows(parts: Sequence[Listed], order: Callable[[pd.DataFrame], Array]) -> pd.DataFrame:
    """Put the first rows of parts together, and keep the first of all; `order` sorts them.

    Warns
    -----
    UserWarning
        If there are more rows.
    """
    table, rows = folded(parts, order)
    if rows > LISTED:
        warnings.warn(
            f"this table has the first {LISTED} rows of {count_of(rows, 'row')}: the whole would "
            "not fit into memory.",
            stacklevel=2,
        )
    return table
