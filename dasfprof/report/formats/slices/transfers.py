"""Transfers between workers as slices."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.model.run import Run
from dasfprof.report.formats.slices.arguments import Argument, Names, seconds, sizes
from dasfprof.report.formats.slices.arrows import Arrows, Producers, items_of
from dasfprof.report.formats.slices.tracks import Slices, Tracks, side_by_side, to_nanoseconds
from dasfprof.report.received_transfers import ReceivedTransfers

#: Args of a transfer, by the column of `Trace.transfers` that has them.
_SIZES = {"size": "size (B)", "keys": "keys"}
_SECONDS = {"network": "network (s)", "deserialize": "deserialise (s)"}


class TransferSlices:
    """The transfers of a run on tracks of the workers that received them.

    Parameters
    ----------
    run
        The run.
    tracks
        Gets as many tracks a worker as it had transfers at a time.
    """

    def __init__(self, run: Run, tracks: Tracks) -> None:
        self._trace, workers = run.trace, run.workers
        self._found = found = ReceivedTransfers.of(run)
        rows, begins = found.rows, found.begins
        receivers = workers.ranks()[found.receivers]
        starts, stops = to_nanoseconds(begins, begins + found.durations)
        of_slices = np.zeros(len(rows), dtype=np.int64)
        titles, by_rank = workers.titles(), np.argsort(workers.ranks())
        for rank in np.unique(receivers).tolist():
            first, end = np.searchsorted(receivers, [rank, rank + 1]).tolist()
            number = by_rank[rank]
            places = side_by_side(starts[first:end], stops[first:end])
            name = f"{titles[number]}, transfers in"
            more = [f"{name} ({place + 1})" for place in range(1, int(places.max()) + 1)]
            process = tracks.process(str(workers.hosts[number]))
            ids = np.array([tracks.add(process, title) for title in [name, *more]])
            of_slices[first:end] = ids[places]
        #: Where and when each was.
        self.slices = Slices(rows, starts, stops, of_slices)

    def names(self) -> Names:
        """Return what each slice is called: where it came from."""
        names = [f"from {name}" for name in self._found.names]
        return Names("name", names, self._found.sources)

    def arguments(self) -> list[Argument]:
        """Return all else that is known of the slices."""
        table = self._trace.transfers
        told = [Names.of("state", table["state"]), *sizes(table, _SIZES), *seconds(table, _SECONDS)]
        return [argument.taken(self.slices.rows) for argument in told]

    def arrows(self, producers: Producers, part: slice) -> Arrows:
        """Return the arrows to some of the slices from the task runs whose results they moved."""
        counts, ids = self._trace.transfer_keys
        counts = np.maximum(counts, 0)
        rows = self.slices.rows[part]
        keys, of_row = items_of(ids, (np.cumsum(counts) - counts)[rows], counts[rows])
        to = part.start + of_row
        made = producers.of_keys(keys, self.slices.starts[to])
        return Arrows.between(producers.slices, made, self.slices, to)
