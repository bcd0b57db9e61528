"""Between what bounds a run's wall time lies, on any number of threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.simulation.inputs import ReplayInputs
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class Bounds:
    """The work of a run and its longest chain, seconds."""

    #: Of all threads together.
    work: float
    #: Of the chain of runs, each of which needs the one before, that takes the most; the client's
    #: pauses between graphs are part of it.
    chain: float

    def lower(self, threads: int) -> float:
        """Return what no schedule on so many threads is shorter than."""
        return max(self.chain, self.work / threads)

    def upper(self, threads: int) -> float:
        """Return what no schedule is longer than that leaves no thread idle while a task is ready.

        Graham (1969): ``work / P + (1 - 1 / P) * chain``, if nothing but tasks takes time.
        """
        return self.work / threads + (1 - 1 / threads) * self.chain


def find_bounds(inputs: ReplayInputs, held: Array) -> Bounds:
    """Find the bounds of a run by the seconds for which each task run holds a thread."""
    return Bounds(work=float(held.sum()), chain=_longest_chain(inputs, held))


def _longest_chain(inputs: ReplayInputs, held: Array) -> float:
    """Return when the last run would end if every run had a thread as soon as it could begin.

    A graph that came after some of the finishes before it counts as coming with the one before
    it: which of them would be first then is not known.
    """
    submissions = inputs.submissions
    order = np.lexsort((inputs.begun, inputs.graph))
    offsets, used = inputs.input_offsets.tolist(), inputs.inputs.tolist()
    seconds = (held + inputs.seceded).tolist()
    told = submissions.told.tolist()
    sizes = np.bincount(inputs.graph[submissions.told], minlength=len(submissions.delay))
    before = (np.cumsum(sizes) - sizes).tolist()
    finishes, delay = submissions.finishes.tolist(), submissions.delay.tolist()
    ends = [0.0] * len(inputs)
    came, latest_told, latest, current = 0.0, 0.0, 0.0, 0
    for row, graph in zip(order.tolist(), inputs.graph[order].tolist(), strict=True):
        while current < graph:
            current += 1
            if not finishes[current]:
                came += delay[current]
            elif finishes[current] == before[current]:
                came = max(came, latest_told + delay[current])
        end = came
        for one in used[offsets[row] : offsets[row + 1]]:
            end = max(end, ends[one])
        end += seconds[row]
        ends[row] = end
        latest = max(latest, end)
        if told[row]:
            latest_told = max(latest_told, end)
    return latest
