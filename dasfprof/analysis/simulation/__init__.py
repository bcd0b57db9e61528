"""Replays of a recorded run in simulated time, with other durations or on another cluster.

`replay_of` returns the `Replay` of a run. `inputs` and `submission` collect the task graph, the
costs and the cluster. `simulator` replays them by Dask's rules, which `placement` contains. The
predictions in `changes`, `clusters` and `memory` are made from such replays.
"""

from dasfprof.analysis.simulation.changes import gain
from dasfprof.analysis.simulation.replay import Replay, replay_of

__all__ = ["Replay", "gain", "replay_of"]
