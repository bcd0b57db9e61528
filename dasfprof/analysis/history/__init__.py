"""The runs of a directory over time: a summary of each, kept so that thousands are read at once."""

from dasfprof.analysis.history.over_time import history, keep_summary

__all__ = ["history", "keep_summary"]
