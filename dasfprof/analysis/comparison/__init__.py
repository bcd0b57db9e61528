"""Comparison of two groups of runs: whether one is faster, why, and what else differs."""

from dasfprof.analysis.comparison.comparison import Comparison, Gate, check_slower

__all__ = ["Comparison", "Gate", "check_slower"]
