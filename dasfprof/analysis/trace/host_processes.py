"""Which of a host's processes are the run's own, and which are other programs'."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from dasfprof.database.columns import Array


def with_owners(
    table: pd.DataFrame, hosts: Iterable[str], run: set[tuple[str, int]]
) -> pd.DataFrame:
    """Add the column ``ours`` to the rows of "Host Process".

    A process is the run's own if it wrote one of its files, descends from one that did, or one
    that did descends from it: the worker that looks is always among the rows.

    Parameters
    ----------
    table
        The rows.
    hosts
        The host of each.
    run
        Host and number of the processes that wrote files.
    """
    names = list(hosts)
    places = list(zip(names, table["pid"].tolist(), strict=True))
    ancestors = [tuple(pids) if isinstance(pids, tuple) else () for pids in table["ancestors"]]
    above = {
        (host, pid)
        for place, (host, _), pids in zip(places, places, ancestors, strict=True)
        if place in run
        for pid in pids
    }
    ours: Array = np.array(
        [
            place in run or place in above or any((place[0], pid) in run for pid in pids)
            for place, pids in zip(places, ancestors, strict=True)
        ],
        dtype=bool,
    )
    return table.assign(ours=ours)
