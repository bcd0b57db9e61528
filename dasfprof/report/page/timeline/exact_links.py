"""Links of task runs for the page, where those of their keys do not tell to which runs."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.links import find_links
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.report.page.packing import PackedColumn, offsets, whole_numbers


def exact_links(trace: Trace, rows: Array, ranks: Array) -> dict[str, PackedColumn]:
    """Pack the inputs of the runs of which the page would say something else by their keys.

    The page takes a run to have the inputs of its key, as its last run had them, and each to be
    made by the one run of that key; by none, where there are several. That takes little room, and
    is wrong of keys that ran again.

    Parameters
    ----------
    trace
        The trace.
    rows
        The row of `Trace.tasks` of each row of the page.
    ranks
        The page's number of each key id.

    Returns
    -------
    dict
        ``rows``: those runs, as rows of the page; ``inputs``: where those of each begin; ``keys``
        and ``producers`` of each input: its key, and 1 + the row of the page of the run that made
        it, 0 where none is there.
    """
    links = find_links(trace)
    place = np.full(len(trace.tasks) + len(trace.scheduler_only) + 1, -1)
    place[rows] = np.arange(len(rows))
    target, producer = place[: len(trace.tasks)][links.row], place[links.producer]
    key_ids = trace.tasks["key_id"].to_numpy()
    runs = np.bincount(key_ids[rows], minlength=len(trace.keys))
    only = np.full(len(trace.keys), -1)
    only[key_ids[rows]] = np.arange(len(rows))
    wrong = np.where(runs[links.key_id] == 1, only[links.key_id], -1) != producer
    told = np.zeros(len(rows), dtype=bool)
    told[target[wrong & (target >= 0)]] = True
    told |= _unlike_their_key(trace)[rows]
    kept = np.flatnonzero((target >= 0) & told[target])
    kept = kept[np.argsort(target[kept], kind="stable")]
    counts = np.bincount(target[kept], minlength=len(rows))
    return {
        "rows": whole_numbers(np.flatnonzero(told), delta=True),
        "inputs": offsets(counts[told]),
        "keys": whole_numbers(ranks[links.key_id[kept]]),
        "producers": whole_numbers(producer[kept] + 1),
    }


def _unlike_their_key(trace: Trace) -> Array:
    """Return which task runs had other inputs than `Trace.dependencies` tells of their keys."""
    lengths, items = trace.task_dependencies
    lengths, key_ids = np.maximum(lengths, 0), trace.tasks["key_id"].to_numpy()
    begins, ids = trace.dependencies
    unlike: Array = lengths != np.diff(begins)[key_ids]
    of_row = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(of_row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    alike = ~unlike[of_row]
    of_row, within = of_row[alike], within[alike]
    other = ids[begins[key_ids[of_row]] + within] != items[alike]
    unlike[of_row[other]] = True
    return unlike
