"""Two sides of runs, side by side: is one faster, by what, and what else differs between them."""

from dasfprof.analysis.comparison.comparison import RunComparison, compare
from dasfprof.analysis.comparison.gate import Gate, check_slower

__all__ = ["Gate", "RunComparison", "check_slower", "compare"]
