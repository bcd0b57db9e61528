"""How a run's wall time, efficiency and cost would change with the number of workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.simulation.arguments import is_count
from dasfprof.analysis.simulation.replay import Replay, replay_of
from dasfprof.analysis.simulation.scaling import predict_scaling
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

#: Shares of the recorded workers that are asked about if none are given.
_USUAL = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
#: A thread works for so large a share of its time where more workers are worth it.
_EFFICIENT = 0.8


@question("The run on other numbers of workers", "predictions")
def scaling(
    run: Run, workers: Sequence[int] | None = None, *, progress: bool = False
) -> pd.DataFrame:
    """Predict wall time, efficiency and cost on fewer and on more workers.

    Parameters
    ----------
    workers
        Numbers of workers; None asks about 10 % to 1000 % of the recorded ones. Each takes a
        replay.

    Returns
    -------
    DataFrame
        A row a number of workers:

        - ``Workers``, ``Threads``, ``Share of Recorded (%)``
        - ``Wall Time (s)``: predicted; NA where nothing can be
        - ``Efficiency (%)``: the share of the threads' time that tasks hold them
        - ``Cost (worker-s)``: workers by wall time
        - ``Least (s)``: ``max(longest chain, work / threads)``, which no schedule beats; the
          client's pauses are part of the chain
        - ``Most without Overhead (s)``: ``work / threads + (1 - 1 / threads) * longest
          chain``, which no schedule exceeds that keeps no ready task waiting for a thread, if
          nothing but tasks takes time (Graham 1969, Brent 1974)
        - ``Calibration Error (%)``, ``Verdict``
    """
    replay = replay_of(run)
    recorded = max(replay.cluster.most_workers, 1)
    found = predict_scaling(run, _counts(workers, recorded), progress=progress)
    count = len(found.workers)
    return pd.DataFrame(
        {
            "Workers": found.workers,
            "Threads": found.threads,
            "Share of Recorded (%)": found.workers / recorded * 100,
            "Wall Time (s)": found.walls,
            "Efficiency (%)": found.efficiency * 100,
            "Cost (worker-s)": found.workers * found.walls,
            "Least (s)": found.least,
            "Most without Overhead (s)": found.most,
            "Calibration Error (%)": np.full(
                count, np.nan if replay.obstacle else replay.error * 100
            ),
            "Verdict": text(np.array(_verdicts(replay, found.efficiency), dtype=object)),
        }
    )


def _counts(workers: Sequence[int] | None, recorded: int) -> list[int]:
    if workers is None:
        return sorted({max(round(recorded * share), 1) for share in _USUAL})
    if not isinstance(workers, Sequence) or not all(map(is_count, workers)):
        raise InvalidArgumentError(
            f"workers={workers!r}: give a list of whole numbers, each 1 or more, or None for 10 % "
            "to 1000 % of the recorded ones."
        )
    return [int(count) for count in workers]


def _verdicts(replay: Replay, efficiency: Array) -> list[str]:
    if replay.refusal:
        return [replay.refusal] * len(efficiency)
    verdicts = []
    for share in efficiency.tolist():
        if share >= _EFFICIENT:
            verdicts.append("Threads are busy; more workers make it faster.")
        elif share >= _EFFICIENT / 2:
            verdicts.append("Threads idle in part: each further worker gains less.")
        else:
            verdicts.append("Threads mostly idle: fewer workers take little longer.")
    return verdicts
