"""`InParts`: how a question is answered of a run that does not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from pandas.api.types import union_categoricals


@dataclass(frozen=True)
class InParts:
    """How a question is answered of a run that does not fit into memory.

    The functions take the question's arguments by name, as far as they were given.
    """

    #: What a part of the run tells: small, and able to travel between processes.
    of_part: Callable[..., Any]
    #: Takes a trace without task runs and transfers, and what all parts told.
    combine: Callable[..., pd.DataFrame]
    #: Puts what two parts told together, where that is less than both; None: it is not.
    fold: Callable[[Any, Any], Any] | None = None
    #: The values of `by` that can be answered so; empty: there are none, or all can.
    by: tuple[str, ...] = ()

    def take(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a question with these arguments can be answered so."""
        return not self.by or arguments.get("by", self.by[0]) in self.by


#: Of questions about samples and other facts that are in memory even then.
NO_PARTS: Literal["no parts"] = "no parts"


def joined_rows(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Put rows of parts together; columns of categories stay such."""
    columns = {
        name: union_categoricals([part[name] for part in parts])
        if isinstance(parts[0][name].dtype, pd.CategoricalDtype)
        else pd.concat([part[name] for part in parts], ignore_index=True)
        for name in parts[0]
    }
    return pd.DataFrame(columns, copy=False)
