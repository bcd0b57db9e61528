"""A run in progress, shown from the totals that its scheduler records.

`LiveRun` follows the files of a run. `LiveRun.read` reads new events and returns a `RunState`. The
scheduler records its totals once a second, so tasks need not be counted here.
"""

from dasfprof.analysis.live.run import LiveRun
from dasfprof.analysis.live.state import RunState

__all__ = ["LiveRun", "RunState"]
