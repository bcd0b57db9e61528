"""The transfers that workers received as the columns of a page: `transfer_columns`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.analysis.model.transfers import succeeded_rows
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.trace import Trace
from dasfprof.report.page.packing import PackedColumn, scaled, seconds, whole_numbers
from dasfprof.report.received_transfers import ReceivedTransfers

#: A page has the longest of more: about 0.13 MB.
_MOST_TRANSFERS = 10_000


def transfer_columns(
    trace: Trace, workers: list[str]
) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the transfers.

    Parameters
    ----------
    trace
        The trace.
    workers
        Names of the workers that the page has tracks of.

    Returns
    -------
    columns, facts
        Of each transfer when it began, how long it took, its bytes, its source (place in
        ``sources``), its receiver (place in `workers`) and whether it failed; by receiver and
        begin. ``all``: how many there were.
    """
    named = NamedWorkers(trace)
    found = ReceivedTransfers.of(trace, named)
    places = {name: place for place, name in enumerate(workers)}
    receivers = np.array([places.get(title, -1) for title in named.titles()], dtype=np.int64)
    kept = np.flatnonzero(receivers[found.receivers] >= 0)
    count = len(kept)
    longest = kept[np.argsort(-found.durations[kept], kind="stable")[:_MOST_TRANSFERS]]
    longest = longest[np.lexsort((longest, receivers[found.receivers[longest]]))]
    rows = found.rows[longest]
    codes, used = np.unique(found.sources[longest], return_inverse=True)
    columns = {
        "starts": seconds(np.maximum(found.begins[longest], 0.0), delta=True),
        "durations": seconds(found.durations[longest]),
        "sizes": scaled(trace.transfers["size"].to_numpy(dtype=float)[rows], step=1.0),
        "sources": whole_numbers(used),
        "receivers": whole_numbers(receivers[found.receivers[longest]]),
        "failed": whole_numbers(~succeeded_rows(trace.transfers)[rows]),
    }
    return columns, {"all": count, "sources": [found.names[code] for code in codes.tolist()]}
