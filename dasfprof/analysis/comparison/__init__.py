"""Two sides of runs, side by side: is one faster, by what, and what else differs between them."""

from dasfprof.analysis.comparison.comparison import Comparison, Gate, check_slower

__all__ = ["Comparison", "Gate", "check_slower"]
