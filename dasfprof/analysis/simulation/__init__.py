"""A recorded run once more, on another cluster or with other durations, in simulated time.

`replay_of` gives the `Replay` of a trace: `inputs` and the `submission` of graphs are taken from
it, `costs` measured, the `cluster` described; the `simulator` runs them, with `placement`,
`stealing` and `receiving` as Dask has these. Predictions rest on it: `changes`, `scaling`,
`efficiency` and `gain`.
"""

from dasfprof.analysis.simulation.changes import gain
from dasfprof.analysis.simulation.replay import Replay, replay_of

__all__ = ["Replay", "gain", "replay_of"]
