"""When graphs come: at their own pace, or after results that the client waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.times import TaskTimes
from dasfprof.database.columns import Array

#: Without records of graphs, arrivals that are further apart belong to different ones: seconds.
_APART = 0.001
#: Maximum seconds from the end of a task to a graph that waited for it, of a client silent before.
_PROMPT = 0.02
#: Threshold (fraction of the graphs that come while tasks run): clients wait for results.
_MOSTLY = 0.8


@dataclass(frozen=True)
class GraphSubmissions:
    """The graphs of a run, in the order in which they came. A run begins after its graph came."""

    #: After how many finishes that clients were told of each comes; 0 for one that comes after the
    #: graph before it.
    finishes: Array
    #: Seconds that it comes later than that.
    delay: Array
    #: Seconds for which it keeps the scheduler.
    span: Array
    #: For each run whether a client was told of its finish.
    told: Array


def find_submissions(trace: Run, times: TaskTimes) -> tuple[Array, GraphSubmissions]:
    """Find the graph that each run came with, and what each graph waited for.

    Dask does not record what a client waits for. A graph that comes when all is finished that
    clients wanted before it waited for that. Where most others come promptly after such a finish,
    with no graph since, they waited for it, as clients do that take results as they complete.
    Else a client submits at its own pace.

    Returns
    -------
    graph, submissions
        For each run the number of its graph; and the graphs.
    """
    arrival, told = times.arrival, _told_clients(trace, len(times))
    if not len(arrival):
        none = np.empty(0, dtype=np.int64)
        return none, GraphSubmissions(none, np.empty(0), np.empty(0), told)
    graph = _graph_of(trace, arrival)
    count = int(graph.max()) + 1
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, graph, arrival)
    came = _came_with_graph(trace, len(arrival))
    np.maximum.at(last, graph[came], arrival[came])
    known, sizes = np.sort(times.known[told]), np.bincount(graph[told], minlength=count)
    before = np.cumsum(sizes) - sizes
    # What ended as it came is not among what its graph waited for.
    own = np.bincount(graph[told & (times.known <= first[graph])], minlength=count)
    finished = np.minimum(np.searchsorted(known, first, side="right") - own, before)
    since_finish = first - np.append(-np.inf, known)[finished]
    since_graph = np.diff(first, prepend=first[0])
    idle = (finished > 0) & (finished == before)
    others = (finished > 0) & ~idle
    prompt = others & (since_finish < _PROMPT) & (since_finish < since_graph / 2)
    # Some are prompt by chance.
    waited = idle | prompt if prompt.sum() >= _MOSTLY * others.sum() else idle
    delay = np.maximum(np.where(waited, since_finish, since_graph), 0.0)
    return graph, GraphSubmissions(
        np.where(waited, finished, 0), delay, np.maximum(last - first, 0.0), told
    )


def _told_clients(trace: Run, count: int) -> Array:
    """Return of which runs' finish clients were told; of all, where that was not recorded."""
    if "wanted" not in trace.tasks:
        return np.ones(count, dtype=bool)
    told: Array = trace.of_slots("wanted").astype(float) != 0
    return told if told.any() else np.ones(count, dtype=bool)


def _came_with_graph(trace: Run, count: int) -> Array:
    """Return which runs' arrival was that of a graph: a key's first ones, if that was recorded."""
    told = np.zeros(count, dtype=bool)
    if "scheduler_waiting" in trace.tasks:
        arrival = trace.tasks["scheduler_waiting"].to_numpy(dtype=float)
        order = np.lexsort((arrival, trace.tasks["key_id"].to_numpy()))
        key_ids = trace.tasks["key_id"].to_numpy()[order]
        first = np.diff(key_ids, prepend=-1) != 0
        told[order[first]] = np.isfinite(arrival[order[first]])
    return told


def _graph_of(trace: Run, arrival: Array) -> Array:
    """Number the graphs of runs in their order; graphs without runs have no number."""
    if "scheduler_waiting" not in trace.tasks:
        # Workers learn of tasks when they get them, which is not when a client wanted them.
        return np.zeros(len(arrival), dtype=np.int64)
    came = np.sort(trace.since_begin(trace.graphs["time"]))
    came = came[np.isfinite(came)]
    if not len(came):
        ordered = np.sort(arrival)
        came = ordered[np.diff(ordered, prepend=-np.inf) > _APART]
    # A tick of the times' rounding must not put a run before its graph.
    places = np.searchsorted(came, arrival + 1e-6, side="right")
    return np.unique(places, return_inverse=True)[1]


class SimulatedClient:
    """All clients together, which submit the graphs of a run one after the other.

    A graph is given as when it comes, and its number; None: not before another finish.

    Parameters
    ----------
    submissions
        What each graph waits for.
    """

    def __init__(self, submissions: GraphSubmissions) -> None:
        self._needs: list[int] = submissions.finishes.tolist()
        self._delay: list[float] = submissions.delay.tolist()
        #: When clients were told of finishes, one after the other.
        self._told: list[float] = []
        #: The graph that waits for some of these; 0: none.
        self.held_back = 0

    def submitted(self, graph: int, now: float) -> tuple[float, int] | None:
        """Note that a graph was submitted; gives the following one."""
        following = graph + 1
        if following >= len(self._needs):
            return None
        need, delay = self._needs[following], self._delay[following]
        if not need:
            return now + delay, following
        if len(self._told) >= need:
            return max(now, self._told[need - 1] + delay), following
        self.held_back = following
        return None

    def told(self, now: float) -> tuple[float, int] | None:
        """Note that a client is told of a finish; gives the graph that waited for it."""
        self._told.append(now)
        graph = self.held_back
        if not graph or len(self._told) < self._needs[graph]:
            return None
        self.held_back = 0
        return now + self._delay[graph], graph
