"""`KeyTextArray`: the texts of keys as a column of a pandas table, made when they are looked at."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray, ExtensionDtype, take

from dasfprof.analysis.trace.keys import KeyCollector, KeyTable, split_keys
from dasfprof.database.columns import Array


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
        missing: Array = self._ids < 0
        return missing

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
