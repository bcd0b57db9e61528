"""Arrival of graphs in a replay: after fixed delays, or when results of earlier tasks are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.task_runs import TaskTimes
from dasfprof.database.columns import Array

#: Threshold (seconds): if graphs were not recorded, arrivals of tasks that are further apart belong
#: to different graphs.
_APART = 0.001
#: Maximum seconds from the end of a task to the arrival of a graph that waited for this task.
_PROMPT = 0.02
#: Threshold (fraction of the graphs that arrive while tasks run): most graphs waited for results.
_MOSTLY = 0.8
#: Minimum ratio of the number of graphs to the maximum number of open results, if the client limits
#: the number of open results.
_GRAPHS_PER_OPEN_RESULT = 5


@dataclass(frozen=True)
class GraphSubmissions:
    """The graphs of a run in the order of arrival. No task run starts before its graph arrives."""

    #: Number of reported finishes for which each graph waits. If it is 0, the graph does not wait
    #: for results, but follows the previous graph.
    finishes: Array
    #: Seconds from the last of these finishes, or from the previous graph, to the arrival of each
    #: graph.
    delay: Array
    #: Seconds that the scheduler needs for each graph.
    span: Array
    #: Mask of task runs whose finish is reported to a client.
    reported: Array


def find_submissions(run: Run, times: TaskTimes, threads: int) -> tuple[Array, GraphSubmissions]:
    """Return the index of each task run's graph, and when the clients submit the graphs.

    `threads` is the number of threads of all workers.
    """
    arrival, reported = times.arrival, _reported_to_clients(run, len(times))
    if not len(arrival):
        none = np.empty(0, dtype=np.int64)
        return none, GraphSubmissions(none, np.empty(0), np.empty(0), reported)
    graph = _graph_of(run, arrival)
    count = int(graph.max()) + 1
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, graph, arrival)
    came = _came_with_graph(run, len(arrival))
    np.maximum.at(last, graph[came], arrival[came])
    known, sizes = np.sort(times.known[reported]), np.bincount(graph[reported], minlength=count)
    before = np.cumsum(sizes) - sizes
    # A graph did not wait for a task run that ended at the time of its arrival.
    simultaneous = np.bincount(graph[reported & (times.known <= first[graph])], minlength=count)
    finished = np.minimum(np.searchsorted(known, first, side="right") - simultaneous, before)
    since_finish = first - np.append(-np.inf, known)[finished]
    since_graph = np.diff(first, prepend=first[0])
    # Dask does not record what a client waits for, so it is inferred. A graph that arrives when all
    # requested results are finished is assumed to have waited for them.
    idle = (finished > 0) & (finished == before)
    others = (finished > 0) & ~idle
    # If most other graphs arrive promptly after a requested result is finished, as from clients
    # that process results as they complete, the prompt ones are assumed to have waited for this
    # result.
    prompt = others & (since_finish < _PROMPT) & (since_finish < since_graph / 2)
    # Some graphs arrive promptly by chance.
    mostly_prompt = prompt.sum() >= _MOSTLY * others.sum()
    # If the client limits the number of unfinished results, all graphs are assumed to have waited
    # for the last result that was finished before.
    if _is_limited(before - finished, others, threads):
        waited = idle | others
    else:
        waited = idle | prompt if mostly_prompt else idle
    # A graph that did not wait is assumed to follow the previous graph after a fixed time.
    delay = np.maximum(np.where(waited, since_finish, since_graph), 0.0)
    return graph, GraphSubmissions(
        np.where(waited, finished, 0), delay, np.maximum(last - first, 0.0), reported
    )


def _is_limited(open_results: Array, others: Array, threads: int) -> bool:
    """Return whether the client seems to limit its number of unfinished results.

    `open_results` is the number of unfinished results when each graph arrives. `others` is a mask
    of the graphs to check.
    """
    if not others.any():
        return False
    # For example, joblib's `pre_dispatch` sets such a limit. A client that submitted graphs at a
    # fixed rate would instead leave threads idle, or have a growing number of unfinished results.
    enough = open_results[others] + 1 >= threads
    few = open_results.max() * _GRAPHS_PER_OPEN_RESULT <= len(open_results)
    return bool(few and enough.mean() >= _MOSTLY)


def _reported_to_clients(run: Run, count: int) -> Array:
    """Return a mask of the task runs whose end was reported to a client (all if not recorded)."""
    if "wanted" not in run.tasks:
        return np.ones(count, dtype=bool)
    reported: Array = run.of_slots("wanted").astype(float) != 0
    return reported if reported.any() else np.ones(count, dtype=bool)


def _came_with_graph(run: Run, count: int) -> Array:
    """Return a mask of task runs that arrived with their graph."""
    first_runs = np.zeros(count, dtype=bool)
    if "scheduler_waiting" in run.tasks:
        arrival = run.tasks["scheduler_waiting"].to_numpy(dtype=float)
        order = np.lexsort((arrival, run.tasks["key_id"].to_numpy()))
        key_ids = run.tasks["key_id"].to_numpy()[order]
        # Only the first run of each key may arrive with its graph.
        first = np.diff(key_ids, prepend=-1) != 0
        first_runs[order[first]] = np.isfinite(arrival[order[first]])
    return first_runs


def _graph_of(run: Run, arrival: Array) -> Array:
    """Number the graphs that have task runs by arrival, and return each task run's number."""
    if "scheduler_waiting" not in run.tasks:
        # The times at which workers received tasks are later than the arrival of the graph.
        return np.zeros(len(arrival), dtype=np.int64)
    came = np.sort(run.since_begin(run.graphs["time"]))
    came = came[np.isfinite(came)]
    if not len(came):
        ordered = np.sort(arrival)
        came = ordered[np.diff(ordered, prepend=-np.inf) > _APART]
    # Because times are rounded, a task run may seem to arrive slightly before its graph.
    indices = np.searchsorted(came, arrival + 1e-6, side="right")
    return np.unique(indices, return_inverse=True)[1]


class SimulatedClient:
    """All clients together, which submit the graphs of a run one after another.

    Methods return the time and the index of the next graph, or None if it has to wait for another
    finished task.

    Parameters
    ----------
    submissions
        The graphs, and the finished tasks for which each of them waits.
    """

    def __init__(self, submissions: GraphSubmissions) -> None:
        self._needs: list[int] = submissions.finishes.tolist()
        self._delay: list[float] = submissions.delay.tolist()
        #: Times at which the clients learned of finished tasks, in order.
        self._reported: list[float] = []
        #: Graph that waits for further finished tasks, or 0 if no graph waits.
        self.held_back = 0

    def submitted(self, graph: int, now: float) -> tuple[float, int] | None:
        """Record that a graph was submitted, and return the next graph if it can be submitted."""
        following = graph + 1
        if following >= len(self._needs):
            return None
        need, delay = self._needs[following], self._delay[following]
        if not need:
            return now + delay, following
        if len(self._reported) >= need:
            return max(now, self._reported[need - 1] + delay), following
        self.held_back = following
        return None

    def finished(self, now: float) -> tuple[float, int] | None:
        """Record that the clients learn of a finished task at the time `now`.

        If a graph was held back until now, and enough tasks have finished for it, return the time
        of its arrival and its index. Otherwise, return None.
        """
        self._reported.append(now)
        graph = self.held_back
        if not graph or len(self._reported) < self._needs[graph]:
            return None
        self.held_back = 0
        return now + self._delay[graph], graph
