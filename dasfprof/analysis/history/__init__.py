"""The runs of a directory over time, with stored summaries so that thousands are read quickly."""

from dasfprof.analysis.history.over_time import history

__all__ = ["history"]
