"""A run while it is being recorded, as the scheduler's last counts have it.

`LiveRun` follows the files of a run; `LiveRun.read` takes what is new and returns a `RunState`.
The scheduler writes its totals once a second, so nothing is counted here.
"""

from dasfprof.analysis.live.run import LiveRun
from dasfprof.analysis.live.state import RunState

__all__ = ["LiveRun", "RunState"]
