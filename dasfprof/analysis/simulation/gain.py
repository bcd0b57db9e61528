"""How many seconds of a run's wall time a change is worth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dasfprof.analysis.model.run import AnyRun, Run, run_of
from dasfprof.analysis.simulation.replay import Replay, replay_of
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError


def gain(
    source: AnyRun,
    *,
    running: Array | None = None,
    speedup: Mapping[str, float] | None = None,
    caps: Mapping[str, float] | None = None,
    network: bool = True,
    spill: bool = True,
) -> float:
    """Predict the seconds of wall time that a change saves; all changes count together.

    What is taken from a trace is kept as long as the trace lives, so that a call takes one replay.

    Parameters
    ----------
    run
        The run.
    running
        For each row of `Trace.tasks` the seconds of its function; NaN for the recorded ones.
    speedup
        By function, by how much it is faster.
    caps
        By function, the seconds that a run of it takes at most.
    network
        Whether inputs take time to fetch.
    spill
        Whether inputs are read back from disk.

    Returns
    -------
    float
        Seconds; less than 0 where the run would take longer, as schedules can (Graham's
        anomalies). NaN where nothing can be predicted: `Replay.refusal` says why.

    Raises
    ------
    InvalidArgumentError
        If there is no such function, or seconds or factors are out of range.
    """
    run = run_of(source)
    replay = replay_of(run)
    factor = replay.factors(speedup or {})
    seconds = _capped(replay, _given(replay, run, running), caps or {})
    if replay.refusal:
        return float("nan")
    held = replay.held(running=seconds, factor=factor, unspill=spill)
    costs = replay.costs if network else replay.without_network()
    return replay.inputs.wall - replay.predicted(replay.outcome(held=held, costs=costs).wall)


def _given(replay: Replay, run: Run, running: Array | None) -> Array:
    seconds = replay.inputs.running.copy()
    if running is None:
        return seconds
    given, count = np.asarray(running, dtype=float), len(run.ended.tasks)
    if given.shape != (count,) or (given < 0).any():
        raise InvalidArgumentError(
            f"running: give seconds, none below 0, for each of the {count} rows of "
            f"Trace.tasks; this has the shape {given.shape}."
        )
    seconds[: len(given)] = np.where(np.isfinite(given), given, seconds[: len(given)])
    return seconds


def _capped(replay: Replay, seconds: Array, caps: Mapping[str, float]) -> Array:
    inputs = replay.inputs
    for name, cap in caps.items():
        own = inputs.function == replay.function_number(name, f"caps={{{name!r}: ...}}")
        if not cap >= 0:
            raise InvalidArgumentError(f"caps={{{name!r}: {cap!r}}}: give seconds, 0 or more.")
        seconds[own] = np.minimum(seconds[own], cap)
    return seconds
