"""Dependencies and transfers as the arrows of a Chrome trace."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.model.clock_offsets import clock_offsets
from dasfprof.analysis.model.links import ResultsByKey, find_links
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.report.formats.perfetto.tasks import microseconds, named, seconds, sizes
from dasfprof.report.formats.perfetto.tracks import Slices, Tracks, side_by_side, to_nanoseconds
from dasfprof.report.json_text import json_text

#: Args of a transfer, by the column of `Trace.transfers` that has them.
_SIZES = {"size": "size (B)", "keys": "keys"}
_SECONDS = {"network": "network (s)", "deserialize": "deserialise (s)"}


class Producers:
    """Finds the task run that made a result.

    Parameters
    ----------
    trace, slices
        The trace, and its task runs.
    """

    def __init__(self, trace: Trace, slices: Slices) -> None:
        self._links = find_links(trace)
        self._first = np.searchsorted(self._links.row, np.arange(len(trace.tasks) + 1))
        self._rows = slices.rows
        #: The slice of each row of `TaskSlots`, -1 where there is none; the last is that of row -1.
        self._slices = np.full(len(trace.tasks) + len(trace.scheduler_only) + 1, -1)
        self._slices[slices.rows] = np.arange(len(slices))
        state = trace.tasks["state"]
        made = np.flatnonzero((state.isna() | (state == "memory")).to_numpy()[slices.rows])
        keys = trace.tasks["key_id"].to_numpy()[slices.rows]
        self._results = ResultsByKey(keys, slices.stops, made)

    def of_inputs(self, targets: Array) -> tuple[Array, Array]:
        """Find the slices that made the inputs of some slices; gives pairs of both."""
        rows = self._rows[targets]
        counts = self._first[rows + 1] - self._first[rows]
        links, of_target = _items(self._links.producer, self._first[rows], counts)
        return self._slices[links], targets[of_target]

    def of_keys(self, keys: Array, before: Array) -> Array:
        """Find the last slice of each key that had made a result by a time; -1: none.

        A key's one run stands for a result that it made before by another clock alone.
        """
        found = self._results.last_before(keys, before)
        return np.where(found < 0, self._results.only(keys), found)


class Flows:
    """Numbers arrows, and writes them.

    Parameters
    ----------
    slices
        Where they come from: the task runs.
    places
        What `Tracks.places` gives.
    """

    def __init__(self, slices: Slices, places: Array) -> None:
        self._slices = slices
        self._places = places
        self._count = 0

    def events(self, kind: str, made: Array, targets: Slices, to: Array) -> Iterator[str]:
        """Yield both ends of the arrows from the runs that made results to some slices.

        An arrow that would go back in time, since two clocks disagree, leaves its slice early; one
        that would have to leave it before its begin is left out.

        Parameters
        ----------
        kind
            What to call them.
        made
            The slice that made each; -1: none.
        targets, to
            Slices, and which of them each went to.
        """
        source = self._slices
        known = np.flatnonzero(made >= 0)
        made, to = made[known], to[known]
        arrival = targets.starts[to]
        leaving = np.minimum(source.stops[made] - 1, arrival)
        drawn = leaving >= source.starts[made]
        made, to = made[drawn], to[drawn]
        ids = range(self._count + 1, self._count + 1 + len(made))
        self._count += len(made)
        about = f'"name":"{kind}","cat":"{kind}"}}'
        ends = zip(
            ids,
            self._places[source.tracks[made]].tolist(),
            microseconds("ts", leaving[drawn]),
            self._places[targets.tracks[to]].tolist(),
            microseconds("ts", arrival[drawn]),
            strict=True,
        )
        for number, here, left, there, arrived in ends:
            yield f'{{"ph":"s","id":{number},{here},{left}{about}'
            yield f'{{"ph":"f","bp":"e","id":{number},{there},{arrived}{about}'


def dependency_events(
    producers: Producers, flows: Flows, slices: Slices, part: slice
) -> Iterator[str]:
    """Yield the arrows to some of the task runs from those whose results they took."""
    made, to = producers.of_inputs(np.arange(part.start, part.stop))
    return flows.events("dependency", made, slices, to)


class TransferSlices:
    """The transfers of a trace on tracks of the workers that received them.

    Parameters
    ----------
    trace
        The trace.
    tracks
        Gets as many tracks a worker as it had transfers at a time.
    """

    def __init__(self, trace: Trace, tracks: Tracks) -> None:
        self._trace = trace
        table, workers = trace.transfers, NamedWorkers(trace)
        self._sources = _sources(trace, workers)
        offsets = clock_offsets(trace)[table["worker_id"].to_numpy()]
        begins = table["start"].to_numpy() - trace.begin - offsets
        durations = np.maximum(table["duration"].to_numpy(), 0.0)
        placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(durations))
        receivers = workers.ranks()[workers.numbers(table)[placed]]
        order = np.lexsort((begins[placed], receivers))
        rows, receivers = placed[order], receivers[order]
        starts, stops = to_nanoseconds(begins[rows], begins[rows] + durations[rows])
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

    def events(self, part: slice, places: Array) -> Iterator[str]:
        """Yield the events of some of the slices."""
        slices, table = self.slices, self._trace.transfers
        rows = slices.rows[part]
        source = table["source"].cat.codes.to_numpy()[rows]
        states = table["state"].cat
        state_texts = np.array([*map(json_text, states.categories), '""'], dtype=object)
        pieces = (
            [f'{{"ph":"X",{place},"cat":"transfer",' for place in places[slices.tracks[part]]],
            microseconds("ts", slices.starts[part]),
            microseconds("dur", slices.stops[part] - slices.starts[part]),
            named("name", [f"from {name}" for name in self._sources], source),
            [f'"args":{{"state":{text}' for text in state_texts[states.codes.to_numpy()[rows]]],
            *(sizes(label, table[name].to_numpy()[rows]) for name, label in _SIZES.items()),
            *(seconds(label, table[name].to_numpy()[rows]) for name, label in _SECONDS.items()),
            ["}}"] * len(rows),
        )
        yield from map("".join, zip(*pieces, strict=True))

    def arrows(self, producers: Producers, flows: Flows, part: slice) -> Iterator[str]:
        """Yield the arrows to some of the slices from the task runs whose results they moved."""
        counts, ids = self._trace.transfer_keys
        counts = np.maximum(counts, 0)
        rows = self.slices.rows[part]
        keys, of_row = _items(ids, (np.cumsum(counts) - counts)[rows], counts[rows])
        to = part.start + of_row
        made = producers.of_keys(keys, self.slices.starts[to])
        return flows.events("transfer", made, self.slices, to)


def _items(ids: Array, begins: Array, counts: Array) -> tuple[Array, Array]:
    """Take lists out of those of all rows; gives their items, and which list each is of."""
    of_row = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(of_row)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ids[begins[of_row] + within].astype(np.int64), of_row


def _sources(trace: Trace, workers: NamedWorkers) -> list[str]:
    """Return the sender's name for each category of the transfers' sources, and for NA."""
    titles = workers.titles()
    known = {
        address: titles[number]
        for address, number in zip(trace.workers["address"], workers.of_lives, strict=True)
        if address is not None
    }
    addresses = trace.transfers["source"].cat.categories
    return [*(str(known.get(address, address)) for address in addresses), "unknown"]
