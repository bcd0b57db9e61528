"""Calls of actors as slices."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.report.formats.slices.arguments import Argument, Names
from dasfprof.report.formats.slices.tracks import Slices, Tracks, side_by_side, to_nanoseconds


class ActorCallSlices:
    """The calls of a run on tracks of the workers that have the actors.

    Parameters
    ----------
    run
        The run.
    tracks
        Gets as many tracks a worker as it had calls at a time.
    """

    def __init__(self, run: Run, tracks: Tracks) -> None:
        self._trace, workers = run.trace, run.workers
        calls = run.trace.actor_calls
        begins = run.at(calls, "start")
        ends = begins + np.maximum(calls["duration"].to_numpy(dtype=float), 0.0)
        placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(ends))
        numbers = workers.numbers(calls)
        rows = placed[np.lexsort((begins[placed], workers.ranks()[numbers[placed]]))]
        starts, stops = to_nanoseconds(begins[rows], ends[rows])
        of_slices = np.zeros(len(rows), dtype=np.int64)
        titles = workers.titles()
        for number in pd.unique(numbers[rows]).tolist():
            own = np.flatnonzero(numbers[rows] == number)
            places = side_by_side(starts[own], stops[own])
            name = f"{titles[number]}, calls of actors"
            more = [f"{name} ({place + 1})" for place in range(1, int(places.max()) + 1)]
            process = tracks.process(str(workers.hosts[number]))
            ids = np.array([tracks.add(process, title) for title in [name, *more]])
            of_slices[own] = ids[places]
        #: Where and when each was.
        self.slices = Slices(rows, starts, stops, of_slices)

    def names(self) -> Names:
        """Return what each slice is called: the actor's class and the method."""
        calls = self._trace.actor_calls
        codes, functions = self._trace.keys.functions()
        actors = np.array(functions, dtype=object)[codes[calls["key_id"].to_numpy()]]
        names = [
            f"{actor}.{method}"
            for actor, method in zip(actors, calls["method"].astype(object), strict=True)
        ]
        places, texts = pd.factorize(np.array(names, dtype=object))
        return Names("name", [str(text) for text in texts], places).taken(self.slices.rows)

    def arguments(self) -> list[Argument]:
        """Return all else that is known of the slices."""
        calls = self._trace.actor_calls
        places, texts = pd.factorize(self._trace.keys.texts(calls["key_id"].to_numpy()))
        told = [Names("actor", [str(text) for text in texts], places)]
        told.append(Names.of("state", calls["state"]))
        return [argument.taken(self.slices.rows) for argument in told]
