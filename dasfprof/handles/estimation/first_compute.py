"""`FirstCompute`: estimates the first computation of a script, and ends the script there."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from dasfprof.handles.script import when_imported

if TYPE_CHECKING:
    from dasfprof.handles.estimation.estimate import Estimate


class _Stop(SystemExit):
    """Raised to end the script. It is not an Exception, so scripts do not catch it."""


class FirstCompute:
    """Ends a script at its first computation, and estimates the cost of this computation.

    See `estimate` for the arguments.
    """

    def __init__(self, workers: int | None, memory_limit: str | None) -> None:
        self._workers, self._limit = workers, memory_limit
        self._lock = threading.Lock()
        #: The estimate, or the error that prevented it. None before the first computation.
        self.estimate: Estimate | None = None
        self.error: Exception | None = None

    def listen(self) -> None:
        """Place the hooks for the first computation as soon as the script imports Dask."""
        # The script itself imports Dask, because it may set options that Dask reads on import.
        when_imported("distributed", self._place)
        when_imported("dask", lambda: import_module("distributed"))

    def _place(self) -> None:
        from dasfprof.recording.dask_internals import names
        from dasfprof.recording.dask_internals.captured_graphs import stop_at_first_compute
        from dasfprof.recording.dask_internals.graphs import place_hooks, watch_collections

        stop_at_first_compute(self._take)
        place_hooks()
        for module in names.EXPRESSIONS:
            when_imported(module, watch_collections)

    def _take(self, graph: Any, keys: Any) -> NoReturn:
        from dasfprof.handles.estimation.assumed_cluster import assumed_cluster
        from dasfprof.handles.estimation.estimate import estimate_graph

        with self._lock:
            try:
                if self.estimate is None:
                    cluster = assumed_cluster(self._workers, self._limit)
                    self.estimate = estimate_graph(graph, keys, [graph], cluster)
            except Exception as error:  # The script might catch this error.
                self.error = error
        raise _Stop(0)
