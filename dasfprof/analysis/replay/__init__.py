"""A recorded run once more, on another cluster or with other durations, in simulated time.

`replay_of` gives the `Replay` of a trace: `inputs` and `gates` are taken from it, `costs` measured,
the `cluster` described; `simulation` runs them, with a `client`, `placement`, `stealing` and
`receiving` as Dask has these. On it rest `predictions`, `scaling`, `efficiency` and `gain`.
"""

from dasfprof.analysis.replay.gain import gain
from dasfprof.analysis.replay.replay import Replay, replay_of

__all__ = ["Replay", "gain", "replay_of"]
