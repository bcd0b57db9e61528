"""`Run`: the normal form of a `Trace`, with task runs, threads and workers on one clock."""

from dasfprof.analysis.run.run import Run

__all__ = ["Run"]
