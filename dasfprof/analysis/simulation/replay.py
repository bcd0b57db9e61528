"""`Replay`: a recorded run, ready to be run again in simulated time, and how far to trust that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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

# --- Resources that task runs share, of which another cluster may have no more --------------------

#: Threshold (fraction of the functions' time): waits for a shared resource, with which the replay
#: on another cluster predicts nothing.
TELLING = 0.10
#: Modules of Dask whose functions of these names wait for a lock.
_LOCKS = ("distributed/lock.py", "distributed/semaphore.py", "multi_lock.py", "dask/utils.py")
_WAITING = ("acquire", "__enter__")


@dataclass(frozen=True)
class Shared:
    """A resource that few task runs may use at a time: a lock, or a restriction to some workers."""

    #: A clause that names it, and the fraction of the functions' time.
    description: str
    #: Maximum number of task runs that use it at a time; 0: unknown.
    limit: int
    #: Fraction of the functions' time for which they waited for it.
    waited: float

    def binds(self, threads: int) -> bool:
        """Return whether task runs waited for it, or may have to on this number of threads."""
        return self.limit < threads or self.waited >= TELLING


def find_shared(trace: Run) -> list[Shared]:
    """Find the resources that task runs used or waited for during 10 % of their time or more."""
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
            clause = f"tasks held the {first['kind']} {elide(name, 60)!r} or waited for it"
            yield Shared(_during(clause, share), int(first["limit"]), waited[code] / seconds)


def _sampled_locks(trace: Run) -> Iterator[Shared]:
    """Find waits for Dask's locks by samples of stacks, for traces without events of locks."""
    samples = trace.task_samples
    if not len(samples):
        return
    waits = [
        any(name.split(".")[-1] in _WAITING and str(file).endswith(_LOCKS) for name, file, _ in f)
        for f in trace.stacks["frames"]
    ]
    waiting = np.append(np.array(waits, dtype=bool), False)[samples["stack"].to_numpy()]
    share = float(waiting.mean())
    if share >= TELLING:
        yield Shared(_during("by samples of stacks, tasks waited for locks", share), 0, share)


def _annotated(trace: Run, seconds: float) -> Iterator[Shared]:
    """Find tasks that may run on some workers alone; which of another cluster's is unknown."""
    places, distinct = distinct_annotations(trace)
    duration = np.nan_to_num(trace.tasks["duration"].to_numpy(dtype=float))
    asked: dict[str, float] = {}
    for value, taken in zip(distinct, Groups(places, len(distinct)).sum(duration), strict=True):
        if isinstance(value, dict):
            for what in _asked(value):
                asked[what] = asked.get(what, 0.0) + float(taken)
    for what, taken in asked.items():
        if taken / seconds >= TELLING:
            clause = f"tasks that ask for {elide(what, 60)} ran"
            yield Shared(_during(clause, taken / seconds), 0, 0.0)


def _asked(annotations: dict[str, object]) -> Iterator[str]:
    resources = annotations.get("resources")
    if isinstance(resources, dict):
        yield from (f"the resource {name!r}" for name in resources)
    if annotations.get("workers") and not annotations.get("allow_other_workers"):
        yield "certain workers"


def _during(clause: str, share: float) -> str:
    return f"{clause} for {min(share, 1.0):.0%} of the time of functions"


def check_count(name: str, value: Any) -> None:
    """Raise `InvalidArgumentError` unless a value is a number of workers or threads."""
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


#: Maximum calibration error (fraction of the wall time); beyond it nothing is predicted.
MOST_ERROR = 0.15
#: Maximum number of tasks of a run that is replayed for information alone.
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
    #: Shared resources, which the replay does not include.
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
        """The calibration error, as a fraction of the recorded wall time; NaN without one."""
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
        """Why the replay predicts nothing, as a sentence; empty if it does."""
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
        """Return why the replay predicts nothing for a cluster; empty if it does."""
        binding = self.binding(cluster)
        if self.refusal or not binding:
            return self.refusal
        return (
            f"Not to be predicted: {binding}; what they take turns at is not replayed, and more or "
            "fewer threads do not change how many may have it."
        )

    def binding(self, cluster: ReplayCluster) -> str:
        """Return which shared resources limit a cluster with other threads; empty if none does."""
        if np.array_equal(cluster.threads, self.cluster.threads):
            return ""
        threads = cluster.most_threads
        return " and ".join(one.description for one in self.shared if one.binds(threads))

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
        """Return the wall time that a replay predicts; NaN if it predicts nothing."""
        return self.inputs.wall * wall / self.base if not self.refusal else float("nan")

    def factors(self, speedup: Mapping[str, float]) -> Array:
        """Return for each run by how much its function is faster.

        Raises
        ------
        InvalidArgumentError
            If there is no such function, or a factor is not positive.
        """
        if not isinstance(speedup, Mapping):
            raise InvalidArgumentError(
                f"speedup={speedup!r}: give a dict of functions' names, such as "
                '{"load": 2}, which is twice as fast.'
            )
        functions = self.inputs.functions
        factors = np.ones(len(functions))
        for name, factor in speedup.items():
            if name not in functions:
                known = ", ".join(sorted(functions)[:20]) or "none"
                raise InvalidArgumentError(
                    f"speedup={{{name!r}: ...}}: the run has no such function; some of those that "
                    f"it has: {known}."
                )
            if not is_positive(factor):
                raise InvalidArgumentError(
                    f"speedup={{{name!r}: {factor!r}}}: give a factor more than 0; 2 is twice as "
                    "fast, 0.5 half as fast."
                )
            factors[functions.index(name)] = factor
        return factors[self.inputs.function]


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


#: Maximum fraction of the functions' time for which tasks wait for a CPU, to predict other runs.
MOST_WAITING = 0.10
#: Where that was not recorded, thresholds of a host without a free core: its mean CPU usage
#: (percent), and the fraction of their time for which functions use the CPU.
_FULL, _USING = 90.0, 0.5


def contention(trace: Run) -> str:
    """Return a clause about waits of tasks for CPUs; empty if no such waits are known."""
    tasks = trace.tasks
    duration = tasks["duration"].to_numpy(dtype=float)
    waited = tasks["run_queue"].to_numpy(dtype=float)
    known = np.isfinite(waited)
    seconds = duration[known].sum()
    if not seconds > 0:
        return _by_host(trace, duration)
    share = waited[known].sum() / seconds
    if share < MOST_WAITING:
        return ""
    return (
        f"tasks waited for a core for {share:.0%} of their time (limit {MOST_WAITING:.0%}), so "
        "that they would take another time on another cluster; record with fewer threads a host"
    )


def _by_host(trace: Run, duration: np.ndarray) -> str:
    """Return the same by the CPU that tasks and hosts used."""
    samples, cpu = trace.samples, trace.tasks["cpu"].to_numpy(dtype=float)
    known = np.isfinite(cpu)
    if "host_cpu" not in samples or not known.any() or duration[known].sum() <= 0:
        return ""
    using = cpu[known].sum() / duration[known].sum()
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
