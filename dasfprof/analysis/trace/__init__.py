"""From trace files to `Trace`: a recorded run as tables."""

from dasfprof.analysis.trace.trace import Database, Source, Trace

__all__ = ["Database", "Source", "Trace"]
