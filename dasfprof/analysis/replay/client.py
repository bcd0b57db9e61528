"""The clients of a replay: when they submit each graph."""

from __future__ import annotations

from dasfprof.analysis.replay.gates import Gates


class SimulatedClient:
    """All clients together, which submit the graphs of a run one after the other.

    A graph is given as when it comes, and its number; None: not before another finish.

    Parameters
    ----------
    gates
        What each graph waits for.
    """

    def __init__(self, gates: Gates) -> None:
        self._needs: list[int] = gates.finishes.tolist()
        self._delay: list[float] = gates.delay.tolist()
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
