"""`Run`: the normal form of a `Trace`, with task runs, threads and workers on one clock."""

from dasfprof.analysis.run.run import Run, RunWithUnfinished

__all__ = ["Run", "RunWithUnfinished"]
