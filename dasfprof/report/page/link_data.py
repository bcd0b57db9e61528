"""Links of task runs, the critical path and transfers: columns of a page, and what was moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dasfprof.analysis.model.critical_path import SegmentKind, path_segments
from dasfprof.analysis.model.links import find_links
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.model.transfers import succeeded_rows
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import NamedWorkers
from dasfprof.analysis.tables.critical_path import KINDS
from dasfprof.database.columns import Array
from dasfprof.report.formats.tracks import numbered
from dasfprof.report.page.document import PackedColumn, offsets, scaled, seconds, whole_numbers


def exact_links(run: Run, rows: Array, ranks: Array) -> dict[str, PackedColumn]:
    """Pack the inputs of the runs of which the page would say something else by their keys.

    The page takes a run to have the inputs of its key, as its last run had them, and each to be
    made by the one run of that key; by none, where there are several. That takes little room, and
    is wrong of keys that ran again.

    Parameters
    ----------
    run
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
    links = find_links(run)
    place = np.full(len(run.tasks) + len(run.scheduler_only) + 1, -1)
    place[rows] = np.arange(len(rows))
    target, producer = place[: len(run.tasks)][links.row], place[links.producer]
    key_ids = run.tasks["key_id"].to_numpy()
    runs = np.bincount(key_ids[rows], minlength=len(run.keys))
    only = np.full(len(run.keys), -1)
    only[key_ids[rows]] = np.arange(len(rows))
    wrong = np.where(runs[links.key_id] == 1, only[links.key_id], -1) != producer
    told = np.zeros(len(rows), dtype=bool)
    told[target[wrong & (target >= 0)]] = True
    told |= _unlike_their_key(run)[rows]
    kept = np.flatnonzero((target >= 0) & told[target])
    kept = kept[np.argsort(target[kept], kind="stable")]
    counts = np.bincount(target[kept], minlength=len(rows))
    return {
        "rows": whole_numbers(np.flatnonzero(told), delta=True),
        "inputs": offsets(counts[told]),
        "keys": whole_numbers(ranks[links.key_id[kept]]),
        "producers": whole_numbers(producer[kept] + 1),
    }


def _unlike_their_key(run: Run) -> Array:
    """Return which task runs had other inputs than `Trace.dependencies` tells of their keys."""
    lengths, items = run.task_dependencies
    lengths, key_ids = np.maximum(lengths, 0), run.tasks["key_id"].to_numpy()
    begins, ids = run.dependencies
    unlike: Array = lengths != np.diff(begins)[key_ids]
    of_row, within = numbered(lengths)
    alike = ~unlike[of_row]
    of_row, within = of_row[alike], within[alike]
    other = ids[begins[key_ids[of_row]] + within] != items[alike]
    unlike[of_row[other]] = True
    return unlike


#: A kind of waits has the colour of the class of thread time; work has that of its task.
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
    run
        The trace.
    rows
        The row of `Trace.tasks` that each row of the page is about; those of task runs that had
        not ended are behind its last.

    Returns
    -------
    columns, facts
        The columns start, length, kind and page row of each segment (one behind the last row: the
        page does not have that task run); and the kinds with their meanings and colours.
    """
    path = path_segments(run)
    places = np.full(max(len(run.tasks), path.rows.max(initial=-1) + 1), len(rows))
    ended = np.flatnonzero(rows < len(run.tasks))
    places[rows[ended]] = ended
    columns = {
        "starts": seconds(path.begin),
        "durations": seconds(path.length),
        "kinds": whole_numbers(path.kind),
        "rows": whole_numbers(places[path.rows]),
    }
    kinds = [
        {"name": label, "meaning": meaning, "colour": _COLOURS.get(kind, _NO_COLOUR)}
        for kind, (label, meaning) in KINDS.items()
    ]
    return columns, {"kinds": kinds}


@dataclass(frozen=True)
class ReceivedTransfers:
    """Transfers that have a time, by receiver in the order of names, and begin."""

    #: The rows of `Trace.transfers`.
    rows: Array
    #: Seconds from the trace's begin, by one clock.
    begins: Array
    durations: Array
    #: Numbers of `NamedWorkers`.
    receivers: Array
    #: Who sent each, as places in `names`: workers' names, addresses of others, "unknown".
    sources: Array
    names: list[str]

    @classmethod
    def of(cls, run: Run, workers: NamedWorkers) -> ReceivedTransfers:
        """Find those of a trace."""
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
    """Return the sender's name for each category of the transfers' sources, and for NA."""
    titles = workers.titles()
    known = {
        address: titles[number]
        for address, number in zip(run.workers["address"], workers.of_lives, strict=True)
        if address is not None
    }
    addresses = run.transfers["source"].cat.categories
    return [*(str(known.get(address, address)) for address in addresses), "unknown"]


#: A page has the longest of more: about 0.13 MB.
_MOST_TRANSFERS = 10_000


def transfer_columns(
    run: Run, workers: list[str]
) -> tuple[dict[str, PackedColumn], dict[str, Any]]:
    """Pack the transfers.

    Parameters
    ----------
    run
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
    named = run.named
    found = ReceivedTransfers.of(run, named)
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
        "sizes": scaled(run.transfers["size"].to_numpy(dtype=float)[rows], step=1.0),
        "sources": whole_numbers(used),
        "receivers": whole_numbers(receivers[found.receivers[longest]]),
        "failed": whole_numbers(~succeeded_rows(run.transfers)[rows]),
    }
    return columns, {"all": count, "sources": [found.names[code] for code in codes.tolist()]}
