"""Unfinished runs of one worker with two threads, written as the plugins write them.

All times are seconds from `T`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dasfprof import TraceAnalyser
from dasfprof.schema.resources import MANAGED_MEMORY, RESOURCE_USAGE
from dasfprof.schema.tasks import (
    COMPUTE,
    GRAPH,
    TASK_RUN,
    WORKER_ADDED,
    WORKER_EXIT,
    WORKER_REMOVED,
)
from dasfprof.schema.under_way import CLIENT_UNDER_WAY, SCHEDULER_STATE, STACK, TASK_UNDER_WAY
from traces.events import T
from traces.rows import Plugin, row, rows

ADDRESS = "tcp://10.0.0.1:4000"
PERSON = "Client-1"
ENDED = "task-finished-1"
#: Facts of a task run that a worker recorded.
FIRST = {"run_id": 0}
#: Exception that `subprocess` raises if signal 2 ended its child.
SIGINT = "CalledProcessError(-2, ['sleep', '1000'])"


def client(name: str = PERSON, unfinished: int = 1, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"client": name, "wanted": 1, "unfinished": unfinished, "keys": list(keys)}


@dataclass
class Hung:
    """Unfinished run of one worker with two threads; times are seconds from `T`."""

    #: Tasks in progress in the last snapshot: columns by key.
    open: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Time until which the processes wrote.
    end: float = 20.0
    #: Rows of the scheduler's state: time and columns.
    states: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    #: Key, start and stop of finished tasks.
    ended: list[tuple[str, float, float]] = field(default_factory=list)
    #: Exceptions of failed tasks by key.
    raised: dict[str, str] = field(default_factory=dict)
    #: Columns of the scheduler's task runs.
    runs: list[dict[str, Any]] = field(default_factory=list)
    left: tuple[float, str] | None = None
    #: Exit code of the worker's process, which its nanny recorded after the worker had left.
    exit_code: int | None = None
    waits_in: str | None = "gather"
    closed: bool = True

    def write(self, directory: Path) -> TraceAnalyser:
        ends = (0.0, self.end)
        seen = rows(RESOURCE_USAGE, [(at, {"time": T + at}) for at in ends])
        held = rows(MANAGED_MEMORY, [(at, {"state": "running"}) for at in ends])
        Plugin(directory, "ResourceMonitor").write((RESOURCE_USAGE, seen), (MANAGED_MEMORY, held))
        frames = [["f", "/home/me/work.py", 7], ["wait", "/lib/python3.13/x.py", 1]]
        Plugin(directory).write(
            (STACK, [(T, 0, frames, -1)]),
            (TASK_UNDER_WAY, [self._open(key, **facts) for key, facts in self.open.items()]),
            (COMPUTE, [self._compute(*task) for task in self.ended]),
            close=self.closed,
        )
        left = [] if self.left is None else [self.left]
        exits = [
            (at, {"exit_code": self.exit_code}) for at, _ in left if self.exit_code is not None
        ]
        of_worker = {"worker": ADDRESS}
        graph = {"client": PERSON, "tasks": 1, "stimulus": "update-graph-1"}
        states = [(at, self._state(at, facts)) for at, facts in self.states]
        removed = [(at, {"reason": why}) for at, why in left]
        Plugin(directory, "SchedulerPlugin").write(
            (WORKER_ADDED, rows(WORKER_ADDED, [(0.0, {"name": 0, "nthreads": 2})], **of_worker)),
            (GRAPH, rows(GRAPH, [(0.0, graph)])),
            (TASK_RUN, [self._run(**facts) for facts in self.runs]),
            (SCHEDULER_STATE, rows(SCHEDULER_STATE, states)),
            (WORKER_REMOVED, rows(WORKER_REMOVED, removed, **of_worker)),
            (WORKER_EXIT, rows(WORKER_EXIT, exits, **of_worker)),
            close=self.closed,
        )
        waits = {"waits_in": self.waits_in, "thread_state": "sleeping", "stack": 0, "since": T}
        Plugin(directory, "StepRecorder").write(
            (STACK, [(T, 0, [["main", "/home/me/script.py", 3]], -1)]),
            (CLIENT_UNDER_WAY, [row(CLIENT_UNDER_WAY, timestamp=T + 1, client=PERSON, **waits)]),
            close=self.closed,
        )
        return TraceAnalyser(directory, progress=False)

    def _open(self, key: str, since: float = 0.0, at: float | None = None, **facts: Any) -> Any:
        values = {"state": "executing", "thread_state": "sleeping", "cpu": 0.0, "thread": "7"}
        values |= {"stack": 0, "run_id": 1, "holds": []}
        time = T + (self.end if at is None else at)
        return row(TASK_UNDER_WAY, timestamp=time, key=key, since=T + since, **{**values, **facts})

    def _compute(self, key: str, start: float, stop: float) -> Any:
        facts: dict[str, Any] = dict.fromkeys(("received", "ready", "executing"), T + start)
        facts |= {"timestamp": T + start, "duration": stop - start, "done": T + stop}
        facts |= {"key": key, "thread": "8", "cpu": stop - start}
        facts |= {"exception": self.raised.get(key)}
        return row(COMPUTE, state="erred" if key in self.raised else "memory", **facts)

    def _run(
        self, key: str, known: float, state: str, why: str, sent: float = 0.0, run_id: int = 1
    ) -> Any:
        facts: dict[str, Any] = dict.fromkeys(("queued", "stolen", "start", "stop"))
        facts |= {"timestamp": T + sent, "duration": known - sent, "waiting": T + sent}
        facts |= {"worker": ADDRESS, "cause": "update-graph-1", "end_cause": why}
        return row(TASK_RUN, key=key, run_id=run_id, state=state, **facts)

    def _state(self, at: float, facts: dict[str, Any]) -> dict[str, Any]:
        worker = {"worker": ADDRESS, "name": 0, "status": "running", "last_seen": T + at}
        worker |= {"threads": 2, "processing": len(self.open), "keys": list(self.open)}
        state = {"occasion": "interval", "clients": [client()], "workers": [worker]}
        state |= {"held_back": [], "primitives": [], "tasks": {}}
        return {**state, **facts}


def hung(**facts: Any) -> Hung:
    counts = {"f": {"processing": 1}}
    state = {"unfinished": 1, "tasks": counts, "clients": [client(keys=("f-1",))]}
    return Hung(open={"f-1": {}}, states=[(1.0, state), (19.0, state)], **facts)


def ended_in(exception: str, at: float, known: float, client_left: float) -> Hung:
    """Let f-1 wait in a line from time 0, and raise. Then the client and the worker leave."""
    run = hung(left=(client_left + 0.1, "handle-worker-cleanup"), end=client_left + 1)
    run.open["f-1"] |= {"at": 15.0, "thread": "8", **FIRST}
    run.ended, run.raised = [("f-1", 0.0, at)], {"f-1": exception}
    unfinished = int(known > client_left)
    gone = {"unfinished": unfinished, "occasion": "client-left", "client": PERSON}
    run.states = [run.states[0], (client_left, {**run.states[0][1], **gone})]
    run.states += [(client_left + 0.5, {"unfinished": 0, "clients": []})]
    run.runs = [{"key": "f-1", "known": known, "state": "erred", "why": "task-erred-1", **FIRST}]
    return run
