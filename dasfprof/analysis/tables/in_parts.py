"""`InParts`: how a question is answered of a run that does not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd


@dataclass(frozen=True)
class InParts:
    """How a question is answered of a run that does not fit into memory.

    Both functions take the question's arguments by name, as far as they were given.
    """

    #: What a part of the run tells: small, and able to travel between processes.
    of_part: Callable[..., Any]
    #: Takes a trace without task runs and transfers, and what all parts told.
    combine: Callable[..., pd.DataFrame]
    #: Columns of rows that are sorted on disk. If there are any, `of_part` returns such rows, a
    #: DataFrame, beside what it tells, and `combine` takes them last: column by column, sorted, in
    #: pieces.
    sorted_by: tuple[str, ...] = ()
    #: The values of `by` that can be answered so; empty: there are none, or all can.
    by: tuple[str, ...] = ()

    def take(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a question with these arguments can be answered so."""
        return not self.by or arguments.get("by", self.by[0]) in self.by


#: Of questions about samples and other facts that are in memory even then.
NO_PARTS: Literal["no parts"] = "no parts"
