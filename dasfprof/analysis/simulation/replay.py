"""`Replay`: a recorded run that can be replayed in simulated time, with a calibration error."""

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

#: Threshold (fraction of the functions' time): task runs wait for a shared resource. Above it,
#: nothing is predicted for other clusters.
TELLING = 0.10


@dataclass(frozen=True)
class Shared:
    """A resource that few task runs can use at a time: a lock, or a restriction to some workers."""

    #: Clause with the name of the resource, and the fraction of the functions' time.
    description: str
    #: Maximum number of task runs that use the resource at a time, or 0 if unknown.
    limit: int
    #: Fraction of the functions' time in which task runs waited for the resource.
    waited: float

    def binds(self, threads: int) -> bool:
        """Return whether the resource would limit task runs on a cluster with this many threads."""
        return self.limit < threads or self.waited >= TELLING


def find_shared(run: Run) -> list[Shared]:
    """Return the resources that task runs used or waited for during at least 10 % of their time."""
    seconds = float(np.nansum(run.tasks["duration"].to_numpy(dtype=float)))
    if not 0 < seconds < np.inf:
        return []
    return [*_locks(run, seconds), *_annotated(run, seconds)]


def _locks(run: Run, seconds: float) -> Iterator[Shared]:
    table = run.locks_held
    names = table["name"].cat
    by_name = Groups(names.codes.to_numpy(), len(names.categories))
    held = by_name.sum(table["time"].to_numpy() - table["since"].to_numpy(dtype=float))
    waited = by_name.sum(np.nan_to_num(table["waited"].to_numpy(dtype=float)))
    for code, name in enumerate(names.categories):
        share = (held[code] + waited[code]) / seconds
        if share >= TELLING:
            first = table[names.codes == code].iloc[0]
            clause = f"tasks held or waited for the {first['kind']} {elide(name, 60)!r}"
            yield Shared(_during(clause, share), int(first["limit"]), waited[code] / seconds)


def _annotated(run: Run, seconds: float) -> Iterator[Shared]:
    """Yield each restriction to certain workers, if tasks with this restriction take much time.

    `seconds` is the total duration of all task runs.
    """
    indices, distinct = distinct_annotations(run.tasks)
    duration = np.nan_to_num(run.tasks["duration"].to_numpy(dtype=float))
    asked: dict[str, float] = {}
    for value, taken in zip(distinct, Groups(indices, len(distinct)).sum(duration), strict=True):
        if isinstance(value, dict):
            for what in _asked(value):
                asked[what] = asked.get(what, 0.0) + float(taken)
    for what, taken in asked.items():
        # Another cluster may not have such workers.
        if taken / seconds >= TELLING:
            clause = f"tasks that require {elide(what, 60)} ran"
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
    """Raise `InvalidArgumentError` if a value is not a positive integer."""
    if not is_count(value):
        raise InvalidArgumentError(
            f"{name}={value!r}: expected a positive integer, or None for the recorded number."
        )


def is_count(value: Any) -> bool:
    """Return whether a value is a positive integer."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def is_positive(value: Any) -> bool:
    """Return whether a value is a positive, finite number."""
    return isinstance(value, Real) and bool(np.isfinite(float(value))) and float(value) > 0


#: Maximum calibration error (fraction of the wall time). Above it, nothing is predicted.
MOST_ERROR = 0.15


@dataclass(frozen=True)
class Replay:
    """A recorded run with its costs and its cluster, which can be replayed."""

    inputs: ReplayInputs
    costs: Costs
    cluster: ReplayCluster
    #: Reason why nothing can be predicted, apart from the calibration error, or empty.
    obstacle: str
    #: Reason why the run cannot be replayed at all, or empty.
    missing: str = ""
    #: Shared resources. Replays do not include waits for them.
    shared: list[Shared] = field(default_factory=list)

    @cached_property
    def base(self) -> float:
        """Wall time in seconds of the replay on the recorded cluster."""
        return self.outcome().wall

    @property
    def error(self) -> float:
        """The calibration error as a fraction of the recorded wall time, or NaN if unknown."""
        recorded = self.inputs.wall
        return self.base / recorded - 1 if recorded > 0 else float("nan")

    @property
    def refusal(self) -> str:
        """Reason why nothing is predicted, as a sentence, or empty."""
        if self.obstacle:
            return f"Cannot be predicted: {self.obstacle}."
        if not abs(self.error) <= MOST_ERROR:
            return (
                f"Cannot be predicted: a replay on the recorded cluster takes {self.base:.3g} s, "
                f"but the run took {self.inputs.wall:.3g} s. This error of {self.error:+.0%} "
                f"exceeds the limit of {MOST_ERROR:.0%}."
            )
        return ""

    def refusal_on(self, cluster: ReplayCluster) -> str:
        """Return the reason why nothing is predicted for a cluster, or "" if there is none."""
        binding = self.binding(cluster)
        if self.refusal or not binding:
            return self.refusal
        return (
            f"Cannot be predicted: {binding}. Waits for a shared resource are not replayed, and "
            "the number of threads does not change how many tasks can use it."
        )

    def binding(self, cluster: ReplayCluster) -> str:
        """Return a clause with the shared resources that limit task runs on a cluster, or ""."""
        # A cluster with the same threads as the recorded one is never limited.
        if np.array_equal(cluster.threads, self.cluster.threads):
            return ""
        threads = cluster.most_threads
        return " and ".join(each.description for each in self.shared if each.binds(threads))

    def held(
        self, *, factor: Array | None = None, running: Array | None = None, unspill: bool = True
    ) -> Array:
        """Return the seconds for which each task run occupies its thread.

        Parameters
        ----------
        factor
            Factor by which the function of each task run is faster.
        running
            Seconds of the function of each task run. None uses the recorded seconds.
        unspill
            Whether the time of reading inputs back from disk is included.
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
        """Return the result of a replay with other durations, another cluster, or other costs."""
        held = self.held() if held is None else held
        return Simulation(self.inputs, held, cluster or self.cluster, costs or self.costs).run()

    def predicted(self, wall: float) -> float:
        """Return the predicted wall time for a replay's wall time, or NaN if there is a refusal."""
        # All effects that replays leave out are assumed to change by the same ratio as the wall
        # time of the replay.
        return self.inputs.wall * wall / self.base if not self.refusal else float("nan")

    def factors(self, speedup: Mapping[str, float]) -> Array:
        """Return, for each task run, the factor by which its function is faster.

        Raises
        ------
        InvalidArgumentError
            If a function does not exist, or a factor is not positive.
        """
        if not isinstance(speedup, Mapping):
            raise InvalidArgumentError(
                f'speedup={speedup!r}: expected a dict of functions\' names, such as {{"load": '
                "2} for twice as fast."
            )
        functions = self.inputs.functions
        factors = np.ones(len(functions))
        for name, factor in speedup.items():
            if name not in functions:
                known = ", ".join(sorted(functions)[:20]) or "none"
                raise InvalidArgumentError(
                    f"speedup={{{name!r}: ...}}: the run has no such function. Some of its "
                    f"functions: {known}."
                )
            if not is_positive(factor):
                raise InvalidArgumentError(
                    f"speedup={{{name!r}: {factor!r}}}: expected a positive factor. 2 is twice "
                    "as fast, 0.5 is half as fast."
                )
            factors[functions.index(name)] = factor
        return factors[self.inputs.function]


@once_per_trace
def replay_of(run: Run) -> Replay:
    """Return the replay of a run."""
    # Damaged files may contain invalid times, which `_missing` reports.
    with np.errstate(invalid="ignore", over="ignore"):
        inputs = replay_inputs(run, run.slots, run.lives)
        missing = _missing(run, inputs)
        return Replay(
            inputs=inputs,
            costs=measure_costs(run, run.slots),
            cluster=recorded_cluster(run, run.lives, run.slots),
            obstacle=missing or contention(run),
            missing=missing,
            shared=find_shared(run),
        )


def _missing(run: Run, inputs: ReplayInputs) -> str:
    if not len(inputs):
        return "there are no task runs"
    if inputs.wall <= 0:
        return "the task runs took no time"
    held = inputs.before + inputs.unspill + inputs.running + inputs.after + inputs.seceded
    if not np.isfinite([inputs.wall, held.sum(), inputs.submissions.delay.sum()]).all():
        return "its files contain invalid times"
    if (run.tasks["source"] == "scheduler").all():
        return "there is no worker's file, so the dependencies of tasks are unknown"
    return ""


#: Threshold (fraction of the functions' time): CPU wait. Above it, nothing is predicted for other
#: runs.
MOST_WAITING = 0.10
#: If CPU wait was not recorded, thresholds for a host without a free core: mean CPU usage of the
#: host (percent), and fraction of the functions' time in which they use the CPU.
_FULL, _USING = 90.0, 0.5


def contention(run: Run) -> str:
    """Return a clause about how long tasks waited for CPU, or "" if they hardly waited."""
    tasks = run.tasks
    duration = tasks["duration"].to_numpy(dtype=float)
    waited = tasks["run_queue"].to_numpy(dtype=float)
    known = np.isfinite(waited)
    seconds = duration[known].sum()
    if not seconds > 0:
        # Without recorded CPU waits, busy cores of the hosts show that tasks waited.
        return _by_host(run, duration)
    share = waited[known].sum() / seconds
    if share < MOST_WAITING:
        return ""
    return (
        f"tasks waited for a core for {share:.0%} of their time (limit {MOST_WAITING:.0%}), so "
        "their durations would differ on another cluster. Record with fewer threads per host"
    )


def _by_host(run: Run, duration: np.ndarray) -> str:
    """Return the clause of `contention` for a run without recorded CPU waits, or an empty text."""
    samples, cpu = run.samples, run.tasks["cpu"].to_numpy(dtype=float)
    known = np.isfinite(cpu)
    if "host_cpu" not in samples or not known.any() or duration[known].sum() <= 0:
        return ""
    using = cpu[known].sum() / duration[known].sum()
    start = run.tasks["start"].to_numpy(dtype=float)
    time = samples["time"].to_numpy(dtype=float)
    busy = samples["host_cpu"].to_numpy(dtype=float)
    during = (time >= np.nanmin(start)) & (time <= np.nanmax(start + duration)) & np.isfinite(busy)
    if not during.any() or using < _USING or busy[during].mean() < _FULL:
        return ""
    return (
        f"the hosts' cores were busy for {busy[during].mean():.0f} % of the time while tasks "
        "used the CPU, so their durations would differ on another cluster. Record with fewer "
        "threads per host"
    )
