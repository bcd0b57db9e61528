"""Task runs that took far longer than others of the same layer, slow workers, and causes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import task_layers
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Thresholds for a worker that is slow for a function. Threshold (ratio): its median divided by the
#: median of the medians of the other workers.
TIMES_OTHERS = 1.5
#: Threshold (standard deviations): excess of the rank sum of its task runs over the expected rank
#: sum.
RANK_SUM_Z = 3.3
#: Minimum number of task runs on this worker, and on the other workers.
FEWEST_ON_A_WORKER = 6


@dataclass(frozen=True)
class Slowness:
    """How slow each function is on each worker where it ran.

    "Pair" means a function and one worker on which it ran.
    """

    #: Pair to which each task run belongs.
    of_run: Array
    #: Function, worker, and number of task runs of each pair.
    function: Array
    place: Array
    runs: Array
    #: Median seconds of each pair. Then the median of the medians of the same function on the other
    #: workers, or NaN if the pair is not slow by the other thresholds.
    median: Array
    median_elsewhere: Array
    #: Standardized rank sum (Wilcoxon, Mann and Whitney) of the pair's task runs among all task
    #: runs of the function.
    z: Array
    #: Whether the pair is slow by the three thresholds above.
    slow: Array


def measure_slowness(function: Array, place: Array, seconds: Array) -> Slowness:
    """Compare workers by how long each function takes on them.

    `function` and `place` are the codes of each task run's function and of its worker.
    """
    places = int(place.max(initial=-1)) + 1
    of_run, pairs = pd.factorize(function.astype(np.int64) * max(places, 1) + place, sort=True)
    of_pair, where = np.divmod(pairs, max(places, 1))
    functions = Groups(function, int(function.max(initial=-1)) + 1)
    groups = Groups(of_run, len(pairs))
    median = groups.median(seconds)
    here = groups.sizes.astype(float)
    total = functions.sizes[of_pair].astype(float)
    there = total - here
    spread = np.sqrt(here * there * (total + 1) / 12)
    z = ratio(groups.sum(functions.ranks(seconds)) - here * (total + 1) / 2, spread)
    slower = (z >= RANK_SUM_Z) & (here >= FEWEST_ON_A_WORKER) & (there >= FEWEST_ON_A_WORKER)
    pairs_of_functions, elsewhere = Groups(of_pair, functions.count), np.full(len(pairs), np.nan)
    for pair in np.flatnonzero(slower).tolist():
        others = pairs_of_functions.rows(of_pair[pair])
        elsewhere[pair] = np.median(median[others[others != pair]])
    slow = median >= TIMES_OTHERS * elsewhere
    return Slowness(of_run, of_pair, where, groups.sizes, median, elsewhere, z, slow)


#: Thresholds for a straggler. Threshold (multiple of the median of its layer, see `number_layers`):
#: duration.
TIMES_MEDIAN = 2.0
#: Threshold (number of median absolute deviations): duration above the median.
DEVIATIONS = 3.0
#: Threshold (fraction of the run's wall time): duration.
SHARE_OF_WALL = 0.01
#: Minimum number of task runs of a layer in which stragglers are searched.
FEWEST = 5

#: Threshold (multiple of the median input bytes of the layer): the input counts as larger.
_LARGER = 1.5
#: Threshold (fraction of the excess over the median): a cause explains a straggler.
_EXPLAINS = 0.5

#: Causes in the order in which they are checked. The first cause that explains a straggler is used.
CAUSES = (
    "larger input",
    "slow worker",
    "spill",
    "deserialising",
    "worker overhead",
    "first run on that worker",
    "blocked",
    "computed longer",
    "unknown",
)


@dataclass(frozen=True)
class StragglerRuns:
    """The stragglers of a run, sorted by excess in descending order."""

    #: Row of `Trace.tasks`, and code of the worker in `NamedWorkers`.
    rows: Array
    worker: Array
    #: Start in Unix seconds.
    start: Array
    #: Seconds of the thread without CPU wait, the median of the layer, and the difference of both.
    seconds: Array
    median: Array
    excess: Array
    #: Bytes of the input, the median of the layer, and the expected seconds for an input of this
    #: size.
    input_size: Array
    median_input: Array
    expected: Array
    #: Index in `CAUSES` of each straggler's cause.
    cause: Array


@once_per_trace
def find_stragglers(run: Run) -> StragglerRuns:
    """Return the stragglers of a run with their causes."""
    runs = _Runs(run)
    # A straggler takes at least twice the median of its layer, as in Mantri (OSDI'10) and Spark. It
    # is also at least three median absolute deviations above the median, so that a layer with a
    # wide spread has few stragglers.
    slow = runs.seconds > np.maximum(
        TIMES_MEDIAN * runs.median, runs.median + DEVIATIONS * runs.deviation
    )
    # Only task runs of at least one percent of the run's wall time matter.
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
    """Task runs that may be stragglers, with the median values of their layers."""

    def __init__(self, run: Run) -> None:
        tasks = run.tasks
        executing, length = tasks["executing"].to_numpy(), tasks["duration"].to_numpy()
        # Seconds of the thread, including unspilling and deserializing if recorded. CPU wait is
        # excluded, because any task run would have had to wait.
        waited = np.nan_to_num(tasks["run_queue"].to_numpy(dtype=float))
        waited = np.clip(waited, 0.0, np.maximum(length, 0.0))
        seconds = np.fmax(tasks["done"].to_numpy() - executing, length) - waited
        #: Minimum seconds of a straggler.
        self.least = SHARE_OF_WALL * run.wall
        function = tasks["function"].cat
        codes = function.codes.to_numpy()
        wanted = np.isin(codes, np.unique(codes[seconds > self.least]))
        # A task run that seceded waits for its child tasks, and cannot change their duration.
        rows = np.flatnonzero(wanted & tasks["seceded"].isna().to_numpy())
        #: Rows of these task runs in `Trace.tasks`.
        self.rows = rows
        self.tasks = tasks = tasks.take(rows)
        self.seconds, self.working = seconds[rows], (length - waited)[rows]
        start = tasks["start"].to_numpy()
        self.start: Array = np.where(np.isfinite(executing[rows]), executing[rows], start)
        #: Times at which the functions returned. They are before `done`, because Dask releases the
        #: thread in between.
        self.returned: Array = start + length[rows]
        self.worker = run.named.numbers(tasks)
        layers = task_layers(run)
        self.function = codes[rows].astype(np.int64)
        #: Groups by layer. The medians of these groups are the usual values.
        self.groups = Groups(layers.codes[rows], layers.count)
        self.median = self._usual(self.seconds)
        self.deviation: Array = self.groups.deviation(self.seconds)[self.groups.codes]
        self.excess: Array = self.seconds - self.median
        self.input_size = tasks["input_size"].to_numpy(dtype=float)
        self.median_input = self._usual(self.input_size)

    def _usual(self, values: Array) -> Array:
        """Return, for each task run, the median of `values` in its layer."""
        return self.groups.median(values)[self.groups.codes]

    def causes(self, rows: Array) -> tuple[Array, Array]:
        """Return the code of each straggler's cause, and the result of `_expected`."""
        expected = self._expected(rows)
        usual = self.median_input[rows]
        larger = (self.input_size[rows] >= _LARGER * usual) & (usual > 0)
        slowness = measure_slowness(self.groups.codes, self.worker, self.seconds)
        unspill, deserialize, cpu = (
            self.tasks[name].to_numpy(dtype=float) for name in ("disk_read", "deserialize", "cpu")
        )
        explained = [  # In the order of `CAUSES`.
            larger & (self.seconds[rows] <= TIMES_MEDIAN * expected),
            slowness.slow[slowness.of_run[rows]],
            self._is_due(unspill, rows),
            self._is_due(deserialize, rows),
            self._is_due(self.seconds - self.working, rows),
            self._first(rows),
            self._is_due(self.working - cpu, rows),
            self._is_due(cpu, rows),
        ]
        return np.select(explained, range(len(explained)), len(explained)), expected

    def _expected(self, rows: Array) -> Array:
        """Return the expected seconds of stragglers, given the sizes of their inputs."""
        # Inputs have a similar size if it is the same power of two.
        sizes = np.frexp(np.nan_to_num(self.input_size))[1].astype(np.int64)
        span = int(sizes.max(initial=0) - sizes.min(initial=0)) + 1
        cells, distinct = pd.factorize(self.groups.codes * span + sizes - sizes.min(initial=0))
        alike = Groups(cells, len(distinct))
        of_rows = cells[rows]
        grown = np.fmax(ratio(self.input_size[rows], self.median_input[rows]), 1.0)
        others = alike.sizes[of_rows] - 1
        # If too few task runs of the layer have inputs of a similar size, the duration is assumed
        # to be proportional to the size of the input.
        return np.where(
            others >= FEWEST, alike.median(self.seconds)[of_rows], self.median[rows] * grown
        )

    def _is_due(self, seconds: Array, rows: Array) -> Array:
        """Return whether the time spent in one way explains the excess of each of `rows`.

        `seconds` contains this time for all task runs.
        """
        return (seconds - self._usual(seconds))[rows] >= _EXPLAINS * self.excess[rows]

    def _first(self, rows: Array) -> Array:
        """Return whether each task run was one of the first of its function on its worker."""
        lives = self.tasks["worker_id"].to_numpy().astype(np.int64)
        cells, distinct = pd.factorize(lives + self.function * (int(lives.max(initial=0)) + 1))
        places = Groups(cells, len(distinct))
        # It began before any task run of the function had ended on this worker.
        first = self.start < places.min(self.returned)[cells]
        # If every task run of a function on a worker is such a first run, this explains none of
        # them.
        some_later = places.sum((~first).astype(float)) > 0
        return (first & some_later[cells])[rows]
