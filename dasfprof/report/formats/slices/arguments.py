"""What viewers tell of a slice: columns of names and of numbers, each with its label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.database.columns import Array


@dataclass(frozen=True)
class Names:
    """A text of each row."""

    label: str
    #: The distinct texts.
    texts: Sequence[str]
    #: The text of each row; -1: there is none.
    codes: Array

    @classmethod
    def of(cls, label: str, column: pd.Series[Any]) -> Names:
        """Take a categorical column; empty texts are left out as NA is."""
        texts = [str(text) for text in column.cat.categories]
        codes = column.cat.codes.to_numpy().astype(np.int64)
        empty = np.array([*(not text for text in texts), False])
        return cls(label, texts, np.where(empty[codes], -1, codes))

    def taken(self, rows: Array) -> Names:
        """Return them of some of the rows."""
        return Names(self.label, self.texts, self.codes[rows])


@dataclass(frozen=True)
class Numbers:
    """A number of each row."""

    label: str
    #: NaN where it is not known.
    values: Array
    #: Whether they are counts, without decimals.
    whole: bool

    def taken(self, rows: Array) -> Numbers:
        """Return them of some of the rows."""
        return Numbers(self.label, self.values[rows], self.whole)


#: What can be told.
Argument = Names | Numbers


def sizes(table: pd.DataFrame, labels: dict[str, str]) -> list[Argument]:
    """Return the table's columns of whole numbers that have labels."""
    return [Numbers(label, table[name].to_numpy(), True) for name, label in labels.items()]


def seconds(table: pd.DataFrame, labels: dict[str, str]) -> list[Argument]:
    """Return the table's columns of seconds that have labels; older recorders lack some."""
    return [
        Numbers(label, table[name].to_numpy(dtype=float), False)
        for name, label in labels.items()
        if name in table
    ]
