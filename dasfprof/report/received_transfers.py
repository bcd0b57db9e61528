"""The transfers that workers received, in the order in which lanes show them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.run import Run
from dasfprof.database.columns import Array


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
    def of(cls, run: Run) -> ReceivedTransfers:
        """Find those of a run."""
        table, workers = run.trace.transfers, run.workers
        begins = run.at(table, "start")
        durations = np.maximum(table["duration"].to_numpy(), 0.0)
        placed = np.flatnonzero(np.isfinite(begins) & np.isfinite(durations))
        receivers = workers.numbers(table)[placed]
        order = np.lexsort((begins[placed], workers.ranks()[receivers]))
        rows = placed[order]
        codes = table["source"].cat.codes.to_numpy()[rows].astype(np.int64)
        names = _sources(run)
        sources = np.where(codes < 0, len(names) - 1, codes)
        return cls(rows, begins[rows], durations[rows], receivers[order], sources, names)


def _sources(run: Run) -> list[str]:
    """Return the sender's name for each category of the transfers' sources, and for NA."""
    titles, trace = run.workers.titles(), run.trace
    known = {
        address: titles[number]
        for address, number in zip(trace.workers["address"], run.workers.of_lives, strict=True)
        if address is not None
    }
    addresses = trace.transfers["source"].cat.categories
    return [*(str(known.get(address, address)) for address in addresses), "unknown"]
