"""Workers as people know them: one for each label on each host, whatever lives it had."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


class NamedWorkers:
    """The workers of a trace by host and label.

    Parameters
    ----------
    trace
        The trace.
    """

    def __init__(self, trace: Trace) -> None:
        names = list(zip(trace.workers["host"], trace.workers["worker"], strict=True))
        distinct = list(dict.fromkeys(names))
        places = {name: place for place, name in enumerate(distinct)}
        #: The number of each row of `Trace.workers`.
        self.of_lives = np.array([places[name] for name in names], dtype=np.int32)
        #: The host and the label of each.
        self.hosts = np.array([host for host, _ in distinct], dtype=object)
        self.labels = np.array([label for _, label in distinct], dtype=object)

    def __len__(self) -> int:
        return len(self.hosts)

    def numbers(self, table: pd.DataFrame) -> Array:
        """Number the worker of each row of a table that has ``worker_id``."""
        numbers: Array = self.of_lives[table["worker_id"].to_numpy()]
        return numbers

    def titles(self) -> list[str]:
        """Give each worker's label, with its host before it where labels collide."""
        labels = pd.Series(self.labels, dtype=object)
        shared = labels.duplicated(keep=False)
        return [
            f"{host} {label}" if collides else label
            for host, label, collides in zip(self.hosts, labels, shared, strict=True)
        ]

    def ranks(self) -> Array:
        """Give each worker's place when they are sorted by host and label."""
        order = np.lexsort((self.labels.astype(str), self.hosts.astype(str)))
        return np.argsort(order)
