"""A run while it is being recorded: what was appended to its files, as running totals.

`LiveRun` follows the files of a run; `LiveRun.read` takes what is new and returns a `RunState`.
Nothing is kept of single task runs but counts, sums and histograms, so that a long run costs what
a short one does.
"""

from dasfprof.analysis.live.run import LiveRun
from dasfprof.analysis.live.state import RunState

__all__ = ["LiveRun", "RunState"]
