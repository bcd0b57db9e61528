"""Comparison of all runs in a directory over time.

Stored summaries make this fast for thousands of runs.
"""

from dasfprof.analysis.history.over_time import history

__all__ = ["history"]
