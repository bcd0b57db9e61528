"""Record of a cluster's task runs by public means of Dask, to compare traces with.

`SchedulerRecord` and `WorkerRecord` are plugins of the tests that share no code with the profiler.
The scheduler's plugin records all outcomes, and the worker's plugin all attempts. (Only workers
know failed attempts of tasks with retries.)
"""

import time
from pathlib import Path
from typing import Any

from clusters import wait_until  # noqa: F401  (for tests that take all from here)
from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

NAME = "independent-record"


class SchedulerRecord(SchedulerPlugin):
    """Plugin that records all task runs, releases of results, and steals."""

    name = NAME

    def __init__(self) -> None:
        self.outcomes: list[dict[str, Any]] = []
        self.steals: list[tuple[Any, ...]] = []
        self.releases: list[tuple[Any, int | None, float]] = []

    async def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing":
            names = ("worker", "nbytes", "thread", "exception_text")
            outcome = {"key": key, "run_id": self.scheduler.tasks[key].run_id, "finish": finish}
            outcome |= {name: kwargs.get(name) for name in names}
            self.outcomes.append(outcome | computing(kwargs.get("startstops") or ()))
        elif start == "memory":
            self.releases.append((key, self.scheduler.tasks[key].run_id, time.time()))

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == "stealing" and isinstance(msg, tuple) and msg[0] == "confirm":
            self.steals.append((msg[1], msg[3], msg[4]))


def computing(startstops: Any) -> dict[str, float | None]:
    """Return when a task last started and stopped computing, or None if unknown."""
    spans = [span for span in startstops if span["action"] == "compute"]
    return {name: spans[-1][name] if spans else None for name in ("start", "stop")}


class WorkerRecord(WorkerPlugin):
    """Plugin that records all attempts that ended on this worker."""

    name = NAME

    def __init__(self) -> None:
        self.attempts: list[dict[str, Any]] = []

    def setup(self, worker: Any) -> None:
        self.worker = worker
        self.running: dict[Any, int] = {}

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        task = self.worker.state.tasks.get(key)
        if finish == "executing" and start in ("ready", "constrained"):
            self.running[key] = task.run_id
        if key in self.running and finish in ("memory", "error", "rescheduled"):
            finish = "cancelled" if start == "cancelled" else finish
            attempt = {"key": key, "run_id": self.running.pop(key), "finish": finish}
            self.attempts.append(attempt | computing(task.startstops))


def install(client: Client) -> None:
    client.register_plugin(SchedulerRecord())
    client.register_plugin(WorkerRecord())


def clear(client: Client) -> None:
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins[NAME].outcomes.clear())
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins[NAME].steals.clear())
    client.run(lambda dask_worker: dask_worker.plugins[NAME].attempts.clear())


def outcomes(client: Client, *finishes: str) -> list[dict[str, Any]]:
    """Return the scheduler's outcomes, optionally only those with the given states."""
    told = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins[NAME].outcomes)
    return [outcome for outcome in told if not finishes or outcome["finish"] in finishes]


def count_on(client: Client, worker: str) -> int:
    """Return the number of successful task runs on a worker, according to the scheduler."""

    def count(dask_scheduler: Any) -> int:
        return sum(each["worker"] == worker for each in dask_scheduler.plugins[NAME].outcomes)

    return client.run_on_scheduler(count)


def steals(client: Client) -> list[tuple[Any, ...]]:
    """Return key, victim and thief of each steal."""
    return client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins[NAME].steals)


def attempts(client: Client) -> list[dict[str, Any]]:
    """Return the attempts of the existing workers, each with the address in `worker`."""
    read = client.run(lambda dask_worker: dask_worker.plugins[NAME].attempts)
    return [{**one, "worker": address} for address, many in read.items() for one in many]


def task_runs(client: Client) -> list[dict[str, Any]]:
    """Return all attempts, with the facts of both the worker and the scheduler.

    If no worker died and no task was cancelled, both know the same finished attempts.
    """
    told = {(one["key"], one["run_id"]): one for one in outcomes(client, "memory", "erred")}
    runs = []
    for attempt in attempts(client):
        outcome = told.pop((attempt["key"], attempt["run_id"]), None)
        if outcome is not None:
            assert all(outcome[name] == attempt[name] for name in ("start", "stop", "worker"))
            attempt |= {"nbytes": outcome["nbytes"], "thread": outcome["thread"]}
        runs.append(attempt)
    assert not told
    return runs


def attempt(path: Path, needed: int, give_up: type[Exception]) -> int:
    """Raise an exception in each call before call number `needed`."""
    with path.open("ab") as file:
        file.write(b".")
        number = file.tell()
    if number < needed:
        raise give_up(f"attempt {number}")
    return number
