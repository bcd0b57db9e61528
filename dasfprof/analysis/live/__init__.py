"""A run in progress, from the scheduler's last counts.

`LiveRun` follows the files of a run. `LiveRun.read` reads new events and returns a `RunState`. The
scheduler writes its totals once a second, so nothing is counted here.
"""

from dasfprof.analysis.live.run import LiveRun
from dasfprof.analysis.live.state import RunState

__all__ = ["LiveRun", "RunState"]
