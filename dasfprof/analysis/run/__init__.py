"""From a `Trace` to a `Run`: task runs, threads and workers on one clock."""

from dasfprof.analysis.run.run import Run

__all__ = ["Run"]
