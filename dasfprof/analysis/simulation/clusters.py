"""A run on other clusters: that which meets a deadline for the least money; others on its host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.changes import changed_cluster
from dasfprof.analysis.simulation.inputs import ReplayCluster, recorded_column
from dasfprof.analysis.simulation.memory import MemoryPeaks, memory_forecast_of
from dasfprof.analysis.simulation.replay import MOST_ERROR, replay_of
from dasfprof.database.columns import Array

#: Replays go to so many workers.
MOST_WORKERS = 200
#: What nine of ten runs stay below, as a share of what is foretold: at the least; and the share of
#: the calibration's error that another cluster may have as well.
_LEAST_MARGIN, _OF_ERROR = 0.06, 0.5
#: A normal distribution has nine of ten below so many standard deviations.
_NINE_OF_TEN = 1.2816
#: Numbers of workers between which the fewest that are in time are sought.
_LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200)


@dataclass(frozen=True)
class Kind:
    """A kind of machine that can be had in any number."""

    name: str
    #: Workers of each machine, and threads of each of these.
    workers: int
    threads: int
    #: Bytes that each worker may take; NaN: unknown.
    memory: float = math.nan
    #: Of a machine for an hour; NaN: unknown.
    price: float = math.nan
    #: How many times as fast as the recorded workers its threads are.
    speed: float = 1.0


@dataclass(frozen=True)
class Sized:
    """So many machines of a kind, and what a run on them is foretold to take."""

    kind: Kind
    machines: int
    #: Seconds from asking for the machines to the end: likely, and what nine of ten stay below.
    likely: float
    most: float
    #: The share of the threads' time in which they have nothing to do.
    idle: float
    #: What the fullest worker would take; None: unknown.
    memory: MemoryPeaks | None = None
    #: Why nothing is foretold; empty: it is.
    refusal: str = ""

    @property
    def workers(self) -> int:
        """All workers."""
        return self.machines * self.kind.workers

    @property
    def cost(self) -> float:
        """The price of the machines for the likely time; NaN: unknown."""
        return self.machines * self.kind.price * self.likely / 3600

    @property
    def effort(self) -> float:
        """What makes it dear: its cost, or, without a price, the time of its threads."""
        threads = self.workers * self.kind.threads
        return self.cost if math.isfinite(self.cost) else threads * self.likely

    def fits(self, spills: float, dies: float) -> bool:
        """Return whether no worker needs more than it may take, as far as is known."""
        if self.memory is None or not self.kind.memory > 0:
            return True
        process = self.memory.process
        return (
            process.likely <= spills * self.kind.memory and process.most <= dies * self.kind.memory
        )


# --- How the seconds of functions change with the number of threads, by several runs --------------


@dataclass(frozen=True)
class FunctionScaling:
    """By which power of the number of threads each function's seconds grow, by several runs."""

    #: By function; those that nothing tells of are not here.
    powers: Mapping[str, float] = field(default_factory=dict)
    #: Threads of the run that is replayed.
    threads: int = 1
    #: By what share runs differ from what all of them lead to expect: a standard deviation.
    error: float = 0.0
    runs: int = 1

    @classmethod
    def of(cls, run: Run, others: Iterable[Run]) -> FunctionScaling:
        """Fit the powers to runs on different numbers of threads.

        The logarithm of a function's mean seconds is a line of the logarithm of the threads, which
        needs two numbers of threads at least. A slope that is less than twice its standard error is
        taken for chance.
        """
        runs = [run, *others]
        threads = np.array([replay_of(one).cluster.most_threads for one in runs], dtype=float)
        means = [_mean_seconds(one) for one in runs]
        powers, off, weights = {}, [], []
        for name, (_, whole) in means[0].items():
            known = np.array([name in each for each in means])
            if known.sum() < 2:
                continue
            x = np.log(threads[known])
            y = np.log([each[name][0] for each in means if name in each])
            power, left = _slope(x, y)
            powers[name] = power
            off.append(float(np.mean(left**2)) * known.sum() / max(known.sum() - 1, 1))
            weights.append(whole)
        error = math.sqrt(float(np.average(off, weights=weights))) if sum(weights) else 0.0
        return cls(powers, int(threads[0]), error, len(runs))

    def factors(self, run: Run, threads: int) -> Array:
        """Return by how much each run of a replay is faster on so many threads."""
        inputs = replay_of(run).inputs
        ratio = threads / max(self.threads, 1)
        powers = [self.powers.get(name, 0.0) for name in inputs.functions]
        factors: Array = np.power(ratio, -np.array(powers, dtype=float))[inputs.function]
        return factors


def _mean_seconds(run: Run) -> dict[str, tuple[float, float]]:
    """Return the mean seconds of the runs of each function, and those of all of them."""
    inputs = replay_of(run).inputs
    groups = Groups(inputs.function, len(inputs.functions))
    mean, whole = groups.mean(inputs.running), groups.sum(inputs.running)
    return {
        name: (float(mean[at]), float(whole[at]))
        for at, name in enumerate(inputs.functions)
        if mean[at] > 0
    }


def _slope(x: Array, y: Array) -> tuple[float, Array]:
    """Return the slope of a line through points, 0 where that may be chance, and what it leaves."""
    apart = x - x.mean()
    squares = float((apart**2).sum())
    flat = y - y.mean()
    if not squares > 0:
        return 0.0, flat
    slope = float((apart * flat).sum()) / squares
    left = flat - slope * apart
    free = len(x) - 2
    if free > 0 and abs(slope) < 2 * math.sqrt(float((left**2).sum()) / free / squares):
        return 0.0, flat
    return slope, left


# --- The sizes of a kind, and the fewest that are in time -----------------------------------------


@dataclass
class ClusterChoice:
    """Replays of a run on machines of several kinds.

    Parameters
    ----------
    run
        The run.
    deadline
        Seconds from asking for machines to the end.
    start_up
        Seconds of it until all workers are there.
    scaling
        How functions change with the number of threads.
    spills, dies
        Shares of its memory from which on a worker spills, and dies.
    """

    run: Run
    deadline: float
    start_up: float
    scaling: FunctionScaling
    spills: float
    dies: float

    @cached_property
    def margin(self) -> float:
        """By which share nine of ten runs stay below what is foretold."""
        error = abs(replay_of(self.run).error) * _OF_ERROR
        return max(_LEAST_MARGIN, error, _NINE_OF_TEN * self.scaling.error)

    def sized(self, kinds: Sequence[Kind]) -> list[Sized]:
        """Return what was looked at: what meets the deadline, the cheapest first; then the rest."""
        found = [one for kind in kinds for one in self._of_kind(kind)]
        return sorted(found, key=self._rank)

    def meets(self, one: Sized) -> bool:
        """Return whether nine of ten runs are in time, and no worker lacks memory."""
        return one.most <= self.deadline and one.fits(self.spills, self.dies)

    def _rank(self, one: Sized) -> tuple[bool, float]:
        meets = self.meets(one)
        return not meets, one.effort if meets else np.nan_to_num(one.likely, nan=math.inf)

    def _of_kind(self, kind: Kind) -> list[Sized]:
        most = max(MOST_WORKERS // kind.workers, 1)
        looked: dict[int, Sized] = {}

        def look(machines: int) -> Sized:
            if machines not in looked:
                looked[machines] = self._on(kind, machines)
            return looked[machines]

        late = 0
        for machines in _steps(most):
            one = look(machines)
            if one.refusal:
                return [one]
            if self.meets(one):
                self._between(late, machines, look)
                break
            late = machines
        fewest = min((count for count, one in looked.items() if self.meets(one)), default=None)
        if fewest is not None:
            # One more may be cheaper, where it spares a whole round of tasks.
            for machines in {fewest + 1, math.ceil(fewest * 1.25)}:
                if machines <= most:
                    look(machines)
        return list(looked.values())

    def _between(self, late: int, in_time: int, look: Callable[[int], Sized]) -> None:
        """Find the fewest machines that are in time, by halves."""
        while in_time - late > 1:
            middle = (late + in_time) // 2
            if self.meets(look(middle)):
                in_time = middle
            else:
                late = middle

    def _on(self, kind: Kind, machines: int) -> Sized:
        replay, workers = replay_of(self.run), machines * kind.workers
        cluster = ReplayCluster(
            np.full(workers, kind.threads), np.zeros(workers), np.full(workers, np.inf)
        )
        refusal = replay.refusal_on(cluster)
        if refusal:
            return Sized(kind, machines, math.nan, math.nan, math.nan, refusal=refusal)
        factor = self.scaling.factors(self.run, workers * kind.threads) * kind.speed
        held = replay.held(factor=factor)
        wall = replay.predicted(replay.outcome(held=held, cluster=cluster).wall)
        likely = self.start_up + wall
        threads = workers * kind.threads
        one = Sized(
            kind,
            machines,
            likely,
            self.start_up + wall * (1 + self.margin),
            1 - min(float(held.sum()) / (threads * likely), 1.0),
        )
        forecast = memory_forecast_of(self.run)
        if one.most > self.deadline or forecast.obstacle:
            return one
        return replace(one, memory=forecast.peaks(cluster))


def _steps(most: int) -> Iterator[int]:
    for machines in _LADDER:
        if machines >= most:
            break
        yield machines
    yield most


# --- Other workers of the host that it ran on, which share its cores ------------------------------

# `Replay` takes tasks to last as long wherever they run, and refuses where they waited for cores.
# Here the host and its cores are known: what a task computed takes longer where more threads
# compute than there are cores, and what it waited for a core is left out.

#: Tasks are made slower until no more cores are busy than there are, but for this share, in so many
#: replays at most.
_FULL, _MOST_ROUNDS = 1.03, 5


@dataclass(frozen=True)
class HostReplay:
    """Replays of a run on other workers of its host."""

    run: Run
    #: Cores that its workers have together.
    cores: float
    #: Whether tasks of a worker take turns, as findings say: at Python's lock, or one of their own.
    #: Then each worker is replayed as if it had one thread.
    one_at_a_time: bool = False

    @cached_property
    def obstacle(self) -> str:
        """Why it foretells nothing, in words; empty where it does."""
        replay = replay_of(self.run)
        if replay.missing:
            return replay.missing
        if not np.isfinite(self.run.tasks["cpu"].to_numpy(dtype=float)).any():
            return "no CPU seconds of tasks were recorded"
        if not abs(self.error) <= MOST_ERROR:
            wall = replay.inputs.wall
            return (
                f"replayed as it was, the run takes {wall * (1 + self.error):.3g} s, and it took "
                f"{wall:.3g} s"
            )
        return ""

    @cached_property
    def error(self) -> float:
        """By what share of it the replay misses the recorded wall time."""
        return self._base / replay_of(self.run).inputs.wall - 1

    def refusal(self, workers: int, threads: int) -> str:
        """Return why it foretells nothing of so many workers; empty where it does."""
        if self.obstacle:
            return self.obstacle
        replay = replay_of(self.run)
        cluster = changed_cluster(replay, workers, threads)
        binding = replay.binding(cluster)
        return f"{binding}; what they take turns at is not replayed" if binding else ""

    def wall(self, workers: int, threads: int, *, unspill: bool = True) -> float:
        """Return the wall seconds that so many workers lead to expect; NaN: see `refusal`.

        Parameters
        ----------
        workers, threads
            How many, and of each.
        unspill
            Whether inputs are read back from disk as they were.
        """
        if self.refusal(workers, threads):
            return float("nan")
        cluster = changed_cluster(replay_of(self.run), workers, threads)
        wall = replay_of(self.run).inputs.wall
        return wall * self._wall_on(cluster, unspill=unspill) / self._base

    @cached_property
    def _base(self) -> float:
        return self._wall_on(replay_of(self.run).cluster)

    def _wall_on(self, cluster: ReplayCluster, *, unspill: bool = True) -> float:
        replay = replay_of(self.run)
        computing, waiting = self._seconds
        if self.one_at_a_time:
            cluster = replace(cluster, threads=np.ones(len(cluster.threads), dtype=np.int64))
        work, times, wall = float(computing.sum()), 1.0, 0.0
        for _ in range(_MOST_ROUNDS):
            held = replay.held(running=computing * times + waiting, unspill=unspill)
            wall = replay.outcome(held=held, cluster=cluster).wall
            # The cores that are busy then in the mean, as what computes takes its CPU seconds.
            wanted = work / wall / self.cores if wall > 0 else 0.0
            if wanted <= _FULL:
                break
            times *= wanted
        return wall

    @cached_property
    def _seconds(self) -> tuple[Array, Array]:
        """For which each run computed, and for which it waited for anything but a core."""
        tasks, running = self.run.tasks, replay_of(self.run).inputs.running
        count = len(tasks)
        cpu = np.nan_to_num(tasks["cpu"].to_numpy(dtype=float))
        queued = recorded_column(self.run, "run_queue", count)
        own = running.copy()
        own[:count] = np.maximum(own[:count] - queued, np.minimum(cpu, own[:count]))
        if self.one_at_a_time:
            own /= max(float(np.median(replay_of(self.run).cluster.threads)), 1.0)
        computing = np.zeros(len(own))
        computing[:count] = np.minimum(cpu, own[:count])
        return computing, own - computing
