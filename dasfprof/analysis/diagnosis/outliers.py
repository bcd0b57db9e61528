"""Outliers: task runs and workers that make a run long though most of its tasks are not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.task_figures import TaskFigures
from dasfprof.analysis.model.stragglers import (
    TIMES_OTHERS,
    Slowness,
    StragglerRuns,
    find_stragglers,
    measure_slowness,
)
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.numeric.intervals import union
from dasfprof.database.columns import Array

#: A partition is fat if it has so many times the median bytes of its layer's, and so many bytes.
_FAT = 3.0
_FAT_BYTES = 10_000


class Outliers:
    """The outliers of a run.

    Parameters
    ----------
    run
        The figures of the run.
    """

    def __init__(self, run: TaskFigures) -> None:
        self._run = run

    @cached_property
    def slowness(self) -> Slowness:
        """How slow each function is on each worker.

        Waits for cores do not count, and a worker with larger partitions is not slow.
        """
        run = self._run
        found = measure_slowness(
            run.functions.codes, run.workers.numbers(run.trace.tasks), run.working
        )
        sizes = np.fmax(run.task_column("input_size"), run.task_column("size"))
        here = Groups(found.of_run, len(found.runs)).median(sizes)
        with np.errstate(invalid="ignore"):
            larger = here >= TIMES_OTHERS * run.functions.median(sizes)[found.function]
        return dataclasses.replace(found, slow=found.slow & ~larger)

    @cached_property
    def on_slow_worker(self) -> Array:
        """Whether each task run is of a function that is slow on its worker."""
        slow: Array = self.slowness.slow[self.slowness.of_run]
        return slow

    @cached_property
    def stragglers(self) -> StragglerRuns:
        """The runs that took far longer than others: those of `TraceAnalyser.stragglers`."""
        return find_stragglers(self._run.trace)

    @cached_property
    def partitions(self) -> tuple[Array, Array]:
        """The bytes of each straggler's partition, and how many times what is usual they are.

        That is its input or its result, whichever is the further above the median of its layer's.
        """
        return self._sizes(self.stragglers.rows)

    @property
    def fat(self) -> Array:
        """Whether each straggler's partition is far larger than those of others."""
        size, times = self.partitions
        fat: Array = (times >= _FAT) & (size >= _FAT_BYTES)
        return fat

    def _sizes(self, rows: Array) -> tuple[Array, Array]:
        """Return the bytes of each row's input or result, whichever is the further above usual."""
        run, codes = self._run, self._run.layers.codes[rows]
        found, factors = np.zeros(len(rows)), np.zeros(len(rows))
        for column in ("input_size", "size"):
            sizes = run.task_column(column)
            usual = run.layers.median(sizes)[codes]
            factor = np.nan_to_num(ratio(sizes[rows], usual))
            found = np.where(factor > factors, sizes[rows], found)
            factors = np.maximum(factors, factor)
        return found, factors

    def idle_behind(self, rows: Array, excess: Array) -> float:
        """Return the wall seconds for which threads idled while the last of runs' seconds passed.

        Parameters
        ----------
        rows
            Rows of `Trace.tasks`.
        excess
            How many of the last seconds of each count.
        """
        stop = self._run.slots.times.stop[rows]
        begins, ends = union(stop - excess, stop)
        return float(self._run.idle_between(begins, ends).sum())


# --- First uses: the first runs of functions on workers that take far longer than later ones ------

#: First runs take so many times as long as later ones, usually,
_TIMES = 3.0
#: on so large a share of the workers,
_WORKERS = 0.5
#: and so small a share of the later runs takes a third as long as the first ones.
_LATER = 0.1


@dataclass(frozen=True)
class FirstUses:
    """First runs that take far longer than later runs of their function do."""

    #: Rows of `Trace.tasks`.
    rows: Array
    #: Seconds of each beyond the median of its function's later runs, and that median.
    excess: Array
    usual: Array


def find_first_uses(
    functions: Groups, worker: Array, start: Array, held: Array, seconds: Array
) -> FirstUses:
    """Find first uses.

    A first run on a worker is one that began before any of its function had ended there: where
    several begin at once, all wait for the same import or compilation.

    Parameters
    ----------
    functions
        The runs by function.
    worker, start, held, seconds
        Of each run its worker, when it began, for how long it held its thread, and that without
        waits for a core; NaN of one that is not to be compared with others.
    """
    cells, distinct = pd.factorize(worker.astype(np.int64) * functions.count + functions.codes)
    places = Groups(cells, len(distinct))
    first = start < places.min(start + held)[cells]
    later = Groups(np.where(first, -1, functions.codes), functions.count)
    usual = later.median(np.where(first, np.nan, seconds))[functions.codes]
    with np.errstate(invalid="ignore"):
        long = seconds > _TIMES * usual
    slow_places = places.max((first & long).astype(float)) > 0
    of_place = np.zeros(len(distinct), dtype=np.int64)
    of_place[cells] = functions.codes
    share = Groups(of_place, functions.count).mean(slow_places.astype(float))
    slow = np.flatnonzero(first & long)
    typical = Groups(functions.codes[slow], functions.count).median(seconds[slow])
    with np.errstate(invalid="ignore"):
        late = later.mean((seconds * _TIMES > typical[functions.codes]).astype(float))
        found = (share >= _WORKERS) & (late <= _LATER)
    rows = np.flatnonzero(first & long & found[functions.codes])
    return FirstUses(rows, (seconds - usual)[rows], usual[rows])
