"""`Replay`: a recorded run, ready to be run again in simulated time, and how far to trust that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from dasfprof.analysis.model.steps import distinct_annotations
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.inputs import (
    Costs,
    ReplayCluster,
    ReplayInputs,
    measure_costs,
    recorded_cluster,
    replay_inputs,
)
from dasfprof.analysis.simulation.simulator import Outcome, Simulation
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import elide

# --- What task runs take turns at, and of which another cluster may have no more ------------------

#: From so large a share of the functions' time on, what they take turns at decides how long a run
#: takes on another cluster.
TELLING = 0.10
#: Modules of Dask whose functions of these names wait until others give a lock back.
_LOCKS = ("distributed/lock.py", "distributed/semaphore.py", "multi_lock.py", "dask/utils.py")
_WAITING = ("acquire", "__enter__")


@dataclass(frozen=True)
class Shared:
    """One thing that runs take turns at."""

    #: What, and for which share of the functions' time, in words.
    told: str
    #: How many runs may have it at a time; 0: unknown.
    limit: int
    #: The share of the functions' time for which they waited for it.
    waited: float

    def binds(self, threads: int) -> bool:
        """Return whether runs on so many threads may have to wait for it, or did."""
        return self.limit < threads or self.waited >= TELLING


def find_shared(trace: Run) -> list[Shared]:
    """Find what the recorded runs took turns at during 10 % of their functions' time or more."""
    seconds = float(np.nansum(trace.tasks["duration"].to_numpy(dtype=float)))
    if not 0 < seconds < np.inf:
        return []
    locks = list(_locks(trace, seconds))
    return [*(locks or _sampled_locks(trace)), *_annotated(trace, seconds)]


def _locks(trace: Run, seconds: float) -> Iterator[Shared]:
    table = trace.locks_held
    if not len(table):
        return
    names = table["name"].cat
    by_name = Groups(names.codes.to_numpy(), len(names.categories))
    held = by_name.sum(table["time"].to_numpy() - table["since"].to_numpy(dtype=float))
    waited = by_name.sum(np.nan_to_num(table["waited"].to_numpy(dtype=float)))
    for code, name in enumerate(names.categories):
        share = (held[code] + waited[code]) / seconds
        if share >= TELLING:
            first = table[names.codes == code].iloc[0]
            told = f"tasks held the {first['kind']} {elide(name, 60)!r} or waited for it"
            yield Shared(_during(told, share), int(first["limit"]), waited[code] / seconds)


def _sampled_locks(trace: Run) -> Iterator[Shared]:
    """Find waits for Dask's locks among samples of stacks: of traces that tell no lock's use."""
    samples = trace.task_samples
    if not len(samples):
        return
    waits = [any(_waits(frame) for frame in frames) for frames in trace.stacks["frames"]]
    waiting = np.append(np.array(waits, dtype=bool), False)[samples["stack"].to_numpy()]
    share = float(waiting.mean())
    if share >= TELLING:
        yield Shared(_during("by samples of stacks, tasks waited for locks", share), 0, share)


def _waits(frame: tuple[str, str, int]) -> bool:
    return frame[0].rpartition(".")[2] in _WAITING and str(frame[1]).endswith(_LOCKS)


def _annotated(trace: Run, seconds: float) -> Iterator[Shared]:
    """Find tasks that may run on some workers alone: which of another cluster, nobody knows."""
    places, distinct = distinct_annotations(trace)
    duration = np.nan_to_num(trace.tasks["duration"].to_numpy(dtype=float))
    asked: dict[str, float] = {}
    for value, own in zip(distinct, Groups(places, len(distinct)).sum(duration), strict=True):
        if isinstance(value, dict):
            for what in _asked(value):
                asked[what] = asked.get(what, 0.0) + float(own)
    for what, own in asked.items():
        if own / seconds >= TELLING:
            told = f"tasks that ask for {elide(what, 60)} ran"
            yield Shared(_during(told, own / seconds), 0, 0.0)


def _asked(annotations: dict[str, object]) -> Iterator[str]:
    resources = annotations.get("resources")
    if isinstance(resources, dict):
        yield from (f"the resource {name!r}" for name in resources)
    if annotations.get("workers") and not annotations.get("allow_other_workers"):
        yield "certain workers"


def _during(told: str, share: float) -> str:
    return f"{told} for {min(share, 1.0):.0%} of the time of functions"


def check_count(name: str, value: Any) -> None:
    """Refuse what is no number of workers or threads."""
    if not is_count(value):
        raise InvalidArgumentError(
            f"{name}={value!r}: give a whole number, 1 or more, or None for as many as were "
            "recorded."
        )


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number, 1 or more."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def is_positive(value: Any) -> bool:
    """Return whether a value is a number above 0, and not infinite."""
    return isinstance(value, Real) and bool(np.isfinite(float(value))) and float(value) > 0


def check_mapping(name: str, value: Any, example: str) -> None:
    """Refuse what does not give functions figures."""
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(
            f"{name}={value!r}: give a dict of functions' names, such as {example}."
        )


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
    #: Why it cannot even be run again; or empty.
    missing: str = ""
    #: What runs took turns at: the replay knows nothing of it.
    shared: list[Shared] = field(default_factory=list)

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

    def refusal_on(self, cluster: ReplayCluster) -> str:
        """Why the replay foretells nothing of a cluster, in words; empty where it does."""
        binding = self.binding(cluster)
        if self.refusal or not binding:
            return self.refusal
        return (
            f"Not to be predicted: {binding}; what they take turns at is not replayed, and more or "
            "fewer threads do not change how many may have it."
        )

    def binding(self, cluster: ReplayCluster) -> str:
        """Say at what runs may take turns on a cluster of other threads; empty: at nothing."""
        if np.array_equal(cluster.threads, self.cluster.threads):
            return ""
        return " and ".join(one.told for one in self.shared if one.binds(cluster.most_threads))

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
        return factors[self.inputs.function]

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


@once_per_trace
def replay_of(trace: Run) -> Replay:
    """Return the replay of a run."""
    # Damaged files hold times that are none: see `_missing`.
    with np.errstate(invalid="ignore", over="ignore"):
        inputs = replay_inputs(trace, trace.slots, trace.lives)
        missing = _missing(trace, inputs)
        return Replay(
            inputs=inputs,
            costs=measure_costs(trace, trace.slots),
            cluster=recorded_cluster(trace, trace.lives, trace.slots),
            obstacle=missing or contention(trace),
            missing=missing,
            shared=find_shared(trace),
        )


def _missing(trace: Run, inputs: ReplayInputs) -> str:
    if not len(inputs):
        return "there is no task run"
    if inputs.wall <= 0:
        return "the task runs took no time"
    held = inputs.before + inputs.unspill + inputs.running + inputs.after + inputs.seceded
    if not np.isfinite([inputs.wall, held.sum(), inputs.submissions.delay.sum()]).all():
        return "times in its files are no times"
    if (trace.tasks["source"] == "scheduler").all():
        return "no worker's file is there, and without them nobody knows what depends on what"
    return ""


#: Waiting for a core for so large a share of the functions' time, a run does not foretell another.
MOST_WAITING = 0.10
#: Where that was not recorded: a host that is so busy in the mean (%), with functions that use
#: the CPU for so large a share of their time, has no core to spare.
_FULL, _USING = 90.0, 0.5


def contention(trace: Run) -> str:
    """Say, in words, that tasks waited for cores; empty where they did not, as far as is known."""
    tasks = trace.tasks
    duration = tasks["duration"].to_numpy(dtype=float)
    waited = tasks["run_queue"].to_numpy(dtype=float)
    told = np.isfinite(waited)
    seconds = duration[told].sum()
    if not seconds > 0:
        return _by_host(trace, duration)
    share = waited[told].sum() / seconds
    if share < MOST_WAITING:
        return ""
    return (
        f"tasks waited for a core for {share:.0%} of their time (limit {MOST_WAITING:.0%}), so "
        "that they would take another time on another cluster; record with fewer threads a host"
    )


def _by_host(trace: Run, duration: np.ndarray) -> str:
    """Judge by the CPU that tasks and hosts used."""
    samples, cpu = trace.samples, trace.tasks["cpu"].to_numpy(dtype=float)
    told = np.isfinite(cpu)
    if "host_cpu" not in samples or not told.any() or duration[told].sum() <= 0:
        return ""
    using = cpu[told].sum() / duration[told].sum()
    start = trace.tasks["start"].to_numpy(dtype=float)
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
