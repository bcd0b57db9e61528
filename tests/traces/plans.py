"""Complete runs, written as the plugins write them, from a plan of which task ran where and when.

All times of a plan are seconds from `T`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dasfprof import TraceAnalyser
from dasfprof.schema.events import Schema
from dasfprof.schema.profiles import CLIENT_SAMPLE, TASK_SAMPLE
from dasfprof.schema.resources import (
    DISK_USAGE,
    GPU_DEVICES,
    GPU_USAGE,
    HOST_PROCESS,
    MANAGED_MEMORY,
    RESOURCE_USAGE,
)
from dasfprof.schema.steps import CLIENT_CALLS, GRAPH_SENT, SENT_VALUE
from dasfprof.schema.tasks import (
    ACTOR_CALL,
    CLUSTER_CHANGE,
    COMPUTE,
    FUNCTION_CODE,
    GRAPH,
    RESULT_RELEASED,
    RESULT_SERIALISED,
    STORAGE,
    TASK_ARGUMENTS,
    TASK_RUN,
    TRANSFER,
    WORKER_ADDED,
    WORKER_REMOVED,
)
from dasfprof.schema.under_way import CLIENT_UNDER_WAY, LOCK_HELD, SCHEDULER_STATE, STACK
from traces.events import T
from traces.rows import Plugin, row, rows


@dataclass
class Task:
    """Planned task run. Times that are not given follow from `start` and `stop`."""

    key: str | tuple[str, int]
    worker: int
    start: float
    stop: float
    #: CPU seconds of its function. By default, the function uses the CPU all the time.
    cpu: float | None = None
    run_queue: float = 0.0
    #: Times at which the task was submitted, runnable, assigned, received, ready, and given a
    #: thread.
    arrival: float = 0.0
    runnable: float | None = None
    sent: float | None = None
    received: float | None = None
    ready: float | None = None
    executing: float | None = None
    done: float | None = None
    known: float | None = None
    #: Time at which it seceded from its thread.
    seceded: float | None = None
    thread: int = 1
    size: int = 1000
    shape: tuple[int, ...] | None = None
    #: Type of its result, and of the values in the result, if known.
    type: str | None = None
    dtype: str | None = None
    dependencies: Sequence[str] = ()
    state: str = "memory"
    exception: str | None = None
    raised_at: str | None = None
    #: Final state on the scheduler, if it differs from `state`.
    became: str | None = None
    #: Stimulus that caused its assignment. By default, it is the end of the previous run on its
    #: thread or the submission of the graph, whichever was later.
    cause: str | None = None
    #: Stimulus of the graph that submitted it, if recorded.
    graph: str | None = None
    #: Stimulus that ended it on the scheduler, if that was not its completion.
    ended_by: str | None = None
    #: Arguments as the recorder describes them, or None if they were not recorded.
    arguments: str | None = None
    disk_read: float = 0.0
    disk_read_size: int = 0
    deserialize: float = 0.0
    #: CPU seconds of garbage collection.
    collecting: float = 0.0
    #: Seconds of waiting for storage, number of consecutive requests, bytes of all requests, and
    #: the items that they read.
    storage: float = 0.0
    reads: int = 1
    read_size: int = 1000
    items: str = ""
    #: Bytes that the task used of what it read, or -1 if unknown.
    used: int = -1
    #: Annotations of Dask, such as resources.
    annotations: dict[str, Any] | None = None
    #: Whether a client held a future of it when it ended, and the time at which the scheduler
    #: released its result.
    wanted: bool = True
    released: float | None = None

    @property
    def function(self) -> str:
        head = self.key if isinstance(self.key, str) else self.key[0]
        return head.rpartition("-")[0]

    def first(self, *names: str) -> float:
        return T + next(getattr(self, name) for name in names if getattr(self, name) is not None)


#: Columns of "Compute" with the same name as an attribute of `Task`.
_AS_IN_TASKS = ("key", "state", "shape", "type", "dtype", "thread", "run_queue", "disk_read")
_AS_IN_TASKS += ("disk_read_size", "deserialize", "collecting", "storage", "exception", "raised_at")


@dataclass
class Plan:
    """Planned run: its tasks, samples, and other events. Times are seconds from `T`."""

    tasks: list[Task] = field(default_factory=list)
    workers: int = 2
    threads: int = 2
    #: Host of each worker. By default, all workers are on one host.
    hosts: Sequence[str] = ()
    #: Time at which each worker joined. By default, all joined at 0.
    joined: Sequence[float] = ()
    #: Times at which graphs were submitted.
    graphs: Sequence[float] = (0.0,)
    #: Client of each graph. If given, the stimuli of graphs are update-graph-0, update-graph-1, ...
    clients: Sequence[str] = ()
    #: Time at which the scheduler started to process each graph, if its ids contain that time.
    taken_up: Sequence[float] = ()
    #: Rows that the client recorded about submitted graphs.
    graphs_sent: Sequence[dict[str, Any]] = ()
    #: Client calls (start, end, name and other columns), and objects embedded in graphs.
    client_calls: Sequence[tuple[float, float, str, dict[str, Any]]] = ()
    sent_values: Sequence[dict[str, Any]] = ()
    #: Start, end and phase of the client's activity, which is sampled at 10 Hz.
    client_phases: Sequence[tuple[float, float, str]] = ()
    #: Worker, start, stop, bytes and keys of transfers from the other worker.
    transfers: list[tuple[int, float, float, int, list[str]]] = field(default_factory=list)
    #: Worker, time, key and seconds of results that were serialized for the other worker.
    serialised: Sequence[tuple[int, float, str, float]] = ()
    #: Worker, arrival and answer of actor calls.
    calls: Sequence[tuple[int, float, float]] = ()
    #: Worker, time and values of samples of managed memory, and of the worker's process.
    held: list[tuple[int, float, dict[str, Any]]] = field(default_factory=list)
    used: list[tuple[int, float, dict[str, Any]]] = field(default_factory=list)
    #: Worker, thread, time and values of stack samples of tasks.
    sampled: list[tuple[int, int, float, dict[str, Any]]] = field(default_factory=list)
    #: Frames by function in which stack samples at 10 Hz find its tasks waiting.
    stands: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)
    #: Rows, without time, of functions that tasks call.
    sources: Sequence[dict[str, Any]] = ()
    #: Worker, name of a lock, and times at which it was requested, acquired and released.
    locks: list[tuple[int, str, float, float, float]] = field(default_factory=list)
    #: Worker, time and values of samples of its host's disk for spilling.
    disks: list[tuple[int, float, dict[str, Any]]] = field(default_factory=list)
    #: Worker, time and values of other processes on its host.
    seen: list[tuple[int, float, dict[str, Any]]] = field(default_factory=list)
    #: Time and values of samples of each worker's GPU.
    gpu: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    #: Task runs that only the scheduler recorded: keyword arguments of the row.
    unseen: list[dict[str, Any]] = field(default_factory=list)
    #: Worker, time and reason of exits.
    left: list[tuple[int, float, str]] = field(default_factory=list)
    #: Time and facts of cluster changes: restarts, or numbers of workers requested by adaptive
    #: scaling.
    changes: Sequence[tuple[float, dict[str, Any]]] = ()
    #: Time and bytes of memory samples of the scheduler's and of the client's process.
    scheduler_memory: Sequence[tuple[float, int]] = ()
    client_memory: Sequence[tuple[float, int]] = ()
    #: Memory limit (bytes) of each worker, or 0 without a limit.
    memory_limit: int = 0
    #: Memory sizes of each worker, as in the headers of its files.
    memory_sizes: Sequence[dict[str, int]] = ()
    #: Environment variables of workers that limit threads of libraries, or None if not recorded.
    thread_limits: dict[str, str] | None = None
    #: Other facts in the headers of all workers, such as limits of their processes.
    limits: dict[str, Any] = field(default_factory=dict)
    #: Cores of each host, or 0 if unknown.
    cores: int = 0
    scheduler: bool = True
    #: Whether the scheduler's file records when results are released.
    releases: bool = False
    resources: bool = True
    #: Workers whose files are not closed.
    killed: Sequence[int] = ()
    #: Name and id of the run, versions of packages, and settings in the headers of files.
    run: str = "run"
    run_uuid: str = "1"
    run_created: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def write(self, directory: Path) -> TraceAnalyser:
        self.write_files(directory)
        return TraceAnalyser(directory, progress=False)

    def write_files(self, directory: Path) -> None:
        for number in range(self.workers):
            runs = [self._compute(task) for task in self.tasks if task.worker == number]
            moved = [self._transfer(*move) for move in self.transfers if move[0] == number]
            plugin = self._plugin(directory, "TracePlugin", number)
            called = [self._call(*call) for call in self.calls if call[0] == number]
            plugin.write(
                (COMPUTE, runs),
                (TRANSFER, moved),
                (RESULT_SERIALISED, list(self._results_serialised(number))),
                (ACTOR_CALL, called),
                (TASK_ARGUMENTS, list(self._arguments(number))),
                (STORAGE, list(self._storage(number))),
                (LOCK_HELD, [self._lock(*one[1:]) for one in self.locks if one[0] == number]),
                (STACK, [(T, n, [[*one] for one in at], -1) for n, at in self._stacks()]),
                (TASK_SAMPLE, [*self._samples(number)]),
                (FUNCTION_CODE, [row(FUNCTION_CODE, timestamp=T, **each) for each in self.sources]),
                close=number not in self.killed,
            )
            if self.resources:
                self._write_resources(directory, number)
        if self.scheduler:
            self._write_scheduler(directory)
        noted = self.graphs_sent, self.client_calls, self.sent_values, self.client_memory
        if any(noted) or self.client_phases:
            looks = [(at, {"memory": size}) for at, size in self.client_memory]
            Plugin(directory, "StepRecorder", pid=20, **self._header()).write(
                (GRAPH_SENT, [self._graph_sent(**sent) for sent in self.graphs_sent]),
                (CLIENT_CALLS, [self._client_calls(*calls) for calls in self.client_calls]),
                (SENT_VALUE, [row(SENT_VALUE, timestamp=T, **sent) for sent in self.sent_values]),
                (CLIENT_SAMPLE, [*self._client_samples()]),
                (CLIENT_UNDER_WAY, rows(CLIENT_UNDER_WAY, looks, host="node1", pid=20)),
            )

    def _results_serialised(self, number: int) -> Iterable[tuple[Any, ...]]:
        for worker, at, key, seconds in self.serialised:
            if worker == number:
                facts: dict[str, Any] = {"target": _address(1 - worker), "seconds": seconds}
                yield row(RESULT_SERIALISED, timestamp=T + at, key=key, run_id=-1, size=48, **facts)

    def _stacks(self) -> Iterable[tuple[int, list[tuple[str, str, int]]]]:
        return enumerate(self.stands.values())

    def _samples(self, number: int) -> Iterable[tuple[Any, ...]]:
        for worker, thread, at, own in self.sampled:
            if worker == number:
                yield row(TASK_SAMPLE, timestamp=T + at, thread=str(thread), stack=-1, **own)
        facts = {"activity": "waiting", "interval": 0.1, "cpu": 0.0, "run_queue": 0.0}
        for task in self.tasks:
            if task.worker != number or task.function not in self.stands:
                continue
            where = {"thread": task.thread, "stack": [*self.stands].index(task.function)}
            for look in range(int((task.stop - task.start) / 0.1)):
                at = T + task.start + 0.05 + look * 0.1
                yield row(TASK_SAMPLE, timestamp=at, **where, **facts)

    def _client_samples(self) -> Iterable[tuple[Any, ...]]:
        facts = {"stack": -1, "interval": 0.1}
        for begin, end, phase in self.client_phases:
            for look in range(round((end - begin) / 0.1)):
                at = T + begin + 0.05 + look * 0.1
                yield row(CLIENT_SAMPLE, timestamp=at, phase=phase, **facts)

    def _plugin(self, directory: Path, name: str, number: int) -> Plugin:
        host = self.hosts[number] if self.hosts else "node1"
        facts: dict[str, Any] = {"host": host, "name": number, "address": _address(number)}
        facts |= {"memory_sizes": self.memory_sizes[number]} if self.memory_sizes else {}
        facts |= {"thread_limits": self.thread_limits, "limits": self.limits, "cores": self.cores}
        return Plugin(directory, name, **facts, threads=self.threads, **self._header())

    def _header(self) -> dict[str, Any]:
        header = {"run": self.run, "run_uuid": self.run_uuid, "run_created": self.run_created}
        return {**header, "versions": self.versions, "settings": self.settings}

    def _write_resources(self, directory: Path, number: int) -> None:
        end = max((task.stop for task in self.tasks), default=0.0)
        whole = self._joined(number), end
        held = _of(self.held, number) or [(at, {"state": "running"}) for at in whole]
        used = _of(self.used, number) or [(at, {}) for at in whole]
        used = [(at, {"time": T + at, **facts}) for at, facts in used]
        self._plugin(directory, "ResourceMonitor", number).write(
            (MANAGED_MEMORY, rows(MANAGED_MEMORY, held)),
            (RESOURCE_USAGE, rows(RESOURCE_USAGE, used)),
            (HOST_PROCESS, rows(HOST_PROCESS, _of(self.seen, number), ancestors=[])),
            (DISK_USAGE, rows(DISK_USAGE, _of(self.disks, number), local_directory=1)),
            *self._gpu_facts(f"GPU-{number}", number),
        )

    def _joined(self, number: int) -> float:
        return self.joined[number] if self.joined else 0.0

    def _gpu_facts(self, uuid: str, index: int) -> list[tuple[Schema, list[tuple[Any, ...]]]]:
        if not self.gpu:
            return []
        device = {"uuid": uuid, "index": index}
        known = row(GPU_DEVICES, timestamp=T, availability="available", **device)
        return [(GPU_DEVICES, [known]), (GPU_USAGE, rows(GPU_USAGE, self.gpu, **device))]

    def _write_scheduler(self, directory: Path) -> None:
        facts = {"nthreads": self.threads, "memory_limit": self.memory_limit, "host": "h"}
        numbers = [
            (self._joined(n), {"worker": _address(n), "name": n}) for n in range(self.workers)
        ]
        joined = rows(WORKER_ADDED, numbers, **facts)
        left = [(at, {"worker": _address(n), "reason": reason}) for n, at, reason in self.left]
        clients = self.clients or ["c"] * len(self.graphs)
        graphs = [
            (at, {"client": client, "tasks": 1, "stimulus": self._stimulus(place)})
            for place, (at, client) in enumerate(zip(self.graphs, clients, strict=False))
        ]
        unseen = [row(TASK_RUN, **facts) for facts in self.unseen]
        released = [
            (task.released, {"run_id": number})
            for number, task in enumerate(self.tasks)
            if task.released is not None
        ]
        states = [
            row(SCHEDULER_STATE, timestamp=T + at, occasion="interval", memory=size, tasks={})
            for at, size in self.scheduler_memory
        ]
        header = {**self._header(), "releases": self.releases, "pid": 10}
        Plugin(directory, "SchedulerPlugin", **header).write(
            (TASK_RUN, [*map(self._task_run, enumerate(self.tasks)), *unseen]),
            (RESULT_RELEASED, rows(RESULT_RELEASED, released)),
            (GRAPH, rows(GRAPH, graphs)),
            (WORKER_ADDED, joined),
            (WORKER_REMOVED, rows(WORKER_REMOVED, left)),
            (CLUSTER_CHANGE, rows(CLUSTER_CHANGE, [*self.changes])),
            (SCHEDULER_STATE, states),
        )

    def _stimulus(self, graph: int) -> str:
        if self.taken_up:
            return f"update-graph-{T + self.taken_up[graph]!r}"
        return f"update-graph-{graph if self.clients else 1}"

    def _graph_sent(self, at: float, since: float, start: float, **more: Any) -> tuple[Any, ...]:
        times = {"timestamp": T + at, "since": T + since, "start": T + start}
        return row(GRAPH_SENT, **times, **{"client": "c", "host": "node1", **more})

    def _client_calls(
        self, begin: float, end: float, call: str, more: dict[str, Any]
    ) -> tuple[Any, ...]:
        usual = {"file": "/mine.py", "line": 7, "code": "main", "main": 1, "calls": 1, "keys": 1}
        times = {"timestamp": T + begin, "stop": T + end, "seconds": end - begin, "longest": 0.0}
        zero = ("waiting", "receiving", "deserialising", "tokenising", "optimising", "pickling")
        return row(
            CLIENT_CALLS, call=call, **{**usual, **times, **dict.fromkeys(zero, 0.0), **more}
        )

    def _call(self, _: int, start: float, stop: float) -> tuple[Any, ...]:
        times = {"timestamp": T + start, "duration": stop - start}
        return row(ACTOR_CALL, **times, key="Server-1", method="step", state="success")

    def _compute(self, task: Task) -> tuple[Any, ...]:
        length = task.stop - task.start
        inputs = [
            next(other.size for other in self.tasks if other.key == key)
            for key in task.dependencies
        ]
        return row(
            COMPUTE,
            **{name: getattr(task, name) for name in _AS_IN_TASKS},
            timestamp=T + task.start,
            duration=length,
            name=task.function,
            run_id=self.tasks.index(task),
            size=task.size if task.state == "memory" else 0,
            dependencies=list(task.dependencies),
            input_size=sum(inputs),
            cpu=length - task.run_queue if task.cpu is None else task.cpu,
            received=task.first("received", "ready", "executing", "start"),
            ready=task.first("ready", "executing", "start"),
            executing=task.first("executing", "start"),
            seceded=None if task.seceded is None else T + task.seceded,
            done=task.first("done", "stop"),
        )

    def _lock(self, name: str, asked: float, since: float, until: float) -> tuple[Any, ...]:
        times = {"timestamp": T + until, "since": T + since, "waited": since - asked}
        return row(LOCK_HELD, kind="Lock", name=name, limit=1, **times)

    def _storage(self, worker: int) -> Iterator[tuple[Any, ...]]:
        for number, task in enumerate(self.tasks):
            if task.worker == worker and (task.storage or task.items):
                same = {
                    name: getattr(task, name) for name in ("reads", "read_size", "items", "used")
                }
                facts = {**same, "key": task.key, "run_id": number, "protocol": "s3"}
                facts |= dict.fromkeys(("helpers_cpu", "helpers_queue", "writing"), 0.0)
                facts |= {"reading": task.storage, "waiting": task.storage}
                yield row(STORAGE, timestamp=T + task.stop, **facts)

    def _arguments(self, worker: int) -> Iterator[tuple[Any, ...]]:
        for number, task in enumerate(self.tasks):
            if task.worker == worker and task.arguments is not None:
                facts = {"key": task.key, "run_id": number, "arguments": task.arguments}
                yield row(TASK_ARGUMENTS, timestamp=T + task.stop, **facts)

    def _task_run(self, numbered: tuple[int, Task]) -> tuple[Any, ...]:
        number, task = numbered
        sent = task.first("sent", "received", "ready", "executing", "start")
        runnable = task.first("runnable", "sent", "received", "ready", "executing", "start")
        known = task.first("known", "done", "stop")
        return row(
            TASK_RUN,
            timestamp=sent,
            duration=known - sent,
            key=task.key,
            run_id=number,
            worker=_address(task.worker),
            state=task.became or task.state,
            waiting=T + task.arrival,
            queued=runnable,
            start=T + task.start,
            stop=T + task.stop,
            wanted=int(task.wanted),
            cause=task.cause or self._cause(task),
            graph=task.graph or "",
            annotations=task.annotations,
            end_cause=task.ended_by or f"task-finished-{number}",
        )

    def _cause(self, task: Task) -> str:
        before = [
            (other.stop, number)
            for number, other in enumerate(self.tasks)
            if (other.worker, other.thread) == (task.worker, task.thread)
            and task.arrival < other.stop <= task.start
        ]
        return f"task-finished-{max(before)[1]}" if before else "update-graph-1"

    def _transfer(
        self, worker: int, start: float, stop: float, nbytes: int, keys: list[str]
    ) -> tuple[Any, ...]:
        return row(
            TRANSFER,
            timestamp=T + start,
            duration=stop - start,
            source=_address(1 - worker),
            keys=keys,
            size=nbytes,
            state="success",
            network=stop - start,
        )


def filled(
    names: Iterable[str],
    seconds: float,
    *,
    count: int = 16,
    workers: int = 2,
    threads: int = 2,
    since: float = 0.0,
) -> list[Task]:
    """Plan equal tasks of each function, in the same number, one after another on each thread."""
    tasks: list[Task] = []
    for name in names:
        for number in range(count):
            place = len(tasks)
            turn, lane = divmod(place, workers * threads)
            begin = since + turn * seconds
            worker, thread = divmod(lane, threads)
            tasks.append(Task(f"{name}-{number}", worker, begin, begin + seconds, thread=thread))
    return tasks


#: Times and values of samples.
_Samples = list[tuple[float, dict[str, Any]]]


def _of(samples: Iterable[tuple[int, float, dict[str, Any]]], number: int) -> _Samples:
    return [(at, facts) for worker, at, facts in samples if worker == number]


def _address(worker: int) -> str:
    return f"tcp://10.0.0.1:{4000 + worker}"


_MB = 1_000_000


def held_results(**more: Any) -> Plan:
    """Plan eight results of 10 MB on two workers, which are all inputs of the last task."""
    parts = [
        Task(f"load-{n}", n % 2, n // 2, n // 2 + 1.0, size=10 * _MB, wanted=False, released=5.02)
        for n in range(8)
    ]
    total = Task("total-1", 0, 4.0, 5.0, size=0, dependencies=[one.key for one in parts])
    total.released = 5.3
    moved = [(0, 3.99, 4.0, 40 * _MB, [f"load-{n}" for n in (1, 3, 5, 7)])]
    used, held = [], []
    for worker, sizes in enumerate(([0, 10, 20, 30, 80, 0], [0, 10, 20, 30, 40, 0])):
        for second, size in enumerate(sizes):
            facts = {"size": size * _MB, "spilled_size": 0, "tasks": size // 10, "state": "running"}
            held.append((worker, second + 0.5, facts))
            used.append((worker, second + 0.5, {"memory": (100 + size) * _MB}))
        used.append((worker, 0.0, {"memory": 100 * _MB}))
        held.append((worker, 0.0, {**held[-1][2], "size": 0, "tasks": 0}))
    options = {
        "threads": 1,
        "hosts": ("node1", "node2"),
        "memory_limit": 200 * _MB,
        "releases": True,
    }
    facts = {"transfers": moved, "used": used, "held": held, **options, **more}
    return Plan([*parts, total], **facts)
