"""Task runs that took far longer than others that do the same work, slower workers, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import task_layers
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

# --- Workers, and hosts, on which a function takes longer than on the others ----------------------

#: A place is slow for a function if its median is so many times the median of the others' medians,
TIMES_OTHERS = 1.5
#: the rank sum of its runs is so many standard deviations above what chance gives,
RANK_SUM_Z = 3.3
#: and it has so many runs, as have the others.
FEWEST_ON_A_WORKER = 6


@dataclass(frozen=True)
class Slowness:
    """How slow each function is in each place (a worker, a host) where it ran."""

    #: The pair of each run.
    of_run: Array
    #: The function, the place and the number of runs of each pair.
    function: Array
    place: Array
    runs: Array
    #: The median seconds of each pair, and of the medians of its function in the other places.
    median: Array
    median_elsewhere: Array
    #: The standardised rank sum (Wilcoxon, Mann and Whitney) of its runs among its function's.
    z: Array
    #: Whether it is slow by the three rules of this module.
    slow: Array


def measure_slowness(function: Array, place: Array, seconds: Array) -> Slowness:
    """Compare places by the seconds of the runs of each function there.

    Parameters
    ----------
    function, place
        Their number for each run.
    seconds
        What the run took.
    """
    places = int(place.max(initial=-1)) + 1
    of_run, pairs = pd.factorize(function.astype(np.int64) * max(places, 1) + place, sort=True)
    of_pair, where = np.divmod(pairs, max(places, 1))
    functions = Groups(function, int(function.max(initial=-1)) + 1)
    groups = Groups(of_run, len(pairs))
    median = groups.median(seconds)
    elsewhere = _median_of_others(of_pair, median, functions.count)
    here = groups.sizes.astype(float)
    total = functions.sizes[of_pair].astype(float)
    there = total - here
    spread = np.sqrt(here * there * (total + 1) / 12)
    z = ratio(groups.sum(functions.ranks(seconds)) - here * (total + 1) / 2, spread)
    slow = (median >= TIMES_OTHERS * elsewhere) & (z >= RANK_SUM_Z)
    slow &= (here >= FEWEST_ON_A_WORKER) & (there >= FEWEST_ON_A_WORKER)
    return Slowness(of_run, of_pair, where, groups.sizes, median, elsewhere, z, slow)


def _median_of_others(groups: Array, values: Array, count: int) -> Array:
    """Return each value the median of the others in its group; NaN where there is no other."""
    grouped = Groups(groups, count)
    places = grouped.places(values)
    ordered = np.empty(len(values))
    begins = grouped.begins[groups]
    ordered[begins + places] = values
    others = grouped.sizes[groups] - 1

    def other(number: Array) -> Array:
        """Return the value of a place among the others: they close up where one is left out."""
        return ordered[begins + number + (number >= places)]

    alone = others == 0
    low = np.where(alone, 0, (others - 1) // 2)
    high = np.where(alone, 0, others // 2)
    low, high = low - alone, high - alone
    return np.where(alone, np.nan, (other(low) + other(high)) / 2)


# --- Task runs that took far longer than others of their function and layer, and why --------------

#: A straggler takes longer than so many times its layer's median (see `number_layers`),
TIMES_MEDIAN = 2.0
#: is so many median absolute deviations above it,
DEVIATIONS = 3.0
#: and takes this share of the run's wall time.
SHARE_OF_WALL = 0.01
#: Layers with fewer runs have none.
FEWEST = 5

#: An input is larger if it has so many times the median bytes of its layer's inputs.
_LARGER = 1.5
#: A cause explains a straggler if this share of its excess over the median is due to it.
_EXPLAINS = 0.5
#: The median absolute deviation of a normal distribution by its standard deviation.
_NORMAL_DEVIATION = 0.6745
#: Deviations beyond the highest that is expected, for chance.
_CHANCE = 0.5

#: The causes, in the order in which they are asked: the first that explains a run is its cause.
CAUSES = (
    "larger input",
    "slow host",
    "slow worker",
    "spill",
    "deserialising",
    "worker overhead",
    "first run on that worker",
    "skew",
    "blocked",
    "computed longer",
    "unknown",
)


@dataclass(frozen=True)
class StragglerRuns:
    """The stragglers, the largest excess first."""

    #: Rows of `Trace.tasks`, and numbers of `NamedWorkers`.
    rows: Array
    worker: Array
    #: Unix time.
    start: Array
    #: Of its thread, less waits for a core; the median of its layer; and what it took beyond that.
    seconds: Array
    median: Array
    excess: Array
    #: Bytes of its input, the median of its layer's, and the seconds that one of this size
    #: lets expect.
    input_size: Array
    median_input: Array
    expected: Array
    #: Each one's cause, one of `CAUSES`.
    cause: Array


@once_per_trace
def find_stragglers(run: Run) -> StragglerRuns:
    """Find the stragglers of a run, each with its cause.

    The rule is that of Mantri (OSDI'10) and Spark, twice the median at the least, with two more:
    three deviations, so that a layer whose runs differ anyway has few; and one percent of the
    run's wall time, so that they matter.
    """
    runs = _Runs(run)
    slow = runs.seconds > np.maximum(
        TIMES_MEDIAN * runs.median, runs.median + DEVIATIONS * runs.deviation
    )
    slow &= (runs.seconds > runs.least) & (runs.groups.sizes[runs.groups.codes] >= FEWEST)
    rows = np.flatnonzero(slow)
    rows = rows[np.argsort(-runs.excess[rows], kind="stable")]
    causes, expected = runs.causes(rows)
    return StragglerRuns(
        rows=runs.rows[rows],
        worker=runs.worker[rows],
        start=runs.start[rows],
        seconds=runs.seconds[rows],
        median=runs.median[rows],
        excess=runs.excess[rows],
        input_size=runs.input_size[rows],
        median_input=runs.median_input[rows],
        expected=expected,
        cause=np.array(CAUSES, dtype=object)[causes],
    )


class _Runs:
    """The runs of the functions that may have stragglers, with what is usual for these.

    Parameters
    ----------
    trace
        The trace.
    """

    def __init__(self, run: Run) -> None:
        tasks = run.tasks
        executing, length = tasks["executing"].to_numpy(), tasks["duration"].to_numpy()
        # Of its thread's time, with unspilling and deserialising, where its worker tells; but not
        # that for which it waited for a core, as any run would have.
        waited = np.nan_to_num(tasks["run_queue"].to_numpy(dtype=float))
        waited = np.clip(waited, 0.0, np.maximum(length, 0.0))
        seconds = np.fmax(tasks["done"].to_numpy() - executing, length) - waited
        #: Seconds that a straggler takes at least.
        self.least = SHARE_OF_WALL * run.wall
        function = tasks["function"].cat
        codes = function.codes.to_numpy()
        wanted = np.isin(codes, np.unique(codes[seconds > self.least]))
        # What seceded waits for tasks of its own, for as long as they take.
        rows = np.flatnonzero(wanted & tasks["seceded"].isna().to_numpy())
        #: Their rows in the trace.
        self.rows = rows
        self.tasks = tasks = tasks.take(rows)
        self.seconds, self.working = seconds[rows], (length - waited)[rows]
        start = tasks["start"].to_numpy()
        self.start: Array = np.where(np.isfinite(executing[rows]), executing[rows], start)
        #: When their functions returned: before `done`, as Dask gives the thread away first.
        self.returned: Array = start + length[rows]
        self.workers = run.named
        self.worker = self.workers.numbers(tasks)
        layers = task_layers(run)
        self.function = codes[rows].astype(np.int64)
        #: By layer: what is usual for a run is what others of its layer take.
        self.groups = Groups(layers.codes[rows], layers.count)
        self.median = self._usual(self.seconds)
        self.deviation: Array = self.groups.deviation(self.seconds)[self.groups.codes]
        self.excess: Array = self.seconds - self.median
        self.input_size = tasks["input_size"].to_numpy(dtype=float)
        self.median_input = self._usual(self.input_size)

    def _usual(self, values: Array) -> Array:
        """Return each run the median of its layer."""
        return self.groups.median(values)[self.groups.codes]

    def causes(self, rows: Array) -> tuple[Array, Array]:
        """Return the number of the cause of each of these runs, and what its input lets expect."""
        expected = self._expected(rows)
        usual = self.median_input[rows]
        larger = (self.input_size[rows] >= _LARGER * usual) & (usual > 0)
        slow_worker, slow_host = self._slow_places
        unspill, deserialize, cpu = (
            self.tasks[name].to_numpy(dtype=float) for name in ("disk_read", "deserialize", "cpu")
        )
        explained = [  # in the order of `CAUSES`
            larger & (self.seconds[rows] <= TIMES_MEDIAN * expected),
            slow_host[rows],
            slow_worker[rows],
            self._is_due(unspill, rows),
            self._is_due(deserialize, rows),
            self._is_due(self.seconds - self.working, rows),
            self._first(rows),
            self._skewed(rows),
            self._is_due(self.working - cpu, rows),
            self._is_due(cpu, rows),
        ]
        return np.select(explained, range(len(explained)), len(explained)), expected

    def _expected(self, rows: Array) -> Array:
        """Return what the size of a run's input lets expect: seconds.

        That is the median of the runs of its layer whose inputs are of the same power of two,
        where there are some others; else the time grows as the input does.
        """
        sizes = np.frexp(np.nan_to_num(self.input_size))[1].astype(np.int64)
        span = int(sizes.max(initial=0) - sizes.min(initial=0)) + 1
        cells, distinct = pd.factorize(self.groups.codes * span + sizes - sizes.min(initial=0))
        alike = Groups(cells, len(distinct))
        of_rows = cells[rows]
        grown = np.fmax(ratio(self.input_size[rows], self.median_input[rows]), 1.0)
        others = alike.sizes[of_rows] - 1
        return np.where(
            others >= FEWEST, alike.median(self.seconds)[of_rows], self.median[rows] * grown
        )

    @cached_property
    def _slow_places(self) -> tuple[Array, Array]:
        """Return for each run whether its worker, and whether its whole host, is slow for it."""
        hosts = pd.factorize(self.workers.hosts)[0]
        on_workers = measure_slowness(self.groups.codes, self.worker, self.seconds)
        on_hosts = measure_slowness(self.groups.codes, hosts[self.worker], self.seconds)
        # The host's pair of each worker's pair: it is slow if all of its workers are, not one.
        above = np.empty(len(on_workers.runs), dtype=np.int64)
        above[on_workers.of_run] = on_hosts.of_run
        within = Groups(above, len(on_hosts.runs))
        slow_hosts = on_hosts.slow & (within.sizes > 1)
        slow_hosts &= within.min(on_workers.median) >= TIMES_OTHERS * on_hosts.median_elsewhere
        return on_workers.slow[on_workers.of_run], slow_hosts[on_hosts.of_run]

    def _is_due(self, seconds: Array, rows: Array) -> Array:
        """Return whether these seconds make up for the runs' excess over what is usual."""
        return (seconds - self._usual(seconds))[rows] >= _EXPLAINS * self.excess[rows]

    def _first(self, rows: Array) -> Array:
        """Return whether no run of the function had returned on the worker when the run began."""
        lives = self.tasks["worker_id"].to_numpy().astype(np.int64)
        cells, distinct = pd.factorize(lives + self.function * (int(lives.max(initial=0)) + 1))
        places = Groups(cells, len(distinct))
        first = self.start < places.min(self.returned)[cells]
        # Where all are first, that does not tell one from the others.
        some_later = places.sum((~first).astype(float)) > 0
        return (first & some_later[cells])[rows]

    def _skewed(self, rows: Array) -> Array:
        """Return whether the spread of a layer's runs lets so long ones be expected.

        Among n values of a normal distribution the highest is ``sqrt(2 ln(n))`` deviations above
        the mean, or a little less; here the logarithms are taken for normal.
        """
        logs = np.log(np.where(self.seconds > 0, self.seconds, np.nan))
        deviations = self.groups.deviation(logs)[self.groups.codes[rows]] / _NORMAL_DEVIATION
        highest = np.sqrt(2 * np.log(self.groups.sizes[self.groups.codes[rows]])) + _CHANCE
        above = (logs - self._usual(logs))[rows]
        return above <= highest * deviations
