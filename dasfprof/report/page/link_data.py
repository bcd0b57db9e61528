"""Columns of the page with the critical path and transfers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dasfprof.analysis.model.critical_path import SegmentKind, path_segments
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.model.transfers import succeeded_rows
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import NamedWorkers
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


@dataclass(frozen=True)
class ReceivedTransfers:
    """Transfers with known times, sorted by the receiver's name and by start."""

    #: Rows of `Trace.transfers`.
    rows: Array
    #: Seconds since the start of the run, by the scheduler's clock.
    begins: Array
    durations: Array
    #: Receivers, as numbers of `NamedWorkers`.
    receivers: Array
    #: Senders, as indices in `names`, which contains names of workers, addresses of other senders,
    #: and "unknown".
    sources: Array
    names: list[str]

    @classmethod
    def of(cls, run: Run, workers: NamedWorkers) -> ReceivedTransfers:
        """Return the transfers of a run."""
        table = run.transfers
        begins = run.on_one_clock(table["start"], table["worker_id"])
        durations = np.maximum(table["duration"].to_numpy(), 0.0)
        placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(durations))
        receivers = workers.numbers(table)[placed]
        order = np.lexsort((begins[placed], workers.ranks()[receivers]))
        rows = placed[order]
        codes = table["source"].cat.codes.to_numpy()[rows].astype(np.int64)
        names = _sources(run, workers)
        sources = np.where(codes < 0, len(names) - 1, codes)
        return cls(rows, begins[rows], durations[rows], receivers[order], sources, names)


def _sources(run: Run, workers: NamedWorkers) -> list[str]:
    """Return the sender's name for each category of the column ``source`` of transfers.

    The last item is the name of unknown senders.
    """
    titles = workers.titles()
    known = {
        address: titles[number]
        for address, number in zip(run.workers["address"], workers.of_lives, strict=True)
        if address is not None
    }
    addresses = run.transfers["source"].cat.categories
    return [*(str(known.get(address, address)) for address in addresses), "unknown"]


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
    named = run.named
    received = ReceivedTransfers.of(run, named)
    places = {name: place for place, name in enumerate(workers)}
    receivers = np.array([places.get(title, -1) for title in named.titles()], dtype=np.int64)
    shown = np.flatnonzero(receivers[received.receivers] >= 0)
    count = len(shown)
    longest = shown[np.argsort(-received.durations[shown], kind="stable")[:_MOST_TRANSFERS]]
    longest = longest[np.lexsort((longest, receivers[received.receivers[longest]]))]
    rows = received.rows[longest]
    codes, used = np.unique(received.sources[longest], return_inverse=True)
    columns = {
        "starts": seconds(np.maximum(received.begins[longest], 0.0), delta=True),
        "durations": seconds(received.durations[longest]),
        "sizes": scaled(run.transfers["size"].to_numpy(dtype=float)[rows], step=1.0),
        "sources": pack_integers(used),
        "receivers": pack_integers(receivers[received.receivers[longest]]),
        "failed": pack_integers(~succeeded_rows(run.transfers)[rows]),
    }
    return columns, {"all": count, "sources": [received.names[code] for code in codes.tolist()]}
