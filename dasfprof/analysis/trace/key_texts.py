"""`KeyTexts`: a column with the texts of keys, which are created when they are needed."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray, ExtensionDtype, take
from pandas.api.indexers import check_array_indexer

from dasfprof.database.columns import Array


class KeyTextDtype(ExtensionDtype):
    """Type of `KeyTexts`. Values are texts or NaN."""

    type = str
    name = "key-text"
    na_value = np.nan

    @classmethod
    def construct_array_type(cls) -> builtins.type[KeyTexts]:
        """Return the class of the arrays of this type."""
        return KeyTexts


class KeyTexts(ExtensionArray):
    """A column of texts, which are created when they are needed.

    The texts of ten million keys would take more than a gigabyte, and a user rarely reads them all.

    Parameters
    ----------
    create
        Function that returns the texts for an array of ids.
    ids
        Id of the text in each row, or -1 for NaN.
    """

    dtype = KeyTextDtype()
    __hash__ = ExtensionArray.__hash__

    def __init__(self, create: Callable[[Array], Array], ids: Array) -> None:
        self._create, self._ids = create, ids

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """Size of the ids in bytes."""
        return int(self._ids.nbytes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        texts = np.full(len(self), np.nan, dtype=object)
        known = self._ids >= 0
        texts[known] = self._create(self._ids[known])
        return texts if dtype is None else texts.astype(dtype, copy=False)

    def __arrow_array__(self, type: Any = None) -> Any:
        import pyarrow

        return pyarrow.array(self.__array__(), type=type or pyarrow.string(), from_pandas=True)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__array__())

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, int | np.integer):
            return KeyTexts(self._create, self._ids[np.array([item])]).__array__()[0]
        return KeyTexts(self._create, self._ids[check_array_indexer(self, item)])

    def __setitem__(self, item: Any, value: Any) -> None:
        texts = self.__array__()
        texts[check_array_indexer(self, item)] = value
        changed = self._from_sequence(texts)
        self._create, self._ids = changed._create, changed._ids

    def __eq__(self, other: Any) -> Any:
        return pd.Series(self.__array__(), dtype=object).eq(other).to_numpy()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_str_"):  # The accessor `Series.str` calls these methods.
            return getattr(pd.Series(self.__array__(), dtype=object).array, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def isna(self) -> Array:
        """Return a mask of the rows that have no text."""
        return self._ids < 0

    def value_counts(self, dropna: bool = True) -> pd.Series:
        """Return the number of rows of each text."""
        return pd.Series(self.__array__(), dtype=object).value_counts(dropna=dropna)

    def copy(self) -> KeyTexts:
        """Return a copy."""
        return KeyTexts(self._create, self._ids.copy())

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> KeyTexts:
        """Return the rows at `indices`. See `pandas.api.extensions.ExtensionArray.take`."""
        rows = np.asarray(indices, dtype=np.intp)
        ids = take(self._ids, rows, allow_fill=allow_fill, fill_value=-1)
        return KeyTexts(self._create, np.asarray(ids))

    @classmethod
    def _from_sequence(
        cls, scalars: Iterable[Any], *, dtype: Any = None, copy: bool = False
    ) -> KeyTexts:
        texts = np.array(list(scalars), dtype=object)
        return cls(texts.__getitem__, np.where(pd.isna(texts), -1, np.arange(len(texts))))

    @classmethod
    def _from_factorized(cls, values: Iterable[Any], original: KeyTexts) -> KeyTexts:
        return cls._from_sequence(values)

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[KeyTexts]) -> KeyTexts:
        return cls._from_sequence(np.concatenate([each.__array__() for each in to_concat]))
