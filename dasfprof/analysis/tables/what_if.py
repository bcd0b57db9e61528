"""What would have been: other clusters, other networks, faster functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.simulation.changes import changed_wall, walls_without_waits
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text


@question("The run after a change", "predictions")
def what_if(
    run: Run,
    *,
    workers: int | None = None,
    threads: int | None = None,
    bandwidth: float | None = None,
    spill: bool = True,
    speedup: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Predict the wall time of the run after a change; several changes count together.

    Parameters
    ----------
    workers
        How many there are at most; they come and go as the recorded ones did.
    threads
        Of each worker.
    bandwidth
        Between two workers, bytes a second.
    spill
        False: no input is read back from disk.
    speedup
        By function, by how much it is faster: 2 is twice as fast, 0.5 half as fast.

    Returns
    -------
    DataFrame
        One row:

        - ``Change``
        - ``Recorded (s)``: from the first task's arrival to the last known finish
        - ``Replayed (s)``: the same of the replay on the recorded cluster
        - ``Predicted (s)``: the recorded time, changed in the proportion in which the
          replay's changes; NA where nothing can be predicted
        - ``Saved (s)``, ``Saved (%)``
        - ``Calibration Error (%)``: of the replay at the recorded cluster; ``Error with
          Recorded Placement (%)``: the same, with each task on the worker where it ran (NA
          for more than 200,000 task runs)
        - ``Verdict``, or why nothing can be predicted

    Raises
    ------
    InvalidArgumentError
        If a number is out of range, or there is no such function.
    """
    wall = changed_wall(
        run, workers=workers, threads=threads, bandwidth=bandwidth, spill=spill, speedup=speedup
    )
    named = {"workers": workers, "threads": threads, "bandwidth": bandwidth}
    changes = [f"{name}={value:.12g}" for name, value in named.items() if value is not None]
    changes += ["spill=False"] * (not spill)
    changes += [f"{name}: {factor:g} times as fast" for name, factor in (speedup or {}).items()]
    return _prediction_table(run, [", ".join(changes) or "none"], [wall])


@question("The run without each thing that tasks wait for", "predictions")
def blocked_time(run: Run) -> pd.DataFrame:
    """Predict the wall time without each of the things that tasks wait for.

    Each is a replay of the whole schedule, as waits of tasks that were not critical gain
    nothing (Ousterhout et al., NSDI 2015).

    Returns
    -------
    DataFrame
        A row a thing, with the columns of `what_if`; ``Change`` is ``no network`` (inputs
        come in no time), ``no unspilling``, ``no blocking in functions`` (they take their CPU
        seconds and their wait for a core: without disks, locks, sleep; left out where CPU
        seconds are unknown), ``no scheduler latency``.
    """
    walls = walls_without_waits(run)
    return _prediction_table(run, list(walls), list(walls.values()))


def _prediction_table(run: Run, changes: Sequence[str], walls: Sequence[float]) -> pd.DataFrame:
    """Tabulate replays of a run after changes, each as its wall seconds."""
    replay = replay_of(run)
    known = not replay.obstacle
    count, recorded = len(changes), replay.inputs.wall
    predicted = np.array([replay.predicted(wall) if known else np.nan for wall in walls])
    error = replay.error * 100 if known else np.nan
    placed = replay.recorded_placement_error * 100 if known else np.nan
    saved = recorded - predicted
    verdicts = [replay.refusal or _verdict(recorded, wall) for wall in predicted.tolist()]
    return pd.DataFrame(
        {
            "Change": text(np.array(changes, dtype=object)),
            "Recorded (s)": np.full(count, recorded),
            "Replayed (s)": np.full(count, replay.base if known else np.nan),
            "Predicted (s)": predicted,
            "Saved (s)": saved,
            "Saved (%)": saved / recorded * 100 if recorded > 0 else np.full(count, np.nan),
            "Calibration Error (%)": np.full(count, error),
            "Error with Recorded Placement (%)": np.full(count, placed),
            "Verdict": text(np.array(verdicts, dtype=object)),
        }
    )


def _verdict(recorded: float, predicted: float) -> str:
    if predicted < recorded * 0.99:
        return f"{recorded / predicted:.3g} times as fast."
    if predicted > recorded * 1.01:
        return f"{predicted / recorded:.3g} times as long."
    return "No difference to speak of."
