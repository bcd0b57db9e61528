"""Columns of one kind of event, joined from the batches of many files.

`FactColumns` collects the batches and returns the columns: numbers, codes with categories, and
keys. If a batch lacks a column, its values are NaN in columns of floats, and -1 in other columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import GrowingColumn, as_type, is_constant
from dasfprof.analysis.trace.keys import KeyCollector, as_key_column, as_tuple, split_keys
from dasfprof.database.blocks import Batch
from dasfprof.database.columns import (
    Array,
    Column,
    DictionaryColumn,
    ListColumn,
    NumberColumn,
    nothing,
    repeated,
)
from dasfprof.schema.events import Form

#: Arrays or other columns of equal length, by name.
Columns = dict[str, Any]

#: Smallest float that does not fit into an int64.
_LIMIT = float(1 << 63)
#: Maximum valid time in seconds. Then maximum valid number. Larger values are damaged and count as
#: missing.
_LATEST, _LARGEST = 1e12, 1e20
#: Type of a column by the form of its arg. Columns of other forms contain floats.
_TYPES: dict[Form, Any] = {
    "category": np.int32,
    "object": np.int32,
    "int": np.int64,
    "keys": np.int64,
}
#: Type of categorical columns that have no categories. Creating this type takes longer than
#: creating the column.
_NO_CATEGORIES = pd.CategoricalDtype(pd.Index([], dtype=object))


class Categories:
    """Codes for the distinct values of a column.

    Parameters
    ----------
    as_text
        Whether to replace values that are not texts by their text. If False, lists become tuples,
        and values of other types stay unchanged.
    """

    def __init__(self, *, as_text: bool) -> None:
        self.values: list[Any] = []
        self._as_text = as_text
        self._codes: dict[Any, int] = {}

    def code(self, value: Any) -> int:
        """Return the code of a value, or -1 for None."""
        if value is None:
            return -1
        if not self._as_text:
            value = as_tuple(value)
        text = value if isinstance(value, str) else str(value)
        number = self._codes.setdefault((type(value), text), len(self.values))
        if number == len(self.values):
            self.values.append(text if self._as_text else value)
        return number

    def codes(self, column: Column) -> Array:
        """Return the code of the value in each row of a column."""
        if isinstance(column, DictionaryColumn):
            entries, places = column.entries, column.codes
        elif isinstance(column, NumberColumn):
            distinct, places = np.unique(column.array, return_inverse=True)
            entries = NumberColumn(distinct, column.optional).to_list()
        else:
            entries, places = column.to_list(), np.arange(len(column))
        codes = np.array([self.code(entry) for entry in entries], dtype=np.int32)
        if is_constant(places):
            return repeated(codes[places[0]], len(places))
        return codes[places]

    def of_codes(self, codes: Array) -> pd.Categorical | pd.Series:
        """Return the values that belong to `codes`, with NA or None for the code -1.

        The result is a Categorical if `as_text` was set, and otherwise a Series of objects.
        """
        if self._as_text:
            return make_categorical(codes, self.values)
        values = np.empty(len(self.values) + 1, dtype=object)
        values[:-1] = self.values
        return pd.Series(values[codes], dtype=object, copy=False)


class FactColumns:
    """The columns of one kind of event.

    Parameters
    ----------
    collector
        Collects the keys in args of the forms "key" and "keys".
    forms
        The form of each arg of the events that becomes a column, such as "float" or "category".
    keep_others
        Whether all other args become columns as well. Numbers then become floats, and other values
        become categories.
    """

    def __init__(
        self, collector: KeyCollector, forms: dict[str, Form], *, keep_others: bool = False
    ) -> None:
        self.rows = 0
        self._categories: dict[str, Categories] = {}
        self._collector = collector
        self._keep_others = keep_others
        self._forms = dict(forms)
        self._growing: dict[str, GrowingColumn] = {}
        #: For each column of keys, a list with the first row of each piece and its position in the
        #: collector.
        self._key_places: dict[str, list[tuple[int, slice]]] = {}

    def add(self, batch: Batch, workers: Array) -> None:
        """Add the rows of a batch. `workers` contains the worker id of each row."""
        self._add_piece("worker_id", workers, np.int32)
        for name in ("timestamp", "duration"):
            if name in batch.fields:
                self._add_piece(name, to_times(batch.fields[name]), np.float64)
        args = dict(batch.args)
        for name, form in self._forms.items():
            if form == "key" and name not in args:
                args[name] = DictionaryColumn(np.zeros(batch.rows, dtype=np.int64), [None])
        for name, column in args.items():
            if name not in self._forms and self._keep_others:
                self._forms[name] = _form_of(column)
            if name in self._forms:
                self._add_column(name, self._forms[name], column)
        self.rows += batch.rows

    def columns(self, ids: Array) -> dict[str, Any]:
        """Return the columns ``worker_id``, ``timestamp``, ``duration`` and the args. Call once.

        Parameters
        ----------
        ids
            The key ids that ``KeyCollector.finish`` returned.

        Returns
        -------
        dict
            A Categorical for each arg of the form "category", a Series of objects for each arg of
            the form "object", and an array for every other column. A column of the form "keys"
            contains the number of keys in each row's list. See `list_items`.
        """
        columns: dict[str, Any] = {
            "worker_id": self._finished("worker_id", np.int32, -1),
            "timestamp": self._finished("timestamp", np.float64, np.nan),
        }
        if "duration" in self._growing:
            columns["duration"] = self._finished("duration", np.float64, np.nan)
        for name, form in self._forms.items():
            if form == "key":
                column = GrowingColumn(ids.dtype)
                for row, place in self._key_places.get(name, []):
                    column.add(row, ids[place])
                columns[name] = column.finish(self.rows, -1)
                continue
            missing = -1 if form in _TYPES else np.nan
            values: Any = self._finished(name, _TYPES.get(form, np.float32), missing)
            if form in ("category", "object"):
                categories = self._categories.get(name, Categories(as_text=form == "category"))
                values = categories.of_codes(values)
            columns[name] = values
        return columns

    def list_items(self, name: str, ids: Array) -> Array:
        """Return the key ids in all lists of a column of the form "keys", concatenated."""
        places = self._key_places.get(name, [])
        return np.concatenate([np.empty(0, ids.dtype), *(ids[place] for _, place in places)])

    def _add_column(self, name: str, form: Form, column: Column) -> None:
        if column is nothing(len(column)) and form not in ("key", "keys"):
            dtype = _TYPES.get(form, np.float64)
            self._add_piece(name, np.empty(0, dtype), dtype)
        elif form in ("category", "object"):
            categories = self._categories.setdefault(name, Categories(as_text=form == "category"))
            self._add_piece(name, categories.codes(column), np.int32)
        elif form == "key":
            place = self._collector.add(as_key_column(column))
            self._key_places.setdefault(name, []).append((self.rows, place))
        elif form == "keys":
            lists = as_list_column(column)
            self._add_piece(name, np.diff(lists.offsets), np.int64)
            place = self._collector.add(lists.inner)
            self._key_places.setdefault(name, []).append((self.rows, place))
        elif form == "int":
            numbers = to_numbers(column)
            if numbers.dtype.kind not in "iu":
                numbers = np.where(np.abs(numbers) < _LIMIT, numbers, -1)
            self._add_piece(name, as_type(numbers, np.int64), np.int64)
        else:
            numbers = to_times(column) if form == "time" else _within(to_numbers(column), _LARGEST)
            dtype = np.float32 if numbers.dtype == np.float32 else np.float64
            self._add_piece(name, as_type(numbers, dtype), dtype)

    def _add_piece(self, name: str, piece: Array, dtype: Any) -> None:
        column = self._growing.get(name)
        if column is None:
            column = self._growing[name] = GrowingColumn(dtype)
        column.add(self.rows, piece)

    def _finished(self, name: str, dtype: Any, missing: float) -> Array:
        return (self._growing.pop(name, None) or GrowingColumn(dtype)).finish(self.rows, missing)


def make_categorical(codes: Array, values: list[Any]) -> pd.Categorical:
    """Return ``values[codes]`` as a Categorical of Python objects, with NA for the code -1."""
    if not values:  # Nearly all columns of small runs are empty.
        return pd.Categorical.from_codes(codes, dtype=_NO_CATEGORIES)
    # The categories do not have pandas' text type, because Arrow rejects lone surrogates, which
    # texts of exceptions may contain.
    categories = pd.Index(values, dtype=object, tupleize_cols=False)
    return pd.Categorical.from_codes(codes, categories=categories)


def joined_categoricals(*columns: pd.Categorical) -> pd.Categorical:
    """Concatenate categorical columns."""
    # `pandas.api.types.union_categoricals` does the same, but cannot hash lone surrogates.
    numbers: dict[Any, int] = {}
    parts = [np.empty(0, dtype=np.int64)]
    for column in columns:
        codes = [*(numbers.setdefault(text, len(numbers)) for text in column.categories), -1]
        parts.append(np.array(codes, dtype=np.int64)[column.codes])
    return make_categorical(np.concatenate(parts), list(numbers))


def distinct_objects(column: pd.Series) -> tuple[Array, list[Any]]:
    """Return the index of each row's object in a list of distinct objects, and this list."""
    values = column.to_numpy(dtype=object)
    # Objects are distinguished by identity, since `Categories.of_codes` returns the same object for
    # equal values.
    identities = np.fromiter(map(id, values), dtype=np.int64, count=len(values))
    _, first, places = np.unique(identities, return_index=True, return_inverse=True)
    return places, [values[row] for row in first.tolist()]


def row_of(table: pd.DataFrame, row: int) -> dict[Any, Any]:
    """Return a row of a table as a dict from column names to values."""
    # ``table.iloc[row]`` hashes the categories of columns, which fails for lone surrogates.
    return {name: column.iloc[row] for name, column in table.items()}


def rows_of(table: pd.DataFrame, mask: Array) -> pd.DataFrame:
    """Return the rows of a table that a mask selects."""
    return table if mask.all() else table[mask].reset_index(drop=True)


def to_numbers(column: Column) -> Array:
    """Return a column as numbers, with NaN for values that are not numbers."""
    if isinstance(column, NumberColumn):
        return column.array
    if isinstance(column, DictionaryColumn):
        return np.array([_number(entry) for entry in column.entries], dtype=float)[column.codes]
    return np.full(len(column), np.nan)


def to_times(column: Column) -> Array:
    """Return a column as times or durations, with NaN for values that are missing or damaged."""
    return _within(to_numbers(column), _LATEST)


def _within(numbers: Array, limit: float) -> Array:
    """Replace numbers by NaN if their absolute value exceeds a limit."""
    narrow = numbers.dtype.kind in "iu" and numbers.dtype.itemsize <= 4
    if narrow or not numbers.size:
        return numbers
    if is_constant(numbers):
        beyond = numbers[0] > limit or numbers[0] < -limit
        return repeated(np.nan, len(numbers)) if beyond else numbers
    most, least = numbers.max(), numbers.min()  # NaN where there is one: four times as fast as fmax
    if np.isnan(most):
        most, least = np.fmax.reduce(numbers), np.fmin.reduce(numbers)
    if most <= limit and least >= -limit:
        return numbers
    # Such numbers come from damage or from a broken clock.
    return np.where(np.abs(numbers.astype(np.float64)) <= limit, numbers, np.nan)


def as_list_column(column: Column) -> ListColumn:
    """Return a column of lists of keys as a `ListColumn`, even if it was stored as plain values."""
    if isinstance(column, ListColumn):
        return column
    lists = [item if isinstance(item, list | tuple) else [] for item in column.to_list()]
    offsets = np.concatenate([[0], np.cumsum([len(item) for item in lists], dtype=np.int64)])
    return ListColumn(offsets, split_keys(key for item in lists for key in item))


def _form_of(column: Column) -> Form:
    numeric = isinstance(column, NumberColumn)
    if isinstance(column, DictionaryColumn):
        numeric = all(isinstance(entry, int | float | None) for entry in column.entries)
    return "float" if numeric else "category"


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else np.nan
    except OverflowError:
        return np.nan
