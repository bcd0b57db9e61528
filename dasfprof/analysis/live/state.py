"""`RunState`: a snapshot of a run, for the terminal, for notebooks and for Dask's dashboard."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dasfprof.analysis.live.progress import LONG_SECONDS, LONG_TIMES, FunctionProgress
from dasfprof.analysis.under_way.state import ClusterState, TaskUnderWay
from dasfprof.text import elide

#: Maximum number of unusually long tasks, and of characters of their keys.
_MOST_TASKS, _LONGEST_KEY = 100, 1000
#: Fields of workers, and of tasks, that documents include under the same name.
_OF_WORKERS = ("name", "host", "address", "threads", "busy", "status", "memory", "memory_limit")
_OF_TASKS = ("function", "worker", "state", "seconds")


@dataclass(frozen=True)
class RunState:
    """A snapshot of a run.

    A field is None if it is unknown, for example because the scheduler's file is on another host.
    """

    run: str
    #: The workers that have not left, and tasks that have run for over 10 s. Its time is by the
    #: scheduler's clock.
    cluster: ClusterState
    #: Time of the first task in Unix seconds.
    began: float | None
    #: Whether the run is still being recorded. None if unknown because its processes are on other
    #: hosts.
    goes_on: bool | None
    functions: tuple[FunctionProgress, ...] = ()
    done: int | None = None
    failed: int | None = None
    on_workers: int | None = None
    waiting: int | None = None
    #: Number of all tasks that the scheduler knows.
    total: int | None = None
    #: Number of tasks per second that finished in the last 30 s.
    rate: float = 0.0
    #: Estimated remaining seconds. See `Progress.time_left`.
    seconds_left: float | None = None
    #: Number of unfinished tasks whose function has not finished any task. `seconds_left` does not
    #: include their time.
    unknown_tasks: int = 0
    threads: int | None = None
    busy: int | None = None
    #: Seconds since a task last finished, if tasks are left and this is unusually long.
    quiet_for: float | None = None
    #: Whether the files of an ended run were closed. If not, the run was cut off.
    closed: bool = True
    #: Whether the processes of all clients ended without closing their files, so that nobody will
    #: receive the results of the run.
    client_is_gone: bool = False
    #: Sentences about data that the files lack.
    notes: tuple[str, ...] = field(default=())

    @property
    def means(self) -> dict[str, float | None]:
        """Mean seconds of the successful tasks of each function, or None if there are none."""
        return {row.function: row.mean_seconds for row in self.functions}

    @property
    def long_tasks(self) -> tuple[TaskUnderWay, ...]:
        """Tasks that run over 10 s and three times the mean of their function, longest first."""
        means = self.means
        tasks = [
            task
            for task in self.cluster.tasks
            if (task.seconds or 0.0)
            > max(LONG_SECONDS, LONG_TIMES * (means.get(task.function) or 0.0))
        ]
        return tuple(sorted(tasks, key=lambda task: -(task.seconds or 0.0))[:_MOST_TASKS])

    @property
    def stands_still(self) -> bool:
        """Whether a part of the run seems to hang."""
        signs = self.quiet_for is not None or bool(self.long_tasks) or self.client_is_gone
        return signs and self.goes_on is not False

    def counts(self) -> RunState:
        """Return the state without fields that name tasks, functions or workers."""
        cluster = ClusterState(self.cluster.time, self.cluster.unfinished)
        return replace(self, functions=(), cluster=cluster, notes=())

    def document(self) -> dict[str, Any]:
        """Return the state as JSON-compatible data."""
        facts, means = dict(vars(self)), self.means
        cluster: ClusterState = facts.pop("cluster")
        workers = [
            {
                **{name: getattr(worker, name) for name in _OF_WORKERS},
                "open_tasks": worker.processing,
                "silent_for": worker.silent,
            }
            for worker in cluster.workers
        ]
        tasks = [
            {
                **{name: getattr(task, name) for name in _OF_TASKS},
                "key": elide(task.key, _LONGEST_KEY),
                "mean_seconds": means.get(task.function),
                "line": task.activity.line,
                "waits": task.activity.call,
            }
            for task in self.long_tasks
        ]
        functions = [{**asdict(row), "total": row.total} for row in self.functions]
        lists = {"functions": functions, "workers": workers, "long_tasks": tasks}
        return {**facts, "time": cluster.time, **lists}
