"""Construction of a `Run` from a `Trace`: task runs, threads and workers on one clock."""

from dasfprof.analysis.run.run import Run

__all__ = ["Run"]
