"""How many task runs of each step and function have ended, how fast, and how many are left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from dasfprof.analysis.trace.keys import KeyTable, as_key_column
from dasfprof.analysis.trace.steps import LayerNames
from dasfprof.database.block_codec import Batch
from dasfprof.database.columns import Array, Column, KeyColumn
from dasfprof.schema.steps import SEPARATOR, STEP, STEP_LAYER
from dasfprof.schema.tasks import GRAPH

# --- LiveSteps: which step of the pipeline task runs belong to, as far as it is known by then -----
#
# In this order: the step that built the task's layer, the step in which its graph was computed.
# `dasfprof.analysis.trace.steps`, which has the whole trace, also knows of annotations and of
# layers that were fused into others.

#: What is read of each kind of event.
WANTED = {STEP.name: ("id", "parent", "step"), STEP_LAYER.name: ("id", "layer")}
WANTED_OF_SCHEDULER = {GRAPH.name: ("tasks", "stimulus", "step")}


class LiveSteps:
    """The steps that were entered, and what was built and computed in them."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._names = LayerNames()
        #: Paths by the identities of layers, and by the hashes of the stimuli of graphs.
        self._layers: dict[int, str] = {}
        self._graphs: dict[int, str] = {}
        #: Tasks of all graphs that arrived.
        self.tasks = 0
        #: The step in which the last graph was computed, and those that task runs belong to by
        #: their graphs alone.
        self._last: str | None = None
        self._by_graphs: set[str | None] = set()

    def elsewhere(self) -> frozenset[str | None]:
        """Return the steps after which graphs of others came, which may have the same functions."""
        return frozenset(self._by_graphs - {self._last})

    def take(self, batches: list[Batch]) -> None:
        """Take what the client recorded."""
        for batch in (batch for batch in batches if batch.name == STEP.name):
            columns = (batch.args[name].to_list() for name in WANTED[STEP.name])
            for number, parent, name in zip(*columns, strict=True):
                around = self._paths.get(parent)
                self._paths[number] = f"{around}{SEPARATOR}{name}" if around else str(name)
        for batch in (batch for batch in batches if batch.name == STEP_LAYER.name):
            layers = self._names.identities(
                KeyTable.of(as_key_column(batch.args["layer"])), new=True
            )
            for number, layer in zip(batch.args["id"].to_list(), layers.tolist(), strict=True):
                if layer and number in self._paths:
                    self._layers[layer] = self._paths[number]

    def take_graphs(self, batch: Batch) -> None:
        """Take graphs that arrived at the scheduler."""
        self.tasks += sum(count or 0 for count in batch.args["tasks"].to_list())
        names = batch.args["step"].to_list() if "step" in batch.args else []
        stimuli = batch.args.get("stimulus")
        if isinstance(stimuli, KeyColumn):
            for step, stimulus in zip(names, KeyTable.of(stimuli).hashes().tolist(), strict=False):
                self._last = None
                if isinstance(step, tuple | list) and step:
                    self._last = self._graphs[stimulus] = SEPARATOR.join(map(str, step))

    def find(self, key: KeyColumn, graph: Column | None) -> tuple[Array, list[str | None]]:
        """Return the step of each task run.

        Returns
        -------
        codes, steps
            Row ``i`` belongs to ``steps[codes[i]]``; None: to none that is known.
        """
        steps: dict[str | None, int] = {None: 0}
        codes = np.zeros(len(key), dtype=np.int64)
        if self._graphs and isinstance(graph, KeyColumn):
            codes = _named(KeyTable.of(graph).hashes(), self._graphs, codes, steps)
        by_graph = codes
        if self._layers:
            codes = _named(self._names.identities(KeyTable.of(key)), self._layers, codes, steps)
        names = list(steps)
        self._by_graphs.update(names[code] for code in np.unique(codes[codes == by_graph]))
        return codes, list(steps)


def _named(ids: Array, paths: dict[int, str], codes: Array, steps: dict[str | None, int]) -> Array:
    """Return the numbers of the paths of ids; `codes` of those without."""
    distinct, places = np.unique(ids, return_inverse=True)
    found = [
        steps.setdefault(paths[one], len(steps)) if one in paths else -1
        for one in distinct.tolist()
    ]
    own = np.array(found, dtype=np.int64)[places]
    return np.where(own >= 0, own, codes)


# --- How many task runs of each step and function have ended, how fast, and how many are left -----

# `TaskCounts`: how many task runs of each step and function have ended, how fast and how long.

#: Seconds over which rates are taken.
WINDOW = 30.0

#: Durations are counted in bins that are 9 % wide, from a microsecond to 12 days.
_BINS_A_DOUBLING, _SHORTEST, _BINS = 8, 1e-6, 320
#: Rows beyond these are counted together: names may come from whoever wrote the trace.
_MOST_ROWS = 2000
OTHERS = (None, "other functions")


class TaskCounts:
    """Ended task runs, by step and function.

    A *row* is a step (or None) and a function. Rows are numbered as they are first met.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str | None, str], int] = {}
        self.done = np.zeros(_MOST_ROWS + 1, dtype=np.int64)
        self.failed = np.zeros(_MOST_ROWS + 1, dtype=np.int64)
        #: Unix seconds at which the first run of the row began; infinite where none has.
        self.began = np.full(_MOST_ROWS + 1, np.inf)
        #: Unix seconds at which a run last ended; NaN: none has.
        self.last_end = float("nan")
        self._timed = np.zeros(_MOST_ROWS + 1, dtype=np.int64)
        self._seconds = np.zeros(_MOST_ROWS + 1)
        self._histogram = np.zeros((_MOST_ROWS + 1, _BINS), dtype=np.int32)
        #: Of the runs that ended lately: rows, the whole seconds of their ends, seconds in threads.
        self._recent = np.empty((3, 0))

    @property
    def rows(self) -> list[tuple[str | None, str]]:
        """The step and the function of each row."""
        return list(self._numbers)

    def number(self, step: str | None, function: str) -> int:
        """Return the number of a row."""
        row = step, function
        if len(self._numbers) >= _MOST_ROWS and row not in self._numbers:
            row = OTHERS
        return self._numbers.setdefault(row, len(self._numbers))

    def add(self, rows: Array, done: Array, begins: Array, ends: Array, seconds: Array) -> None:
        """Count task runs that ended.

        Parameters
        ----------
        rows
            Numbers of rows.
        done
            Whether each succeeded, else it failed.
        begins, ends
            Unix seconds.
        seconds
            That it held a thread; NaN: unknown.
        """
        count = len(self.done)
        self.done += np.bincount(rows[done], minlength=count)
        self.failed += np.bincount(rows[~done], minlength=count)
        np.minimum.at(self.began, rows, begins)
        self.last_end = float(np.fmax.reduce(ends, initial=self.last_end))
        timed = np.isfinite(seconds) & (seconds >= 0)
        of, spans = rows[timed], seconds[timed]
        self._timed += np.bincount(of, minlength=count)
        self._seconds += np.bincount(of, spans, minlength=count)
        bins = np.log2(np.maximum(spans, _SHORTEST) / _SHORTEST) * _BINS_A_DOUBLING
        np.add.at(self._histogram, (of, np.minimum(bins.astype(np.int64), _BINS - 1)), 1)
        lately = np.array([rows, np.floor(ends), np.where(timed, seconds, 0.0)])
        lately = np.append(self._recent, lately[:, np.isfinite(ends)], axis=1)
        self._recent = lately[:, lately[1] > lately[1].max(initial=0.0) - 2 * WINDOW]

    def rates(self, now: float) -> Array:
        """Return how many task runs of each row ended a second, lately or since the row began."""
        rows = self._since(now)[0].astype(np.int64)
        ended: Array = np.bincount(rows, minlength=len(self.done))
        return ended / np.clip(now - self.began, 1.0, WINDOW)

    def recent_thread_seconds(self, now: float) -> float:
        """Return the seconds in threads a second of all task runs that ended lately."""
        span: float = min(max(now - float(self.began.min()), 1.0), WINDOW)
        return float(self._since(now)[2].sum()) / span

    def _since(self, now: float) -> Array:
        """Return what ended in the last 30 s."""
        second = self._recent[1]
        return self._recent[:, (second >= now - WINDOW) & (second <= now)]

    def means(self) -> Array:
        """Return the mean seconds in a thread of each row, NaN where none is known."""
        with np.errstate(invalid="ignore"):
            return np.where(self._timed > 0, self._seconds / np.maximum(self._timed, 1), np.nan)

    def mean(self) -> float:
        """Return the mean seconds in a thread of all runs; 0 where none is known."""
        return float(self._seconds.sum()) / max(int(self._timed.sum()), 1)

    def median_of(self, function: str) -> float | None:
        """Return the median seconds of a function's runs, to 9 %; None where none has ended."""
        rows = [number for (_, name), number in self._numbers.items() if name == function]
        histogram = self._histogram[rows].sum(axis=0)
        total = int(histogram.sum())
        if not total:
            return None
        place = int(np.searchsorted(np.cumsum(histogram), (total + 1) / 2))
        middle: Any = _SHORTEST * 2 ** ((place + 0.5) / _BINS_A_DOUBLING)
        return float(middle)


# --- `Unfinished`: the tasks that the scheduler has yet to see done, by function ------------------

#: States of tasks, in Dask's words.
_ON_WORKERS, _WAITING = "processing", ("waiting", "queued", "no-worker")


@dataclass(frozen=True)
class EndedRuns:
    """Task runs that ended for good: run ``i`` is one of ``names[codes[i]]``."""

    names: list[str]
    codes: Array
    #: Unix seconds.
    ends: Array

    def after(self, time: float) -> EndedRuns:
        """Return those that ended later."""
        late = self.ends > time
        return EndedRuns(self.names, self.codes[late], self.ends[late])


class Unfinished:
    """The scheduler's last count of unfinished tasks, less those that ended after it.

    The scheduler counts about once a second, and ended task runs are written about once a second,
    so the two are put together by their times.
    """

    def __init__(self) -> None:
        #: When the scheduler last counted, in Unix seconds; None: never.
        self.counted: float | None = None
        self._on_workers: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        #: What ended after the last count.
        self._ended: list[EndedRuns] = []

    def take(self, ended: list[EndedRuns], counts: list[tuple[float, Any]]) -> None:
        """Take what was read at once.

        Parameters
        ----------
        ended
            Task runs.
        counts
            When the scheduler counted, in Unix seconds, and the number of tasks by function and
            state, a dict of dicts.
        """
        time, tasks = max(counts, key=lambda count: count[0], default=(0.0, None))
        if isinstance(tasks, dict) and time >= (self.counted or 0.0):
            self.counted = time
            self._on_workers.clear()
            self._waiting.clear()
            for function, states in tasks.items():
                if isinstance(states, dict):
                    self._on_workers[str(function)] += _number(states.get(_ON_WORKERS))
                    self._waiting[str(function)] += sum(_number(states.get(x)) for x in _WAITING)
        if self.counted is not None:
            late = (runs.after(self.counted) for runs in (*self._ended, *ended))
            self._ended = [runs for runs in late if len(runs.ends)]

    def now(self) -> dict[str, tuple[int, int]]:
        """Return how many tasks of each function are on workers, and how many wait."""
        ended: Counter[str] = Counter()
        for runs in self._ended:
            counts = np.bincount(runs.codes, minlength=len(runs.names)).tolist()
            ended.update(dict(zip(runs.names, counts, strict=True)))
        found = {}
        for function in self._on_workers.keys() | self._waiting.keys():
            there, waiting = self._on_workers[function], self._waiting[function]
            left = max(there + waiting - ended[function], 0)
            if left:
                found[function] = min(there, left), left - min(there, left)
        return found


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
