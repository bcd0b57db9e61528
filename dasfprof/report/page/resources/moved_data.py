"""Who received how many bytes from whom: the matrix of a page."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.analysis.model.transfers import succeeded_rows
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.trace import Trace
from dasfprof.report.page.timeline.link_data import ReceivedTransfers

#: A matrix of more workers nobody reads: it has those that moved the most.
MOST_WORKERS = 24


def moved_facts(trace: Trace) -> dict[str, Any]:
    """Sum up the bytes of transfers by sender and receiver.

    Returns
    -------
    dict
        ``workers``: names, by name; ``sizes``: for each of them as a sender a list, of the bytes
        that each received; ``left``: bytes of workers, or of senders nobody knows, that it has not.
        What P2P shuffles move is not in it.
    """
    named = NamedWorkers(trace)
    found = ReceivedTransfers.of(trace, named)
    size = trace.transfers["size"].to_numpy(dtype=float)[found.rows]
    moved = succeeded_rows(trace.transfers)[found.rows] & (size > 0)
    titles = named.titles()
    numbers = {title: number for number, title in enumerate(titles)}
    senders = np.array([numbers.get(name, -1) for name in found.names], dtype=np.int64)
    sender, receiver = senders[found.sources[moved]], found.receivers[moved]
    size = size[moved]
    known = sender >= 0
    of_workers = np.bincount(receiver, size, len(titles))
    of_workers += np.bincount(sender[known], size[known], len(titles))
    kept = np.argsort(-of_workers, kind="stable")[:MOST_WORKERS]
    kept = kept[of_workers[kept] > 0]
    kept = kept[np.argsort(named.ranks()[kept], kind="stable")]
    place = np.full(len(titles) + 1, -1)
    place[kept] = np.arange(len(kept))
    sender, receiver = place[sender], place[receiver]
    inside = (sender >= 0) & (receiver >= 0)
    sizes = np.zeros((len(kept), len(kept)))
    np.add.at(sizes, (sender[inside], receiver[inside]), size[inside])
    return {
        "workers": [titles[number] for number in kept.tolist()],
        "sizes": sizes.tolist(),
        "left": float(size[~inside].sum()),
    }
