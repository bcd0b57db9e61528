"""`RunFigures`: analyses that the diagnosis rules use, each computed once and on demand."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.task_figures import TaskFigures
from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.client_time import (
    ClientTime,
    find_carried,
    find_first_task,
    meanwhile,
    seconds_of_carrying,
    single_calls,
)
from dasfprof.analysis.model.critical_path import PathSegments, SegmentKind, path_segments
from dasfprof.analysis.model.sizing import chunk_costs
from dasfprof.analysis.model.stragglers import (
    TIMES_OTHERS,
    Slowness,
    StragglerRuns,
    find_stragglers,
    measure_slowness,
)
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.run.run_end import RESTARTED, cancelled_runs
from dasfprof.analysis.simulation import gain
from dasfprof.analysis.simulation.replay import MOST_WAITING
from dasfprof.analysis.stack_samples.loop_blocks import imports_on_the_way
from dasfprof.analysis.stack_samples.places import all_stacks, import_of
from dasfprof.analysis.wording import Share
from dasfprof.database.columns import Array
from dasfprof.text import excerpt

#: Thresholds of large partitions: bytes as a multiple of the layer's median, and bytes.
_FAT = 3.0
_FAT_BYTES = 10_000
#: Thresholds of slow first runs: duration as a multiple of the median of later runs, minimum
#: fraction of workers whose first run is slow, and maximum fraction of later runs that take at
#: least a third of the duration of a slow first run.
_TIMES = 3.0
_WORKERS = 0.5
_LATER = 0.1


@dataclass(frozen=True)
class FirstUses:
    """First runs of functions that took far longer than later runs of the same function."""

    #: Rows of `Trace.tasks`.
    rows: Array
    #: Seconds of each run above the median of its function's later runs, and this median.
    excess: Array
    usual: Array


class UnusualRuns(TaskFigures):
    """The part of `RunFigures` about stragglers, slow workers and first uses."""

    @cached_property
    def slowness(self) -> Slowness:
        """Slowness of each function on each worker."""
        worker = self.workers.numbers(self.trace.tasks)
        # `working` does not contain CPU wait, which does not make a worker slow.
        measured = measure_slowness(self.functions.codes, worker, self.working)
        sizes = np.fmax(self.task_column("input_size"), self.task_column("size"))
        here = Groups(measured.of_run, len(measured.runs)).median(sizes)
        # A worker with larger partitions does not count as slow.
        larger = here >= TIMES_OTHERS * self.functions.median(sizes)[measured.function]
        return dataclasses.replace(measured, slow=measured.slow & ~larger)

    @cached_property
    def on_slow_worker(self) -> Array:
        """Mask of task runs whose function is slow on their worker."""
        return self.slowness.slow[self.slowness.of_run]

    @cached_property
    def stragglers(self) -> StragglerRuns:
        """Task runs that took far longer than others (see `TraceAnalyser.stragglers`)."""
        return find_stragglers(self.trace)

    @cached_property
    def partitions(self) -> tuple[Array, Array]:
        """Bytes of each straggler's partition, and their ratio to the median of the layer.

        The partition is the input or the result of the straggler, whichever has the higher ratio.
        """
        rows = self.stragglers.rows
        codes, largest, factors = self.layers.codes[rows], np.zeros(len(rows)), np.zeros(len(rows))
        for column in ("input_size", "size"):
            sizes = self.task_column(column)
            factor = np.nan_to_num(ratio(sizes[rows], self.layers.median(sizes)[codes]))
            largest = np.where(factor > factors, sizes[rows], largest)
            factors = np.maximum(factors, factor)
        return largest, factors

    @property
    def fat(self) -> Array:
        """Mask of stragglers whose partition is far larger than the median of the layer."""
        size, times = self.partitions
        return (times >= _FAT) & (size >= _FAT_BYTES)

    def idle_behind(self, rows: Array, excess: Array) -> float:
        """Return for how long threads were idle during the excess time of task runs.

        The result is in thread-seconds, divided by the number of threads. `excess` contains the
        excess seconds of each of `rows`.
        """
        stop = self.slots.times.stop[rows]
        # The excess seconds of a task run are assumed to be its last seconds.
        begins, ends = union(stop - excess, stop)
        return float(self.idle_between(begins, ends).sum())

    @cached_property
    def first_uses(self) -> FirstUses:
        """First runs of functions on workers, if they took far longer than later runs."""
        functions, count = self.functions, len(self.trace.tasks)
        start, worker = self.slots.times.executing[:count], self.trace.tasks["worker_id"].to_numpy()
        sizes = np.fmax(self.task_column("input_size"), self.task_column("size"))
        larger = sizes >= TIMES_OTHERS * functions.median(sizes)[functions.codes]
        # CPU wait is not counted. Task runs with larger partitions are not compared with others.
        seconds = np.where(larger, np.nan, self.slot_seconds - self.core_wait)
        cells, distinct = pd.factorize(worker.astype(np.int64) * functions.count + functions.codes)
        places = Groups(cells, len(distinct))
        # A task run is a first run if no other run of its function had finished on its worker when
        # it started. If several first runs start at once, all of them wait for the same import or
        # compilation.
        first = start < places.min(self.slots.end[:count])[cells]
        later = Groups(np.where(first, -1, functions.codes), functions.count)
        usual = later.median(np.where(first, np.nan, seconds))[functions.codes]
        long = seconds > _TIMES * usual
        slow_places = places.max((first & long).astype(float)) > 0
        of_place = np.zeros(len(distinct), dtype=np.int64)
        of_place[cells] = functions.codes
        share = Groups(of_place, functions.count).mean(slow_places.astype(float))
        slow = np.flatnonzero(first & long)
        typical = Groups(functions.codes[slow], functions.count).median(seconds[slow])
        late = later.mean((seconds * _TIMES > typical[functions.codes]).astype(float))
        slow_first = (share >= _WORKERS) & (late <= _LATER)
        rows = np.flatnonzero(first & long & slow_first[functions.codes])
        return FirstUses(rows, (seconds - usual)[rows], usual[rows])


#: Categories of thread time in which tasks are handled. Time in transit is not included.
HANDLING = (ThreadTime.SCHEDULER_LATENCY, ThreadTime.WORKER_LATENCY, ThreadTime.TASK_OVERHEAD)
#: Kinds of segments of the critical path in which tasks are handled or in transit.
_HANDLING_ON_PATH = (
    *(SegmentKind.SCHEDULER, SegmentKind.ON_ITS_WAY, SegmentKind.WORKER),
    SegmentKind.TASK_OVERHEAD,
)
#: Maximum number of tasks in a run that is replayed. A replay takes about 10 us per task.
_MOST_REPLAYED = 50_000
#: Minimum seconds of a gap between tasks in which the cluster waits for the client.
GAP = 0.01


class RunFigures(UnusualRuns):
    """The figures of a run that the diagnosis rules use."""

    @property
    def path_segments(self) -> PathSegments:
        """The segments of the critical path."""
        return path_segments(self.trace)

    @cached_property
    def chunk_costs(self) -> pd.DataFrame:
        """Costs of tasks, and the chunk size at which overhead would be 0.5 % of their time."""
        return chunk_costs(self.trace, 0.005)

    @cached_property
    def attempts(self) -> pd.DataFrame:
        """Every attempt at a task."""
        return find_attempts(self.trace)

    @cached_property
    def carrying(self) -> float:
        """Upper bound of the seconds per thread by which large values prolonged task handling."""
        handling = self.seconds_of(*HANDLING, ThreadTime.ON_ITS_WAY)
        return seconds_of_carrying(self.trace, handling, len(self.trace.tasks))

    @cached_property
    def carrying_on_path(self) -> float:
        """Upper bound of the seconds by which large values prolonged the critical path."""
        path = self.path_segments
        handled = np.isin(path.kind, _HANDLING_ON_PATH)
        # While a task on the path is handled, one thread waits for it. The other threads may have
        # no task at all, so the number of threads does not matter.
        idle = self.accounts.of_lives[:, [*HANDLING, ThreadTime.ON_ITS_WAY]].sum()
        seconds = float(min(path.length[handled].sum(), idle))
        return seconds_of_carrying(self.trace, seconds, len(np.unique(path.rows[handled])))

    @cached_property
    def imported_on_the_way(self) -> tuple[Array, dict[str, float]]:
        """Seconds of imports while each task was in transit, and the same seconds by library.

        Libraries with most seconds come first.
        """
        seconds, libraries = imports_on_the_way(self.trace)
        return seconds, dict(sorted(libraries.items(), key=lambda library: -library[1]))

    @property
    def share_of_imports(self) -> float:
        """Fraction of the time in transit of all tasks in which the worker imported modules."""
        way = float(self.slots.on_its_way.sum())
        return float(self.imported_on_the_way[0].sum()) / way if way > 0 else 0.0

    @cached_property
    def fetched_singly(self) -> tuple[int, float]:
        """Number of calls that fetch results one by one, and seconds that one call would save."""
        calls, trace = single_calls(self.trace), self.trace
        begins, ends = trace.since_begin(calls["time"]), trace.since_begin(calls["stop"])
        # Time with unfinished tasks does not count, because a single call would also wait for them.
        idle = np.fmax(ends - begins - self.alive_between(begins, ends), 0.0)
        lost = np.fmin(calls["in_vain"].to_numpy(dtype=float), idle)
        return int(calls["calls"].sum()), float(lost.sum())

    @cached_property
    def waits_for_graphs(self) -> tuple[Array, Array]:
        """Seconds of graph preparation in each gap without tasks, and what ended the gap.

        Gaps are the time before the first task, and long waits for the client on the critical path.
        The second array contains the task run that ended each gap, as a row of `TaskSlots`.
        """
        trace, path, first = self.trace, self.path_segments, find_first_task(self.trace)
        gaps = np.flatnonzero((path.kind == SegmentKind.CLIENT) & (path.length >= GAP))
        late = 0.0 if first is None else first.late
        begins = trace.begin + np.append(self.begin - late, path.begin[gaps])
        lengths = np.append(late, path.length[gaps])
        rows = np.append(path.rows[:1], path.rows[gaps])[-len(lengths) :]
        table, stacks = trace.client_samples, all_stacks(trace)
        imports = np.array([*(import_of(stack) is not None for stack in stacks), False])
        # Dask prepares a graph while the client builds, optimizes, pickles or sends the graph, or
        # waits for the scheduler. The program's own code, imports and hashing do not count.
        prepares = ~table["phase"].isin(("program", "hashing")).to_numpy()
        prepares &= ~imports[table["stack"].to_numpy(dtype=np.int64)]
        time = table["time"].to_numpy(dtype=float)
        gap = np.searchsorted(begins, time, "right") - 1
        inside = (gap >= 0) & (time <= (begins + lengths)[np.maximum(gap, 0)])
        counts = np.bincount(gap[inside], minlength=len(begins))
        prepared = np.bincount(gap[inside], prepares[inside], len(begins))
        # Gaps without samples are assumed to be like all gaps after the first one together.
        usual = prepared[1:].sum() / max(counts[1:].sum(), 1)
        shares = np.where(counts > 0, prepared / np.maximum(counts, 1), usual)
        # Samples do not show when results were received.
        received = meanwhile(trace, *union(begins, begins + lengths)).get(ClientTime.RECEIVING, 0.0)
        return shares * lengths * (1 - received / max(lengths.sum(), received, 1e-9)), rows

    @property
    def sent_large(self) -> bool | None:
        """Whether graphs embedded large values in many tasks, or None if not fully known."""
        sent, graphs = self.trace.graphs_sent, self.trace.graphs
        if not len(sent) or set(graphs["client"]) - set(sent["client"]):
            return None
        return bool(len(find_carried(self.trace)))

    @cached_property
    def restarted_keys(self) -> Array:
        """Keys of task runs that were cancelled because a client restarted the workers."""
        tables = [self.trace.task_runs, self.trace.scheduler_only]
        keys = [
            runs["key_id"].to_numpy()[cancelled_runs(self.trace, runs, RESTARTED)]
            for runs in tables
        ]
        return np.unique(np.concatenate(keys))

    def path_seconds(self, kind: SegmentKind) -> float:
        """Return the seconds that a kind of segment has on the critical path."""
        path = self.path_segments
        return float(path.length[path.kind == kind].sum())

    def saved(self, estimate: float, **change: Any) -> float:
        """Return the wall seconds that a change saves, according to a replay of the run.

        `estimate` is returned instead if the run cannot be replayed accurately or has too many
        tasks. For `change`, see `dasfprof.analysis.simulation.changes`.
        """
        if len(self.trace.tasks) > _MOST_REPLAYED:
            return estimate
        gained = gain(self.trace, **change)
        return max(gained, 0.0) if np.isfinite(gained) else estimate

    @property
    def waits_for_cores(self) -> Share | None:
        """CPU wait as a fraction of the time in task functions, or None if it is negligible."""
        lasted = float(self.lasted.sum())
        share = float(self.core_wait.sum()) / lasted if lasted > 0 else 0.0
        return None if share < MOST_WAITING else Share(share)

    def with_durations(self, rows: Array, seconds: Array | float) -> Array:
        """Return the durations of all task runs, with new seconds for the given rows."""
        # If a clock was set back, durations and their medians can be negative.
        durations = np.maximum(self.task_column("duration"), 0.0)
        others = durations.copy()
        others[rows] = np.clip(seconds, 0.0, durations[rows])
        # Task runs that seceded keep their durations, because these depend on what the tasks wait
        # for.
        return np.where(self.held < 1, durations, others)

    def path_seconds_of(self, shares: Array) -> float:
        """Return the sum of the compute seconds on the critical path, weighted by task run.

        `shares` contains the weight of each task run.
        """
        path = self.path_segments
        ran = (path.kind == SegmentKind.COMPUTE) & (path.rows < len(shares))
        return float((path.length[ran] * shares[path.rows[ran]]).sum())

    @property
    def worker_count(self) -> int:
        """Number of workers, each of which counts once even if it was restarted."""
        return len(np.unique(self.workers.of_lives[self.accounts.lives.ids]))

    def life_label(self, life: int) -> str:
        """Return the label of a worker instance."""
        return str(self.trace.workers["worker"].iloc[life])

    def called_by(self, function: str) -> str | None:
        """Return the program's functions of other names that a function's tasks call.

        None if the tasks call no function of the program.
        """
        known = self.trace.function_code
        columns = (known[name].tolist() for name in ("name", "missing", "function", "file", "line"))
        code = [
            (path.rpartition(".")[2], file, line)
            for prefix, missing, path, file, line in zip(*columns, strict=True)
            if prefix == function and missing != "of a library"
        ]
        calls = [
            f"{name} ({PurePath(file).name}:{line})"
            for name, file, line in code
            if name.lower() != function.lower()
        ]
        return excerpt(", ".join(dict.fromkeys(calls))) if code or known.empty else None

    def text_of_key(self, key_id: int) -> str:
        """Return a key as text, shortened if it is long."""
        return excerpt(str(self.trace.keys.texts(np.array([key_id]))[0]))
