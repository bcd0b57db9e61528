"""Task runs that took far longer than others with the same work, slow workers, and causes."""

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

# --- Workers, and hosts, on which a function takes longer than on others --------------------------

#: Thresholds of a worker or host that is slow for a function: ratio of its median to the median of
#: the other workers' medians,
TIMES_OTHERS = 1.5
#: number of standard deviations by which the rank sum of its runs exceeds its expectation,
RANK_SUM_Z = 3.3
#: and minimum number of runs there, and on the others.
FEWEST_ON_A_WORKER = 6


@dataclass(frozen=True)
class Slowness:
    """How slow each function is on each worker or host where it ran."""

    #: Pair of function and worker of each run.
    of_run: Array
    #: Function, worker and number of runs of each pair.
    function: Array
    place: Array
    runs: Array
    #: Median seconds of each pair, and median of the medians of its function on other workers.
    median: Array
    median_elsewhere: Array
    #: Standardized rank sum (Wilcoxon, Mann and Whitney) of its runs among those of its function.
    z: Array
    #: Whether it is slow by the three thresholds of this module.
    slow: Array


def measure_slowness(function: Array, place: Array, seconds: Array) -> Slowness:
    """Compare workers or hosts by the seconds of the runs of each function there.

    Parameters
    ----------
    function, place
        Code of the function and of the worker or host of each run.
    seconds
        Seconds of each run.
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
    """Return for each value the median of the other values in its group, or NaN."""
    grouped = Groups(groups, count)
    places = grouped.places(values)
    ordered = np.empty(len(values))
    begins = grouped.begins[groups]
    ordered[begins + places] = values
    others = grouped.sizes[groups] - 1

    def other(number: Array) -> Array:
        """Return the value at an index after the own value of each row is removed."""
        return ordered[begins + number + (number >= places)]

    alone = others == 0
    low = np.where(alone, 0, (others - 1) // 2)
    high = np.where(alone, 0, others // 2)
    low, high = low - alone, high - alone
    return np.where(alone, np.nan, (other(low) + other(high)) / 2)


# --- Task runs that took far longer than others of their function and layer, and causes -----------

#: Thresholds of a straggler: multiple of its layer's median (see `number_layers`),
TIMES_MEDIAN = 2.0
#: number of median absolute deviations above the median,
DEVIATIONS = 3.0
#: and fraction of the run's wall time.
SHARE_OF_WALL = 0.01
#: Minimum number of runs of a layer that can have stragglers.
FEWEST = 5

#: Threshold (multiple of the layer's median input bytes): an input is larger.
_LARGER = 1.5
#: Threshold (fraction of the excess over the median): a cause explains a straggler.
_EXPLAINS = 0.5
#: Ratio of the median absolute deviation to the standard deviation of a normal distribution.
_NORMAL_DEVIATION = 0.6745
#: Number of deviations beyond the highest expected value that still count as chance.
_CHANCE = 0.5

#: Causes in the order in which they are checked. The first that explains a run is its cause.
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
    """The stragglers, by excess, largest first."""

    #: Rows of `Trace.tasks`, and codes of `NamedWorkers`.
    rows: Array
    worker: Array
    #: Start in Unix seconds.
    start: Array
    #: Seconds of its thread without CPU wait, the median of its layer, and the excess.
    seconds: Array
    median: Array
    excess: Array
    #: Bytes of its input, the layer's median, and the expected seconds for an input of this size.
    input_size: Array
    median_input: Array
    expected: Array
    #: Cause of each, one of `CAUSES`.
    cause: Array


@once_per_trace
def find_stragglers(run: Run) -> StragglerRuns:
    """Return the stragglers of a run with their causes.

    A straggler takes at least twice the median, as in Mantri (OSDI'10) and Spark. It is also at
    least three deviations above the median, so that a layer with a wide spread has few stragglers,
    and takes at least one percent of the run's wall time, so that it matters.
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
    """Task runs of functions that may have stragglers, with the usual values of their layers.

    Parameters
    ----------
    trace
        The trace.
    """

    def __init__(self, run: Run) -> None:
        tasks = run.tasks
        executing, length = tasks["executing"].to_numpy(), tasks["duration"].to_numpy()
        # The time of its thread, with unspilling and deserializing if recorded, but without CPU
        # wait, which any run would have had.
        waited = np.nan_to_num(tasks["run_queue"].to_numpy(dtype=float))
        waited = np.clip(waited, 0.0, np.maximum(length, 0.0))
        seconds = np.fmax(tasks["done"].to_numpy() - executing, length) - waited
        #: Minimum seconds of a straggler.
        self.least = SHARE_OF_WALL * run.wall
        function = tasks["function"].cat
        codes = function.codes.to_numpy()
        wanted = np.isin(codes, np.unique(codes[seconds > self.least]))
        # A run that seceded waits for its own tasks, whose duration it cannot change.
        rows = np.flatnonzero(wanted & tasks["seceded"].isna().to_numpy())
        #: Their rows in the trace.
        self.rows = rows
        self.tasks = tasks = tasks.take(rows)
        self.seconds, self.working = seconds[rows], (length - waited)[rows]
        start = tasks["start"].to_numpy()
        self.start: Array = np.where(np.isfinite(executing[rows]), executing[rows], start)
        #: When their functions returned. This is before `done`, because Dask releases the thread
        #: first.
        self.returned: Array = start + length[rows]
        self.workers = run.named
        self.worker = self.workers.numbers(tasks)
        layers = task_layers(run)
        self.function = codes[rows].astype(np.int64)
        #: Groups by layer, whose medians are the usual values.
        self.groups = Groups(layers.codes[rows], layers.count)
        self.median = self._usual(self.seconds)
        self.deviation: Array = self.groups.deviation(self.seconds)[self.groups.codes]
        self.excess: Array = self.seconds - self.median
        self.input_size = tasks["input_size"].to_numpy(dtype=float)
        self.median_input = self._usual(self.input_size)

    def _usual(self, values: Array) -> Array:
        """Return the median of its layer for each run."""
        return self.groups.median(values)[self.groups.codes]

    def causes(self, rows: Array) -> tuple[Array, Array]:
        """Return the code of each run's cause, and the expected seconds for its input."""
        expected = self._expected(rows)
        usual = self.median_input[rows]
        larger = (self.input_size[rows] >= _LARGER * usual) & (usual > 0)
        slow_worker, slow_host = self._slow_places
        unspill, deserialize, cpu = (
            self.tasks[name].to_numpy(dtype=float) for name in ("disk_read", "deserialize", "cpu")
        )
        explained = [  # In the order of `CAUSES`.
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
        """Return the expected seconds for the size of each run's input.

        It is the median of the runs of its layer whose inputs have the same power of two, if there
        are others. If not, the duration is proportional to the input.
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
        """Return masks of runs whose worker, and whose whole host, is slow for them."""
        hosts = pd.factorize(self.workers.hosts)[0]
        on_workers = measure_slowness(self.groups.codes, self.worker, self.seconds)
        on_hosts = measure_slowness(self.groups.codes, hosts[self.worker], self.seconds)
        # The host's pair of each worker's pair. A host is slow if all of its workers are.
        above = np.empty(len(on_workers.runs), dtype=np.int64)
        above[on_workers.of_run] = on_hosts.of_run
        within = Groups(above, len(on_hosts.runs))
        slow_hosts = on_hosts.slow & (within.sizes > 1)
        slow_hosts &= within.min(on_workers.median) >= TIMES_OTHERS * on_hosts.median_elsewhere
        return on_workers.slow[on_workers.of_run], slow_hosts[on_hosts.of_run]

    def _is_due(self, seconds: Array, rows: Array) -> Array:
        """Return whether these seconds explain the runs' excess."""
        return (seconds - self._usual(seconds))[rows] >= _EXPLAINS * self.excess[rows]

    def _first(self, rows: Array) -> Array:
        """Return whether no run of the function had returned on the worker when the run started."""
        lives = self.tasks["worker_id"].to_numpy().astype(np.int64)
        cells, distinct = pd.factorize(lives + self.function * (int(lives.max(initial=0)) + 1))
        places = Groups(cells, len(distinct))
        first = self.start < places.min(self.returned)[cells]
        # If all runs are first runs, this does not distinguish any of them.
        some_later = places.sum((~first).astype(float)) > 0
        return (first & some_later[cells])[rows]

    def _skewed(self, rows: Array) -> Array:
        """Return whether the spread of a layer's runs explains such long ones.

        Among n values of a normal distribution, the expected maximum is about ``sqrt(2 ln(n))``
        deviations above the mean. Logarithms of durations are assumed to have a normal
        distribution.
        """
        logs = np.log(np.where(self.seconds > 0, self.seconds, np.nan))
        deviations = self.groups.deviation(logs)[self.groups.codes[rows]] / _NORMAL_DEVIATION
        highest = np.sqrt(2 * np.log(self.groups.sizes[self.groups.codes[rows]])) + _CHANCE
        above = (logs - self._usual(logs))[rows]
        return above <= highest * deviations
