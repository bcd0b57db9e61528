"""The lines of the client's program that asked for results: where their futures were made."""

from __future__ import annotations

from pathlib import PurePath

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.database.columns import Array

#: Calls of Dask that send graphs.
_SENDING = ("compute", "persist", "submit", "map")


@once_per_trace
def asked_lines(trace: Run) -> Array:
    """Find the line that sent the graph of each of `Trace.tasks`; empty: nothing tells.

    A client's graphs arrive in the order in which they were sent, and each was sent within a call.
    Several calls at a time, as of threads or of short ones in turns, tell nothing.
    """
    found = np.full(len(trace.tasks), "", dtype=object)
    if "graph" not in trace.tasks or not len(trace.client_calls):
        return found
    of_graph = dict(zip(trace.graphs["stimulus"].tolist(), _of_graphs(trace), strict=True))
    stimuli = np.nan_to_num(trace.tasks["graph"].to_numpy(dtype=float), nan=-1.0)
    found[:] = [of_graph.get(stimulus, "") for stimulus in stimuli.astype(np.int64).tolist()]
    return found


def _of_graphs(trace: Run) -> list[str]:
    """Return the line that sent each graph."""
    graphs, sent = trace.graphs, trace.graphs_sent
    lines = [""] * len(graphs)
    clients = graphs["client"].astype(object).to_numpy()
    senders = sent["client"].astype(object).to_numpy()
    arrivals = graphs["time"].to_numpy(dtype=float)
    for client in dict.fromkeys(senders.tolist()):
        arrived = np.flatnonzero(clients == client)
        times = np.sort(sent["time"].to_numpy(dtype=float)[senders == client])
        if len(arrived) != len(times):
            continue  # some of either were not recorded
        arrived = arrived[np.argsort(arrivals[arrived], kind="stable")]
        for graph, line in zip(arrived.tolist(), _of_calls(trace, times), strict=True):
            lines[graph] = line
    return lines


def _of_calls(trace: Run, times: Array) -> list[str]:
    """Return the line of the one call that was under way at each time; empty: none, or several."""
    calls = trace.client_calls
    calls = calls[calls["call"].isin(_SENDING).to_numpy() & (calls["line"] >= 0).to_numpy()]
    begin, stop = (calls[name].to_numpy(dtype=float) for name in ("time", "stop"))
    begun, ended = np.argsort(begin, kind="stable"), np.argsort(stop, kind="stable")
    first = np.searchsorted(begin[begun], times, side="right")
    over = np.searchsorted(stop[ended], times, side="left")
    # Of the rows that have begun, less those that have ended, one is left: its number.
    left = np.append(0, np.cumsum(begun))[first] - np.append(0, np.cumsum(ended))[over]
    noted = zip(*(trace.lines[name] for name in ("file", "number", "line", "fused")), strict=True)
    named = {(file, number): line for file, number, line, fused in noted if not fused}
    files, numbers = calls["file"].astype(object).tolist(), calls["line"].tolist()
    found = []
    for row in np.where(first - over == 1, left, -1).tolist():
        file, number = (files[row], numbers[row]) if row >= 0 else ("", -1)
        usual = f"{PurePath(str(file)).name}:{number}" if row >= 0 else ""
        found.append(str(named.get((file, number), usual)))
    return found
