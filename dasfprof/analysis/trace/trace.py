"""`Trace`: a recorded run as tables, and a cache of analysis results for each trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import update_wrapper
from threading import RLock
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.builder import TraceBuilder
from dasfprof.analysis.trace.gaps import Note, Surroundings
from dasfprof.analysis.trace.keys import KeyTable
from dasfprof.analysis.trace.lines import FusedLayers
from dasfprof.analysis.trace.progress import is_wanted
from dasfprof.analysis.trace.reader import TraceReader
from dasfprof.database import EventDatabase, EventProfiler, MultiEventDatabase, open_run
from dasfprof.database.columns import Array
from dasfprof.database.ends import End
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import count_of

Database = MultiEventDatabase | EventDatabase | EventProfiler
Source = Database | Iterable[Database | str | os.PathLike[str]] | str | os.PathLike[str]


Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
#: A `Trace`, or the `Run` of a trace.
Form = TypeVar("Form", bound="Trace")


class once_per_trace(Generic[Form, Arguments, Result]):  # noqa: N801  (a decorator)
    """Computes an analysis once for each trace and each set of arguments.

    This is the only cache of traces and runs. It decorates functions of a trace. In the body of a
    class of traces, a decorated function is an attribute. The results are stored in the trace, as
    long as it exists. All callers get the same object and must not change it. Calls from several
    threads are safe.
    """

    def __init__(self, analysis: Callable[Concatenate[Form, Arguments], Result]) -> None:
        update_wrapper(self, analysis)
        # Traces are pickled with their results, so analyses are identified by name.
        self._analysis, self._name = analysis, f"{analysis.__module__}.{analysis.__qualname__}"
        # These locks cannot cause a deadlock, because analyses do not depend on each other in
        # cycles.
        self._lock = RLock()

    def __call__(self, trace: Form, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Return the result for a trace."""
        results, key = self._results(trace), (self._name, *args, *kwargs.items())
        if key not in results:
            with self._lock:
                if key not in results:
                    results[key] = self._analysis(trace, *args, **kwargs)
        return cast("Result", results[key])

    def __get__(self, trace: Any, owner: Any = None) -> Result:
        compute: Any = self
        return cast("Result", self if trace is None else compute(trace))

    def set_result(self, trace: Form, result: Result) -> None:
        """Store the result for a trace, such as a time window that cannot provide it."""
        self._results(trace)[self._name,] = result

    def _results(self, trace: Form) -> dict[tuple[Any, ...], Any]:
        return vars(trace).setdefault("_results", {})


def _of_events(name: str, *, time: str = "time", by_time: bool = False) -> dict[str, Any]:
    """Return the metadata of a `Trace` field that is a table with one row per event of this name.

    `time` is the column that contains the time of the event. The rows are sorted by time if
    `by_time`, and otherwise in the order of the files.
    """
    return {"event": name, "time": time, "by_time": by_time}


@dataclass(frozen=True)
class Trace:
    """A recorded run as columnar tables, in seconds, bytes, fractions and Unix time.

    Columns of repeated texts are Categorical. ``shape`` and ``annotations`` contain objects.
    ``worker_id`` is a row of `workers`, and ``key_id`` is a row of `keys`. A missing time or number
    is NaN.
    """

    #: One row per task run that a worker recorded, in the order of the files: ``key_id, run_id,
    #: worker_id, host, worker, function, state, start, duration, size, input_size, cpu, run_queue,
    #: deserialize, disk_read, disk_read_size, collecting, storage, received, ready, executing,
    #: seceded, done, type, dtype, shape, thread, exception``. ``cpu`` and ``run_queue`` include
    #: other threads that worked for the task run (see `storage`). Columns of the scheduler, if it
    #: recorded the task run: ``scheduler_state, scheduler_waiting, queued, stolen, sent, known,
    #: wanted, priority_user, priority_generation, priority_order, annotations``, and rows of
    #: `stimuli`: ``cause`` (of the assignment), ``end_cause`` and ``graph`` (that made it runnable,
    #: as in `graphs`). ``step`` is the pipeline step, or NA if unknown; ``client`` has the names of
    #: the clients that requested it, or NA if unknown; ``line`` is the source line that built it,
    #: or NA (``no_line`` then contains the reason). ``source`` is ``worker``. If no worker has a
    #: file, it is ``scheduler`` in all rows.
    tasks: pd.DataFrame
    #: Times in which threads were, or may have been, occupied by task runs of clients that the
    #: other tables exclude: ``worker_id, begin, end, by_worker``. If ``by_worker``, the times are
    #: by the worker's clock, and otherwise by the scheduler's clock.
    others: pd.DataFrame
    #: Task runs that the scheduler recorded and that are in no worker's file. ``lost`` means that
    #: the task run certainly happened, because it ended in the state memory or erred.
    scheduler_only: pd.DataFrame
    #: One row per message with dependencies: ``worker_id, start, duration, source, size, state,
    #: network, deserialize, keys`` (their number).
    transfers: pd.DataFrame = field(metadata=_of_events("Transfer", time="start"))
    #: One row per message of a P2P shuffle between workers. Messages contain rows or blocks, which
    #: are not results: ``worker_id`` (of the sender), ``start, duration, target, size, state``.
    shuffle_messages: pd.DataFrame = field(metadata=_of_events("Shuffle Message", time="start"))
    #: One row per call of an actor's method: ``worker_id`` (of the actor), ``start, duration``
    #: (from its arrival to its answer), ``key_id`` (of the actor), ``method, state``.
    actor_calls: pd.DataFrame = field(metadata=_of_events("Actor Call", time="start"))
    #: One row per function that a client ran on a worker outside of tasks: ``worker_id, start,
    #: duration`` (from the request to the answer), ``function, cpu, state``.
    worker_functions: pd.DataFrame = field(metadata=_of_events("Worker Function", time="start"))
    #: One row for each time that a task released a distributed lock or semaphore: ``time``,
    #: ``worker_id, kind, name, limit``, ``since`` (start of holding it), ``waited``.
    locks_held: pd.DataFrame = field(metadata=_of_events("Lock Held"))
    #: One row per sample of a process, with all args of its event. If ``host_read`` is 1, this
    #: worker sampled the values of the host. Otherwise, they are copied from the last sample of the
    #: host.
    samples: pd.DataFrame = field(metadata=_of_events("Resource Usage"))
    #: One row per sample of a worker's results: ``worker_id, time, tasks, size, ...``.
    managed_memory: pd.DataFrame = field(metadata=_of_events("Managed Memory"))
    #: One row per worker instance: ``host, worker, kind, name, address, nthreads, closed`` (False
    #: if one of its files ends early) and the fields of `Worker`. The sizes in `MEMORY_SIZES` are
    #: in bytes. They are NaN if unknown, or if the worker has no such limit.
    workers: pd.DataFrame
    #: The graphs that arrived at the scheduler: ``time, client, tasks, wanted, stimulus, step``
    #: (names of steps, outermost first).
    graphs: pd.DataFrame = field(metadata=_of_events("Graph"))
    steals: pd.DataFrame = field(metadata=_of_events("Steal"))
    #: The graphs that the recorded client's process sent: ``time`` (after sending), ``client, host,
    #: since, start, optimising, size``. See ``GRAPH_SENT``.
    graphs_sent: pd.DataFrame = field(metadata=_of_events("Graph Sent"))
    #: The program's calls of Dask: ``time`` (start of the first call), ``call, file, line, code,
    #: calls, stop, seconds, ...``. See ``CLIENT_CALLS``.
    client_calls: pd.DataFrame = field(metadata=_of_events("Client Calls"))
    #: Values of at least 10 kB in graphs that the recorded client's process sent: ``time, kind,
    #: name, size, seconds, tasks, why, held, file, line, code``. See ``SENT_VALUE``.
    sent_values: pd.DataFrame = field(metadata=_of_events("Sent Value"))
    #: Functions that the recorded client's process pickled by value: ``time, function, file, line,
    #: last, source, missing``. See ``FUNCTION_SENT``. Other tables already contain the file names
    #: of these functions.
    functions_sent: pd.DataFrame = field(metadata=_of_events("Function Sent"))
    #: Results that the scheduler released: ``time``, ``run_id`` (of the task run). The table is
    #: empty if the trace is a window of a run that is larger than memory.
    releases: pd.DataFrame = field(metadata=_of_events("Result Released"))
    #: Copies of results that workers were asked to drop: ``time``, ``key_id``, ``worker_id``.
    copies_dropped: pd.DataFrame = field(metadata=_of_events("Copy Dropped"))
    #: Tasks that had not been assigned when recording ended, one row per function and state:
    #: ``time`` (of the first task), ``name, state, tasks`` (their number), ``key, restrictions``
    #: (of the first task).
    unsent: pd.DataFrame = field(metadata=_of_events("Unsent Tasks"))
    #: Restarts, retirements and pauses of workers, cancelled tasks, and target sizes of adaptive
    #: scaling: ``time, action, who, workers, number``. See ``CLUSTER_CHANGE``.
    cluster_changes: pd.DataFrame = field(metadata=_of_events("Cluster Change"))
    #: Changes of Dask's estimate of each worker's clock.
    clocks: pd.DataFrame = field(metadata=_of_events("Clock"))
    #: One row per sample of a host's disk.
    disk_usage: pd.DataFrame = field(metadata=_of_events("Disk Usage"))
    #: One row per sample of a process that used much of a busy host: ``worker_id`` (of the worker
    #: that sampled), ``time, pid, name, owner, cpu, memory, interval, ancestors``, and ``ours``
    #: (whether it belongs to the run). See ``HOST_PROCESS``.
    host_processes: pd.DataFrame = field(metadata=_of_events("Host Process"))
    #: One row for each change in the recorded facts about a worker's GPU. ``availability`` explains
    #: why there may be no samples.
    gpu_devices: pd.DataFrame = field(metadata=_of_events("GPU Devices"))
    #: One row per sample of a GPU. ``worker_id`` is the worker that sampled. See `GpuSamples`.
    gpu_usage: pd.DataFrame = field(metadata=_of_events("GPU Usage"))
    #: One row per sample of a dask-cuda worker: sizes of its results on the GPU, in memory and on
    #: disk, and amounts that it moved between these since recording started. See `DEVICE_MEMORY`.
    device_memory: pd.DataFrame = field(metadata=_of_events("Device Memory"))
    #: One row for each time that a pipeline step was entered, by time: ``step`` (its path,
    #: ``outer/inner``), ``name``, ``parent`` (a row, or -1), ``start``, ``duration`` (NaN if the
    #: end of the step is unknown).
    steps: pd.DataFrame
    #: The source lines that built task graphs, followed by groups of lines whose layers Dask fused:
    #: ``line`` (``name:number``, as in `tasks`; for a group, all its lines),
    #: ``file, number, code, text, missing`` (why there is no text), ``cell, library, library_line,
    #: library_code`` (for a group, those of its last line), ``fused`` (for a group, a tuple of its
    #: other lines).
    lines: pd.DataFrame
    #: The layers that Dask fused into the tasks of several other layers.
    fused_layers: FusedLayers
    #: One row per event of user code: ``name``, ``kind`` (``span``, ``instant``, or ``begin`` and
    #: ``end`` if the other is missing), ``time``, ``duration`` (NaN if unknown), ``process``,
    #: ``thread`` (texts of the event's fields), ``args``.
    events: pd.DataFrame
    #: The functions that tasks call: ``time, worker_id, name`` (of the tasks), ``function, file,
    #: line, source, missing``. See ``FUNCTION_CODE``.
    function_code: pd.DataFrame = field(metadata=_of_events("Function Code"))
    #: Log records of task runs: ``time, key_id, run_id, worker_id, logger, level, message,
    #: exception, line, error`` (1 for the first error of its task run).
    logs: pd.DataFrame = field(metadata=_of_events("Log Record"))
    #: The tracebacks of failed task runs: ``time, key_id, run_id, worker_id, text``.
    tracebacks: pd.DataFrame = field(metadata=_of_events("Traceback"))
    #: The arguments of task runs: ``time, key_id, run_id, worker_id, arguments``. See
    #: ``TASK_ARGUMENTS``.
    arguments: pd.DataFrame = field(metadata=_of_events("Task Arguments"))
    #: Reads and writes of task runs: ``time, key_id, run_id, worker_id, protocol, reads, read_size,
    #: reading, ...``. See ``STORAGE``.
    storage: pd.DataFrame = field(metadata=_of_events("Storage"))
    #: Results that took a worker long to serialize: ``time, key_id, run_id, worker_id, target,
    #: size, seconds``. See ``RESULT_SERIALISED``.
    serialised: pd.DataFrame = field(metadata=_of_events("Result Serialised"))
    #: Call profiles, one row per worker and function: ``worker_id, time, path`` (of the file, or
    #: None), ``name`` (the function), ``profiler, runs, left_out, refused``. See ``CALL_PROFILE``.
    call_profiles: pd.DataFrame = field(metadata=_of_events("Call Profile"))
    #: For each task run that took more than a second and whose end was not recorded, its last
    #: record: ``time``, ``key_id, run_id, worker_id`` and the columns of ``TASK_UNDER_WAY``.
    #: ``stack`` is a row of `stacks` (-1 if unknown), and ``waits_keys`` is a tuple of key ids.
    under_way: pd.DataFrame
    #: All records of this form, sorted by time, including those of task runs that ended later.
    under_way_history: pd.DataFrame = field(metadata=_of_events("Task Under Way", by_time=True))
    #: Snapshots of the scheduler's unfinished work. See ``SCHEDULER_STATE``.
    scheduler_states: pd.DataFrame = field(metadata=_of_events("Scheduler State", by_time=True))
    #: Snapshots of the main threads of clients. See ``CLIENT_UNDER_WAY``.
    clients_under_way: pd.DataFrame = field(metadata=_of_events("Client Under Way", by_time=True))
    #: Stack samples of threads that ran tasks, of blocked event loops, and of the client's main
    #: thread: ``time``, ``stack`` (a row of `stacks`), ``interval`` (seconds that it represents),
    #: ``activity, cpu, run_queue``. See ``TASK_SAMPLE``.
    task_samples: pd.DataFrame = field(metadata=_of_events("Task Sample", by_time=True))
    loop_samples: pd.DataFrame = field(metadata=_of_events("Loop Sample", by_time=True))
    client_samples: pd.DataFrame = field(metadata=_of_events("Client Sample", by_time=True))
    #: The distinct stacks that other tables refer to: ``frames``, a tuple of ``(function, file,
    #: line)``, outermost first.
    stacks: pd.DataFrame
    #: The distinct keys.
    keys: KeyTable
    #: Distinct stimulus ids. Events with the same stimulus id have the same cause.
    stimuli: KeyTable
    #: Time of the earliest and of the latest event, or NaN if the trace is empty.
    begin: float
    end: float
    #: Data notes about what is missing or damaged. The text of a note is for people, and its kind
    #: is for rules.
    notes: tuple[Note, ...]
    #: Number of dependencies of each task run (-1 if unknown), and the key ids of all dependencies.
    task_dependencies: tuple[Array, Array]
    #: Number of keys of each transfer, and the key ids of all transfers.
    transfer_keys: tuple[Array, Array]
    #: Name of the run in the files. None if the files contain no name or several names.
    run: str | None
    #: Environment of the recording: versions, settings, cores, the client's program.
    surroundings: Surroundings
    #: Whether slow serializing was recorded on all workers. If so, an empty `serialised` means that
    #: no result took long to serialize.
    knows_serialising: bool
    #: Whether releases of results were recorded.
    knows_releases: bool
    #: Whether and how recording ended.
    recording: End

    @classmethod
    def from_database(
        cls: type[Form], source: Source, *, client: str | None = None, progress: bool | None = None
    ) -> Form:
        """Read a trace.

        Parameters
        ----------
        source
            A `MultiEventDatabase`, `EventDatabase` or `EventProfiler`; a list of such objects or of
            paths; or anything that `dasfprof.open_run` accepts: a file, a directory, a glob, a
            run's name.
        client, progress
            See `TraceAnalyser`.

        Raises
        ------
        InvalidArgumentError
            If the source has another type, or the trace has no such client.
        SourceNotFoundError, NotATraceError
            If there is no such trace.
        """
        return cls.from_reader(
            TraceReader(databases_of(source), progress=is_wanted(progress)), client
        )

    @classmethod
    def from_reader(cls: type[Form], reader: TraceReader, client: str | None = None) -> Form:
        """Return the trace that a reader has read, limited to `client` if it is given."""
        events = {each.name: each.metadata for each in fields(Trace) if each.metadata}
        return cls(**TraceBuilder(reader, client).make(events))

    @property
    @once_per_trace
    def dependencies(self) -> tuple[Array, Array]:
        """The task graph in compressed form: the dependencies of each key.

        Returns
        -------
        offsets, ids
            The dependencies of key ``i`` are the key ids ``ids[offsets[i]:offsets[i + 1]]``. They
            are those of the key's last task run.
        """
        lengths, ids = self.task_dependencies
        lengths = np.maximum(lengths, 0)
        last_row = np.full(len(self.keys), -1, dtype=np.int64)
        known = np.flatnonzero(self.task_dependencies[0] >= 0)
        last_row[self.tasks["key_id"].to_numpy()[known]] = known
        rows = last_row[last_row >= 0]
        counts = np.zeros(len(self.keys), dtype=np.int64)
        counts[last_row >= 0] = lengths[rows]
        offsets = np.r_[0, np.cumsum(counts)]
        begins = np.r_[0, np.cumsum(lengths)][rows]
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return offsets, ids[np.repeat(begins, lengths[rows]) + within]

    def __repr__(self) -> str:
        tasks = self.tasks
        counts = [
            count_of(len(tasks), "task run") + " on",
            count_of(tasks["worker_id"].nunique(), "worker") + " of",
            count_of(tasks["host"].nunique(), "host") + " in",
        ]
        seconds = 0.0 if np.isnan(self.begin) else self.end - self.begin
        notes = f", {count_of(len(self.notes), 'note')}" if self.notes else ""
        return f"Trace of {' '.join(counts)} {seconds:.3f} s{notes}"


def databases_of(source: Any) -> list[EventDatabase]:
    """Return the databases of a source (see `Trace.from_database`)."""
    if isinstance(source, str | os.PathLike):
        source = open_run(source)
    if isinstance(source, MultiEventDatabase):
        return source.databases
    if isinstance(source, EventDatabase | EventProfiler):
        source = [source]
    if not isinstance(source, list | tuple) or not all(
        isinstance(item, EventDatabase | EventProfiler | str | os.PathLike) for item in source
    ):
        raise InvalidArgumentError(
            f"cannot analyse {source!r} of type {type(source).__name__}: pass a "
            "MultiEventDatabase, an EventProfiler, a list of those, or what dasfprof.open_run "
            "accepts: a file, a directory, a glob or a run's name."
        )
    return MultiEventDatabase(source).databases
