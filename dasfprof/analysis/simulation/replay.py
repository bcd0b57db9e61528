"""`Replay`: a recorded run, ready to be run again in simulated time, and how far to trust that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dasfprof.analysis.model.run import AnyRun, Run, once_per_run, run_of
from dasfprof.analysis.simulation.arguments import check_mapping, is_positive
from dasfprof.analysis.simulation.cluster import ReplayCluster, recorded_cluster
from dasfprof.analysis.simulation.costs import Costs, measure_costs
from dasfprof.analysis.simulation.inputs import ReplayInputs, replay_inputs
from dasfprof.analysis.simulation.simulator import Outcome, Simulation
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

#: A replay that misses the recorded wall time by more foretells nothing.
MOST_ERROR = 0.15
#: Runs of more tasks are replayed no more than has to be.
_LARGE = 200_000


@dataclass(frozen=True)
class Replay:
    """A recorded run, its costs and its cluster.

    A prediction is the recorded wall time, changed as the replay's: what the replay leaves out is
    taken to grow and shrink with the rest.
    """

    inputs: ReplayInputs
    costs: Costs
    cluster: ReplayCluster
    #: Why nothing can be predicted, whatever the calibration says, in words; or empty.
    obstacle: str

    @cached_property
    def base(self) -> float:
        """Wall seconds of the replay on the recorded cluster."""
        return self.outcome().wall

    @cached_property
    def recorded_placement_wall(self) -> float:
        """Wall seconds of the replay with each run on the worker that it was recorded on.

        NaN for a run of more than 200,000 tasks, as nothing rests on it and it takes a replay more.
        """
        inputs, cluster = self.inputs, self.cluster
        if len(inputs) > _LARGE:
            return float("nan")
        held = self.held()
        return Simulation(inputs, held, cluster, self.costs, recorded_placement=True).run().wall

    @property
    def error(self) -> float:
        """By what share of it the replay misses the recorded wall time; NaN without one."""
        return self._error(self.base)

    @property
    def recorded_placement_error(self) -> float:
        """The same with each run on the worker that it was recorded on."""
        return self._error(self.recorded_placement_wall)

    def _error(self, wall: float) -> float:
        recorded = self.inputs.wall
        return wall / recorded - 1 if recorded > 0 else float("nan")

    @property
    def refusal(self) -> str:
        """Why the replay foretells nothing, in words; empty where it does."""
        if self.obstacle:
            return f"Not to be predicted: {self.obstacle}."
        if not abs(self.error) <= MOST_ERROR:
            return (
                f"Not to be predicted: replayed on the recorded cluster the run takes "
                f"{self.base:.3g} s, and it took {self.inputs.wall:.3g} s: {self.error:+.0%}, and "
                f"{MOST_ERROR:.0%} is the limit."
            )
        return ""

    def held(
        self, *, factor: Array | None = None, running: Array | None = None, unspill: bool = True
    ) -> Array:
        """Return the seconds for which each run holds its thread.

        Parameters
        ----------
        factor
            For each run, by how much its function is faster.
        running
            For each run the seconds of its function, instead of the recorded ones.
        unspill
            Whether inputs are read back from disk.
        """
        inputs = self.inputs
        seconds = inputs.running if running is None else running
        seconds = seconds if factor is None else seconds / factor
        held = inputs.before + seconds + inputs.after
        return held + inputs.unspill if unspill else held

    def outcome(
        self,
        *,
        held: Array | None = None,
        cluster: ReplayCluster | None = None,
        costs: Costs | None = None,
    ) -> Outcome:
        """Replay with other durations, on another cluster, with other costs."""
        held = self.held() if held is None else held
        return Simulation(self.inputs, held, cluster or self.cluster, costs or self.costs).run()

    def predicted(self, wall: float) -> float:
        """Return what a replay's wall time foretells; NaN where it foretells nothing."""
        return self.inputs.wall * wall / self.base if not self.refusal else float("nan")

    def factors(self, speedup: Mapping[str, float]) -> Array:
        """Return for each run by how much its function is faster.

        Raises
        ------
        InvalidArgumentError
            If there is no such function, or a factor is not positive.
        """
        check_mapping("speedup", speedup, '{"load": 2}, which is twice as fast')
        factors = np.ones(len(self.inputs.functions))
        for name, factor in speedup.items():
            number = self.function_number(name, f"speedup={{{name!r}: ...}}")
            if not is_positive(factor):
                raise InvalidArgumentError(
                    f"speedup={{{name!r}: {factor!r}}}: give a factor more than 0; 2 is twice as "
                    "fast, 0.5 half as fast."
                )
            factors[number] = factor
        whole: Array = factors[self.inputs.function]
        return whole

    def function_number(self, name: str, given: str) -> int:
        """Find a function by its name.

        Raises
        ------
        InvalidArgumentError
            If there is none; the message begins with what was given.
        """
        functions = self.inputs.functions
        if name not in functions:
            known = ", ".join(sorted(functions)[:20]) or "none"
            raise InvalidArgumentError(
                f"{given}: the run has no such function; some of those that it has: {known}."
            )
        return functions.index(name)

    def without_network(self) -> Costs:
        """Return the costs if inputs came in no time."""
        return replace(self.costs, transfer=0.0, bandwidth=float("inf"))


@once_per_run
def replay_of(run: Run) -> Replay:
    """Return the replay of a run; the same one as long as the run lives."""
    return make_replay(run)


def make_replay(source: AnyRun) -> Replay:
    """Take what a replay needs from a trace."""
    run = run_of(source)
    # Damaged files hold times that are none: see `_obstacle`.
    with np.errstate(invalid="ignore", over="ignore"):
        slots, lives = run.ended.slots, run.ended.lives
        inputs = replay_inputs(run, slots, lives)
        return Replay(
            inputs=inputs,
            costs=measure_costs(run, slots),
            cluster=recorded_cluster(run, lives, slots),
            obstacle=_obstacle(run, inputs),
        )


def _obstacle(run: Run, inputs: ReplayInputs) -> str:
    if not len(inputs):
        return "there is no task run"
    if inputs.wall <= 0:
        return "the task runs took no time"
    held = inputs.before + inputs.unspill + inputs.running + inputs.after + inputs.seceded
    if not np.isfinite([inputs.wall, held.sum(), inputs.submissions.delay.sum()]).all():
        return "times in its files are no times"
    if (run.ended.tasks["source"] == "scheduler").all():
        return "no worker's file is there, and without them nobody knows what depends on what"
    return contention(run)


#: Waiting for a core for so large a share of the functions' time, a run does not foretell another.
MOST_WAITING = 0.10
#: Where that was not recorded: a host that is so busy in the mean (%), with functions that use
#: the CPU for so large a share of their time, has no core to spare.
_FULL, _USING = 90.0, 0.5


def contention(run: Run) -> str:
    """Say, in words, that tasks waited for cores; empty where they did not, as far as is known."""
    tasks = run.ended.tasks
    duration = tasks["duration"].to_numpy(dtype=float)
    if "run_queue" in tasks:
        waited = tasks["run_queue"].to_numpy(dtype=float)
        told = np.isfinite(waited)
        seconds = duration[told].sum()
        if seconds > 0:
            share = waited[told].sum() / seconds
            if share < MOST_WAITING:
                return ""
            return (
                f"tasks waited for a core for {share:.0%} of their time (limit "
                f"{MOST_WAITING:.0%}), so that they would take another time on another cluster; "
                "record with fewer threads a host"
            )
    return _by_host(run, duration)


def _by_host(run: Run, duration: np.ndarray) -> str:
    """Judge by the CPU that tasks and hosts used."""
    samples, cpu = run.trace.samples, run.ended.tasks["cpu"].to_numpy(dtype=float)
    told = np.isfinite(cpu)
    if "host_cpu" not in samples or not told.any() or duration[told].sum() <= 0:
        return ""
    using = cpu[told].sum() / duration[told].sum()
    start = run.ended.tasks["start"].to_numpy(dtype=float)
    time = samples["time"].to_numpy(dtype=float)
    busy = samples["host_cpu"].to_numpy(dtype=float)
    during = (time >= np.nanmin(start)) & (time <= np.nanmax(start + duration)) & np.isfinite(busy)
    if not during.any() or using < _USING or busy[during].mean() < _FULL:
        return ""
    return (
        f"the hosts' cores were busy for {busy[during].mean():.0f} % of the time while tasks used "
        "the CPU, so that these would take another time on another cluster; record with fewer "
        "threads a host"
    )
