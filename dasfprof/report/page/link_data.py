"""Columns of the page with the critical path and transfers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.critical_path import SegmentKind, path_segments
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.model.transfers import succeeded_rows
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.critical_path import KINDS
from dasfprof.database.columns import Array
from dasfprof.report.page.document import PackedColumn, pack_integers, scaled, seconds

#: Colours of waits by kind, from categories of thread time. Work has the colour of its task.
_COLOURS = {
    SegmentKind.CLIENT: ThreadTime.NOTHING_SUBMITTED.colour,
    SegmentKind.SCHEDULER: ThreadTime.SCHEDULER_LATENCY.colour,
    SegmentKind.ON_ITS_WAY: ThreadTime.ON_ITS_WAY.colour,
    SegmentKind.TRANSFER: ThreadTime.TRANSFER_WAIT.colour,
    SegmentKind.WORKER: ThreadTime.WORKER_LATENCY.colour,
    SegmentKind.UNSPILL: ThreadTime.UNSPILL_AND_SPILL.colour,
    SegmentKind.TASK_OVERHEAD: ThreadTime.TASK_OVERHEAD.colour,
}
_NO_COLOUR = ThreadTime.IDLE_CAUSE_UNKNOWN.colour


def path_columns(run: Run, rows: Array) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the segments of the critical path.

    Parameters
    ----------
    rows
        For each row of the page, its row in `Run.task_runs`. Row numbers beyond the end of this
        table stand for unfinished task runs.

    Returns
    -------
    columns, facts
        The columns are the start, duration, kind and page row of each segment. If the page lacks
        the task run, the page row is the number of rows. The facts are the kinds with their
        meanings and colours.
    """
    path = path_segments(run)
    places = np.full(max(len(run.tasks), path.rows.max(initial=-1) + 1), len(rows))
    ended = np.flatnonzero(rows < len(run.tasks))
    places[rows[ended]] = ended
    columns = {
        "starts": seconds(path.begin),
        "durations": seconds(path.length),
        "kinds": pack_integers(path.kind),
        "rows": pack_integers(places[path.rows]),
    }
    kinds = [
        {"name": label, "meaning": meaning, "colour": _COLOURS.get(kind, _NO_COLOUR)}
        for kind, (label, meaning) in KINDS.items()
    ]
    return columns, {"kinds": kinds}


def received_transfers(run: Run) -> tuple[pd.DataFrame, list[str]]:
    """Return the transfers with known times, sorted by the receiver's name and by start.

    Returns
    -------
    table
        The column ``row`` is the row of `Trace.transfers`. ``begin`` (seconds since the start of
        the run, by the scheduler's clock) and ``duration`` are times. ``receiver`` is a number of
        `NamedWorkers`, and ``source`` an index in `names`.
    names
        Names of senders: of workers, addresses of other senders, and "unknown".
    """
    transfers, named = run.transfers, run.named
    titles = named.titles()
    known = {
        address: titles[number]
        for address, number in zip(run.workers["address"], named.of_lives, strict=True)
        if address is not None
    }
    source = transfers["source"].cat
    names = [*(str(known.get(address, address)) for address in source.categories), "unknown"]
    codes = source.codes.to_numpy()
    table = pd.DataFrame(
        {
            "row": np.arange(len(transfers)),
            "begin": run.on_one_clock(transfers["start"], transfers["worker_id"]),
            "duration": np.maximum(transfers["duration"].to_numpy(), 0.0),
            "receiver": named.numbers(transfers),
            "source": np.where(codes < 0, len(names) - 1, codes),
        }
    )
    table = table[np.isfinite(table["begin"]) & np.isfinite(table["duration"])]
    order = np.lexsort((table["begin"], named.ranks()[table["receiver"]]))
    return table.iloc[order], names


#: Maximum number of transfers in a page. They take about 0.13 MB. The longest are selected.
_MOST_TRANSFERS = 10_000


def transfer_columns(
    run: Run, workers: list[str]
) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the transfers.

    Parameters
    ----------
    workers
        Names of the workers with tracks in the page.

    Returns
    -------
    columns, facts
        The columns are the start, duration, bytes, source (index in ``sources``), receiver (index
        in `workers`) and failure of each transfer, sorted by receiver and start. The fact ``all``
        is the number of transfers including those that were left out.
    """
    received, names = received_transfers(run)
    places = {name: place for place, name in enumerate(workers)}
    receivers = np.array([places.get(title, -1) for title in run.named.titles()], dtype=np.int64)
    received = received.assign(receiver=receivers[received["receiver"]])
    shown = received[received["receiver"] >= 0].reset_index(drop=True)
    longest = shown.nlargest(_MOST_TRANSFERS, "duration").sort_index()
    longest = longest.sort_values("receiver", kind="stable")
    rows = longest["row"].to_numpy()
    codes, used = np.unique(longest["source"], return_inverse=True)
    columns = {
        "starts": seconds(np.maximum(longest["begin"].to_numpy(), 0.0), delta=True),
        "durations": seconds(longest["duration"].to_numpy()),
        "sizes": scaled(run.transfers["size"].to_numpy(dtype=float)[rows], step=1.0),
        "sources": pack_integers(used),
        "receivers": pack_integers(longest["receiver"].to_numpy()),
        "failed": pack_integers(~succeeded_rows(run.transfers)[rows]),
    }
    return columns, {"all": len(shown), "sources": [names[code] for code in codes.tolist()]}
