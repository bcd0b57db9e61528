"""What a trace means: `Trace`, the run as tables, and `TraceAnalyser`, which answers questions."""

from dasfprof.analysis.analyser import TraceAnalyser
from dasfprof.analysis.trace import Trace

__all__ = ["Trace", "TraceAnalyser"]
