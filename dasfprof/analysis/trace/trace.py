"""`Trace`: a recorded run as tables, and a cache of analyses for each trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.builder import TraceBuilder
from dasfprof.analysis.trace.gaps import Note, Surroundings
from dasfprof.analysis.trace.keys import KeyTable
from dasfprof.analysis.trace.lines import FusedLayers
from dasfprof.analysis.trace.progress import is_wanted
from dasfprof.analysis.trace.reader import TraceReader
from dasfprof.analysis.trace.tasks import SCHEDULER_TIMES, WORKER_TIMES
from dasfprof.database import EventDatabase, EventProfiler, MultiEventDatabase, open_run
from dasfprof.database.columns import Array
from dasfprof.database.ends import RecordingEnd
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import count_of

Database = MultiEventDatabase | EventDatabase | EventProfiler
Source = Database | Iterable[Database | str | os.PathLike[str]] | str | os.PathLike[str]


@dataclass(frozen=True)
class Trace:
    """A recorded run as columnar tables, in seconds, bytes, fractions and Unix time.

    Repeated text is Categorical. ``shape`` and ``annotations`` are objects. ``worker_id`` is a row
    of `workers`, and ``key_id`` is a row of `keys`. A missing time or number is NaN.
    """

    #: A row a task run that a worker recorded (``cpu`` and ``run_queue`` with those of
    #: other threads that worked for it, by `storage`), in the order of the files: ``key_id,
    #: run_id, worker_id, host, worker, function, state, start, duration, size, input_size, cpu,
    #: run_queue, deserialize, disk_read, disk_read_size, executor, collecting, storage, received,
    #: ready, executing, seceded, done, type, dtype, shape, thread, exception``, and where the
    #: scheduler knows the run ``scheduler_state, scheduler_waiting, queued, stolen, sent, known,
    #: wanted, priority_user, priority_generation, priority_order, annotations``, and rows of
    #: `stimuli`: ``cause`` (of being sent), ``end_cause`` and ``graph`` (the one that made it
    #: runnable: its row of `graphs` has the same). ``step`` is that of the pipeline, NA where none
    #: is known; ``client`` the names of those who wanted it, NA where they are unknown; ``line``
    #: that of the program which built it, and where that is NA ``no_line`` says why. ``source`` is
    #: ``worker``; or ``scheduler``, for all rows, where no worker's file is there.
    tasks: pd.DataFrame
    #: When the tasks of clients that the other tables leave out held threads, or may have:
    #: ``worker_id, begin, end``, by the clock of the worker or, not ``by_worker``, the scheduler's.
    others: pd.DataFrame
    #: Task runs that the scheduler saw and no worker's file holds; ``lost`` if they ended in
    #: memory or erred, so that they ran for certain.
    scheduler_only: pd.DataFrame
    #: A row a message that brought dependencies: ``worker_id, start, duration, source, size,
    #: state, network, deserialize, keys`` (their number).
    transfers: pd.DataFrame
    #: A row a message of a P2P shuffle from one worker to another, in which rows and blocks move
    #: that are no results: ``worker_id`` (of the sender), ``start, duration, target, size, state``.
    shuffle_messages: pd.DataFrame
    #: A row a call of an actor's method: ``worker_id`` (that has the actor), ``start, duration``
    #: (from its arrival to its answer), ``key_id`` (of the actor), ``method, state``.
    actor_calls: pd.DataFrame
    #: A row a function that a client ran on a worker outside of tasks: ``worker_id, start,
    #: duration`` (from its request to its answer), ``function, cpu, state``.
    worker_functions: pd.DataFrame
    #: Dask's locks and semaphores that tasks gave back, a row each time: ``time`` (of that),
    #: ``worker_id, kind, name, limit, since`` (it was held), ``waited``.
    locks_held: pd.DataFrame
    #: A row a sample of a process, with all the args of its event. What was read of its host is
    #: that worker's own where ``host_read`` is 1, else what the host's reader had read last.
    samples: pd.DataFrame
    #: A row a sample of what a worker holds: ``worker_id, time, tasks, size, ...``.
    managed_memory: pd.DataFrame
    #: A row a life of a worker process: ``host, worker, kind, name, address, nthreads,
    #: memory_limit, memory_target, memory_spill, memory_pause, memory_terminate`` (bytes, NaN:
    #: none or unknown, see `MEMORY_SIZES`), ``memory_sizes`` (those that its files report, a dict,
    #: 0: none), ``memory_group, group_limit`` (the control group that limits its process,
    #: and those bytes; None and NaN: none, or unknown), ``cpu_group, cpu_quota`` (likewise, of
    #: CPU, in cores), ``descriptor_limit`` (open files), ``thread_limits`` (variables such as
    #: OMP_NUM_THREADS that its process has, a dict; None: not recorded), ``job`` (the
    #: variables that name its job, such as SLURM_JOB_ID, a dict; None: none), ``resources`` (that
    #: tasks may ask it for, a dict of amounts; None: not recorded), ``started`` (its process did),
    #: ``first_seen, last_seen, boot_id, pid, closed, joined, left,
    #: left_reason, exit_code`` (of its process; negative: the signal; NaN: unknown),
    #: ``exit_reason``, ``silent`` (seconds without a heartbeat, if the scheduler gave it up for
    #: that), ``last_error, last_error_time`` (that Dask logged in its process). ``closed`` is False
    #: where a file of it ends early.
    workers: pd.DataFrame
    #: The graphs that arrived at the scheduler (``time, client, tasks, wanted, stimulus, step``:
    #: names of steps, the outermost first), and the steals.
    graphs: pd.DataFrame
    steals: pd.DataFrame
    #: The graphs that the recorded client's process sent, in the order of its file: ``time`` (it
    #: had done so), ``client, host, since, start, optimising, size``, see ``GRAPH_SENT``.
    graphs_sent: pd.DataFrame
    #: What the client's program called of Dask, in the order of its file: ``time`` (of the first
    #: call's begin), ``call, file, line, code, calls, stop, seconds, ...``, see ``CLIENT_CALLS``.
    client_calls: pd.DataFrame
    #: The values of 10 kB or more in graphs that it sent: ``time, kind, name, size, seconds, tasks,
    #: why, held, file, line, code``, see the schema's ``SENT_VALUE``.
    sent_values: pd.DataFrame
    #: The functions that it pickled by value: ``time, function, file, line, last, source,
    #: missing``, see the schema's ``FUNCTION_SENT``. Other tables have their files.
    functions_sent: pd.DataFrame
    #: Results that the scheduler let go: ``time``, ``run_id`` (of the task run). None in windows of
    #: runs beyond memory.
    releases: pd.DataFrame
    #: Copies of results that workers were asked to drop: ``time``, ``key_id``, ``worker_id``.
    copies_dropped: pd.DataFrame
    #: Tasks that no worker had been sent when recording ended, a row a function and state: ``time``
    #: (of the first), ``name, state, tasks`` (their number), ``key, restrictions`` (of the first).
    unsent: pd.DataFrame
    #: Restarts, retirements and pauses of workers, cancelled tasks, wishes of adaptive: ``time,
    #: action, who, workers, number``, see the schema's ``CLUSTER_CHANGE``.
    cluster_changes: pd.DataFrame
    #: Changes of Dask's estimate of each worker's clock.
    clocks: pd.DataFrame
    #: A row a reading of a disk of a host.
    disk_usage: pd.DataFrame
    #: Processes that used much of a busy host, a row each look at one: ``worker_id`` (who looked),
    #: ``time, pid, name, owner, cpu, memory, interval, ancestors``, see the schema's
    #: ``HOST_PROCESS``; ``ours``: whether it is the run's own, or another program's.
    host_processes: pd.DataFrame
    #: What is known of each worker's own GPU, a row each time that changes; ``availability`` says
    #: why there may be no readings.
    gpu_devices: pd.DataFrame
    #: A row a reading of a GPU. ``worker_id`` is who read it: see `GpuSamples`.
    gpu_usage: pd.DataFrame
    #: A row a sample of a worker of dask-cuda: what it holds on its GPU, in memory and on disk, and
    #: what it moved between them since recording began, see the schema's `DEVICE_MEMORY`.
    device_memory: pd.DataFrame
    #: The steps of the pipeline, a row each time that one was entered, in the order of time:
    #: ``step`` (its path, ``outer/inner``), ``name``, ``parent`` (a row; -1: none), ``start``,
    #: ``duration`` (NaN: nothing tells when it was left).
    steps: pd.DataFrame
    #: The lines of the program that built something, and after them the groups of lines whose
    #: layers Dask fused into one: ``line`` (``name:number``, what tasks have; of a group all of
    #: them), ``file, number, code, text, missing`` (why no text), ``cell, library, library_line,
    #: library_code`` (of a group the last line's), ``fused`` (the lines before it, a tuple).
    lines: pd.DataFrame
    #: The layers that were fused into the tasks of several others.
    fused_layers: FusedLayers
    #: A row an event of user code: ``name``, ``kind`` (``span``, ``instant``; ``begin`` or ``end``
    #: where the other is missing), ``time``, ``duration`` (NaN: unknown), ``process``, ``thread``
    #: (texts of the event's fields), ``args``.
    events: pd.DataFrame
    #: The functions that tasks call: ``time, worker_id, name`` (of the tasks), ``function, file,
    #: line, source, missing``, see the schema's ``FUNCTION_CODE``.
    function_code: pd.DataFrame
    #: What task runs logged: ``time, key_id, run_id, worker_id, logger, level, message, exception,
    #: line, error`` (1: the first error of its task run).
    logs: pd.DataFrame
    #: The tracebacks of failed task runs: ``time, key_id, run_id, worker_id, text``.
    tracebacks: pd.DataFrame
    #: What task runs were called with: ``time, key_id, run_id, worker_id, arguments``, see the
    #: schema's ``TASK_ARGUMENTS``.
    arguments: pd.DataFrame
    #: What task runs read from storage and wrote to it: ``time, key_id, run_id, worker_id,
    #: protocol, reads, read_size, reading, ...``, see the schema's ``STORAGE``.
    storage: pd.DataFrame
    #: Tasks that took a worker long to unpickle, and results that took long to serialise: ``time,
    #: key_id, run_id, worker_id, size, seconds`` and ``cpu`` or ``target``, see the schema's
    #: ``TASK_UNPICKLED`` and ``RESULT_SERIALISED``.
    unpickled: pd.DataFrame
    serialised: pd.DataFrame
    #: Profiles of calls, a row a worker and function: ``worker_id, time, path`` (of the file; None:
    #: there is none), ``name`` (the function), ``profiler, runs, left_out, refused``, see the
    #: schema's ``CALL_PROFILE``.
    call_profiles: pd.DataFrame
    #: The last that was recorded of each task run over a second whose end nobody recorded:
    #: ``time``, ``key_id, run_id, worker_id``, the columns of the schema's ``TASK_UNDER_WAY``.
    #: ``stack`` is a row of `stacks` (-1: unknown), ``waits_keys`` a tuple of key ids.
    under_way: pd.DataFrame
    #: All that was recorded so, also of task runs that ended later; in the order of ``time``.
    under_way_history: pd.DataFrame
    #: When event loops did not turn: ``time, worker_id, since, thread_state, stack``.
    loops_blocked: pd.DataFrame
    #: What the scheduler had under way from time to time, see the schema's ``SCHEDULER_STATE``.
    scheduler_states: pd.DataFrame
    #: What clients' main threads did, see the schema's ``CLIENT_UNDER_WAY``.
    clients_under_way: pd.DataFrame
    #: Samples of the stacks of threads that ran tasks, of event loops that did not turn, and of
    #: the client's main thread: ``time``, ``stack`` (a row of `stacks`), ``interval`` (the seconds
    #: that it stands for), ``activity, cpu, run_queue``, see the schema's ``TASK_SAMPLE``.
    task_samples: pd.DataFrame
    loop_samples: pd.DataFrame
    client_samples: pd.DataFrame
    #: The distinct stacks that other tables refer to: ``frames``, a tuple of ``(function, file,
    #: line)``, the outermost first.
    stacks: pd.DataFrame
    #: The distinct keys.
    keys: KeyTable
    #: Distinct stimulus ids. Events with the same one have the same cause.
    stimuli: KeyTable
    #: Earliest and latest event, or NaN in an empty trace.
    begin: float
    end: float
    #: Data notes about what is missing or damaged. The text of each is for people, and its kind is
    #: for rules.
    notes: tuple[Note, ...]
    #: For each task run: number of its dependencies (-1: unknown), and their key ids.
    task_dependencies: tuple[Array, Array]
    #: For each transfer: number of its keys, and their key ids.
    transfer_keys: tuple[Array, Array]
    #: Name of the run in the files, or None if they contain none or several.
    run: str | None
    #: Environment of the recording: versions, settings, cores, the client's program.
    surroundings: Surroundings
    #: Whether calls of actors were recorded on all workers. If so, no rows in `actor_calls` means
    #: no calls.
    knows_actor_calls: bool
    #: Whether `unpickled` and `serialised` cover all workers. If so, no rows mean that nothing took
    #: long.
    knows_serialising: bool
    #: Whether releases of results were recorded.
    knows_releases: bool
    #: How recording ended, or that it continues.
    recording: RecordingEnd

    @classmethod
    def from_database(
        cls, source: Source, *, client: str | None = None, progress: bool | None = None
    ) -> Trace:
        """Read a trace.

        Parameters
        ----------
        source
            A `MultiEventDatabase`, `EventDatabase` or `EventProfiler`; a list of those or of
            paths; or what `dasfprof.open_run` takes: a file, a directory, a glob, a run's name.
        client, progress
            See `TraceAnalyser`.

        Raises
        ------
        InvalidArgumentError
            If the source is of another type, or it has no such client.
        SourceNotFoundError, NotATraceError
            If there is no such trace.
        """
        reader = TraceReader(databases_of(source), progress=is_wanted(progress))
        return cls(**TraceBuilder(reader, client).make())

    @cached_property
    def dependencies(self) -> tuple[Array, Array]:
        """The task graph as compressed rows over key ids.

        Returns
        -------
        offsets, ids
            The dependencies of key ``i`` are ``ids[offsets[i]:offsets[i + 1]]``, as its last
            run had them.
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

    @cached_property
    def transitions(self) -> pd.DataFrame:
        """Changes of state, one row each:

        ``key_id, run_id, worker_id, observer, state, time``. ``observer`` is ``worker`` or
        ``scheduler``. The end of a run has its final state.
        """
        tasks, parts = self.tasks, []
        for observer, times, end, state in (
            ("worker", WORKER_TIMES, "done", "state"),
            ("scheduler", SCHEDULER_TIMES, "known", "scheduler_state"),
        ):
            for table in (tasks, self.scheduler_only):
                if end not in table:
                    continue
                for column, entered in {**times, end: None}.items():
                    known = table[table[column].notna()]
                    entries = known[["key_id", "run_id", "worker_id"]].assign(
                        observer=observer,
                        state=known[state].astype(object) if entered is None else entered,
                        time=known[column],
                    )
                    parts.append(entries)
        return pd.concat(parts, ignore_index=True).astype(
            {"observer": "category", "state": "category"}
        )

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
    """Return the databases of a source. See `Trace.from_database`."""
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


# --- `once_per_trace`: analyses that others use are computed once for each trace ------------------

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
#: A `Trace`, or the `Run` of one.
Form = TypeVar("Form", bound=Trace)

#: Placeholder for the trace itself as a result, which remains valid after pickling.
_ITSELF = ...


def once_per_trace(
    analysis: Callable[Concatenate[Form, Arguments], Result],
) -> Callable[Concatenate[Form, Arguments], Result]:
    """Cache the results of an analysis, for each choice of arguments, as long as the trace exists.

    All callers get the same object, which must not be changed. Calls from several threads are safe.
    """
    # These locks cannot deadlock, because dependencies between analyses have no cycles.
    lock = RLock()

    @wraps(analysis)
    def cached(trace: Form, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        results, name = _results(trace), (_name(analysis), *args, *kwargs.items())
        if name not in results:
            with lock:
                if name not in results:
                    results[name] = _stored(trace, analysis(trace, *args, **kwargs))
        result = results[name]
        return cast("Result", trace if result is _ITSELF else result)

    return cached


def set_result(trace: Form, analysis: Callable[[Form], Result], result: Result) -> None:
    """Set the result of an analysis without arguments, for a trace that is a window of a run."""
    _results(trace)[(_name(analysis),)] = _stored(trace, result)


def _stored(trace: Trace, result: Any) -> Any:
    # A trace that contained itself would stay in memory until the garbage collector runs.
    return _ITSELF if result is trace else result


def _name(analysis: Callable[..., Any]) -> str:
    # Traces are pickled with cached results, so names identify the analyses.
    return f"{analysis.__module__}.{analysis.__qualname__}"


def _results(trace: Trace) -> dict[tuple[Any, ...], Any]:
    return vars(trace).setdefault("_results", {})
