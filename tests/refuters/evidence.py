"""Raw events of a run as columns, and facts that follow from them without the analysis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.database import FileDatabase
from refuters.steps import Numbers, Steps

#: Events that clients record about themselves, also before and after the cluster is recorded.
_OF_CLIENTS = (
    *("Graph Sent", "Function Sent", "Step", "Step End", "Step Layer"),
    *("Line", "Line Layer", "Line Graph"),
    *("Client Calls", "Sent Value", "Client Under Way", "Client Sample"),
)


class Rows:
    """Events with the same name, as dicts of their fields and args."""

    def __init__(self, maps: list[dict[str, Any]]) -> None:
        self.maps = maps

    def __len__(self) -> int:
        return len(self.maps)

    def __iter__(self) -> Any:
        return iter(self.maps)

    def numbers(self, name: str) -> Numbers:
        """Return a column as floats, with NaN for missing values."""
        values = [row.get(name) for row in self.maps]
        return np.array([np.nan if value is None else value for value in values], dtype=float)

    def sum(self, name: str) -> float:
        total: float = np.nansum(self.numbers(name))
        return total

    def most(self, name: str) -> float:
        return float(np.nanmax(self.numbers(name)))

    @property
    def ends(self) -> Numbers:
        return self.numbers("timestamp") + self.numbers("duration")

    def values(self, name: str) -> list[Any]:
        return [row.get(name) for row in self.maps]

    def where(self, true: Any) -> Rows:
        return Rows([row for row in self.maps if true(row)])

    def by(self, name: str) -> dict[Any, Rows]:
        groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for row in self.maps:
            groups[row.get(name)].append(row)
        return {value: Rows(maps) for value, maps in groups.items()}


class Evidence:
    """Events in the trace files of a run.

    Each event is a dict of its args, with ``timestamp``, ``duration``, ``host``, ``label`` (of the
    worker), ``address`` (of the worker, from the file's header) and ``file``.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        maps: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.paths = sorted(files)
        self.headers: list[dict[str, Any]] = []
        #: Names of all files, and of files that are not closed.
        self.names: list[str] = []
        self.unclosed: list[str] = []
        for path in self.paths:
            file = FileDatabase(path).trace_file()
            header = file.read_header()
            self.headers.append(header)
            self.names.append(path.name)
            if not file.is_closed():
                self.unclosed.append(path.name)
            source = {"address": header.get("worker", {}).get("address"), "file": path.name}
            for event in FileDatabase(path).get_traces():
                times = {"timestamp": event.timestamp, "duration": getattr(event, "duration", 0.0)}
                process = {"host": event.process_id, "label": event.thread_id}
                maps[event.name].append({**process, **event.args, **times, **source})
        self._rows = {name: Rows(rows) for name, rows in maps.items()}

    def rows(self, name: str) -> Rows:
        return self._rows.get(name, Rows([]))

    def of(self, function: str | None) -> Rows:
        return self.functions.get(function, Rows([]))

    @cached_property
    def runs(self) -> Rows:
        """Return the task runs in workers' files, or in the scheduler's without these, by start.

        Added columns are ``stop``, ``function``, ``held`` (time until which it held its thread),
        and parts of the function's time: ``waited`` (CPU wait), ``working`` (everything else), and
        ``used`` (CPU seconds, 0 if unknown). ``waited`` and ``used`` include threads that worked
        for the task.
        """
        helped: dict[Any, Numbers] = defaultdict(lambda: np.zeros(2))
        for row in self.rows("Storage"):
            both = row.get("helpers_queue", 0.0), row.get("helpers_cpu", 0.0)
            helped[repr(row["key"]), row["run_id"], row["address"]] += both
        seen = {
            (repr(row["key"]), row["run_id"], row["worker"]): row for row in self.rows("Task Run")
        }
        runs = []
        ran = self.rows("Compute") or self._ran_by_scheduler()
        for row in sorted(ran, key=lambda row: row["timestamp"]):
            noted = seen.get((repr(row["key"]), row["run_id"], row["address"]), {})
            ends = [row["timestamp"] + row["duration"], row.get("done"), row.get("seceded")]
            length = max(min(ends[0], ends[2] or ends[0]) - row["timestamp"], 0.0)
            # It is not recorded when a task run used the CPU, so assume a constant rate.
            share = length / row["duration"] if row["duration"] > 0 else 1.0
            queue, more = helped[repr(row["key"]), row["run_id"], row["address"]]
            waited = min(max((row.get("run_queue") or 0.0) + queue, 0.0) * share, length)
            cpu = row.get("cpu")
            used = 0.0 if cpu is None or np.isnan(cpu) else max((cpu + more) * share, 0.0)
            facts = {
                "stop": ends[0],
                "function": key_split(row["key"]),
                "waited": waited,
                "working": length - waited,
                "used": min(used, length - waited),
                "held": ends[2] if ends[2] is not None else max(ends[0], ends[1] or 0.0),
                "noted": noted,
                "sent": noted.get("timestamp"),
                "known": noted["timestamp"] + noted["duration"] if noted else None,
                **{name: noted.get(name) for name in ("queued", "waiting")},
            }
            runs.append({**row, **facts})
        workers = [header.get("worker", {}) for header in self.headers]
        threads = {each["address"]: each["nthreads"] for each in workers if each.get("nthreads")}
        _end_with_the_next(runs, threads)
        return Rows(runs)

    def _ran_by_scheduler(self) -> Rows:
        """Return the task runs that only the scheduler recorded, in the form of workers' rows."""
        noted = self.rows("Task Run").where(_ran)
        return Rows([{**_as_ran(row), "label": self.label(row["worker"])} for row in noted])

    @cached_property
    def unseen(self) -> Rows:
        """Return the scheduler's task runs that are not in `runs`."""
        seen = {(repr(row["key"]), row["run_id"], row["address"]) for row in self.runs}
        return self.rows("Task Run").where(
            lambda row: (repr(row["key"]), row["run_id"], row["worker"]) not in seen
        )

    @cached_property
    def functions(self) -> dict[str | None, Rows]:
        return self.runs.by("function")

    @cached_property
    def open(self) -> Rows:
        """Return the last snapshot of each unfinished task run."""
        ended = {(repr(row["key"]), row["run_id"]) for row in self.rows("Compute")}
        last = {
            (repr(row["key"]), row["run_id"], row["label"]): row
            for row in self.rows("Task Under Way")
        }
        return Rows([row for (*run, _), row in last.items() if tuple(run) not in ended])

    def _of_cluster(self, but: tuple[str, ...] = ()) -> list[Rows]:
        """Return all events except those with the given names, and those of clients.

        Stacks are left out too, because clients may have recorded them.
        """
        left_out = (*but, "Stack", *_OF_CLIENTS)
        return [rows for name, rows in self._rows.items() if name not in left_out]

    @cached_property
    def begin(self) -> float:
        return min((row["timestamp"] for rows in self._of_cluster() for row in rows), default=0.0)

    @cached_property
    def first_seen(self) -> float:
        """Return the time of the first event, not counting workers that joined or left."""
        events = self._of_cluster(but=("Worker Added", "Worker Removed"))
        return min((row["timestamp"] for rows in events for row in rows), default=self.begin)

    def label(self, address: str) -> str | None:
        workers = (header.get("worker", {}) for header in self.headers)
        return next((x.get("label") for x in workers if x.get("address") == address), None)

    @property
    def scheduler_closed(self) -> bool:
        names = [name for name in self.names if "-SchedulerPlugin-" in name]
        return bool(names) and not set(names) & set(self.unclosed)

    @cached_property
    def end(self) -> float:
        return max(
            (row["timestamp"] + row["duration"] for rows in self._of_cluster() for row in rows),
            default=0.0,
        )

    @cached_property
    def span(self) -> tuple[float, float]:
        """Return when the first task was known, and when the last task ended or was waited for."""
        begins, ends = self._begins, self._ends
        states = self.rows("Scheduler State").where(lambda row: row["unfinished"] > 0)
        open_ = any(row["state"] == "processing" for row in self.rows("Task Run"))
        open_ = open_ or len(self.rows("Unsent Tasks")) > 0
        if not begins or not ends:
            # If no worker received a task, only the graph is known.
            known = begins or self.rows("Graph").numbers("timestamp")
            return float(np.nanmin(known, initial=self.end)) if len(known) else self.begin, self.end
        waited = states.numbers("timestamp").max(initial=0.0)
        if not open_ and waited <= np.nanmax(ends) and not self._cut_at_work():
            return float(np.nanmin(begins)), float(np.nanmax(ends))
        # Nobody waits for tasks after the last client has left.
        left = self.rows("Scheduler State").where(lambda row: row["occasion"] == "client-left")
        gone = left.numbers("timestamp").max(initial=0.0)
        # Events after the scheduler has closed do not belong to the run.
        closed = states.where(lambda row: row["occasion"] == "closing").numbers("timestamp")
        last = gone if gone >= max(waited, np.nanmax(ends)) else closed.max(initial=-np.inf)
        return float(np.nanmin(begins)), last if np.isfinite(last) else self.end

    def _cut_at_work(self) -> bool:
        """Return whether the scheduler was killed while tasks were unfinished.

        Its last snapshot counts more unfinished tasks than ended after it. Workers may report an
        end a second later.
        """
        states = [*self.rows("Scheduler State")]
        if self.scheduler_closed or not states:
            return False
        last = max(states, key=lambda row: row["timestamp"])
        since = last["timestamp"]
        over = self.rows("Task Run").where(lambda row: row["state"] in ("memory", "erred"))
        noted = {repr(row["key"]): row["timestamp"] + row["duration"] for row in over}
        ended = {key for key, end in noted.items() if end > since}
        ended |= {repr(row["key"]) for row in self.runs if row["stop"] > since - 1.0} - set(noted)
        return (last["unfinished"] or 0) > len(ended)

    @property
    def last_end(self) -> float:
        """Return when the last task ended, or the end of the trace if none did."""
        return float(np.nanmax(self._ends)) if self._ends else self.end

    @property
    def _begins(self) -> list[float]:
        noted = self.rows("Task Run")
        begins = [*noted.numbers("waiting"), *noted.numbers("queued"), *noted.numbers("timestamp")]
        return [*begins, *self.runs.numbers("received"), *self.runs.numbers("timestamp")]

    @property
    def _ends(self) -> list[float]:
        over = self.rows("Task Run").where(lambda row: row["state"] in ("memory", "erred"))
        return [*over.ends, *self.runs.numbers("done"), *self.runs.numbers("stop")]

    @cached_property
    def least_wall(self) -> float:
        """Return the seconds between the start of the first and the end of the last task run."""
        begins = [*self.runs.numbers("timestamp"), *self.runs.numbers("executing")]
        return float(np.nanmax(self.runs.numbers("stop")) - np.nanmin(begins)) if begins else 0.0

    @property
    def wall(self) -> float:
        return self.span[1] - self.span[0]

    @property
    def walls(self) -> tuple[float, float]:
        """Return the minimum and maximum duration of the run in seconds.

        If processes were killed, it is unknown whether tasks were in progress after the last end.
        """
        begin, end = self.span
        if self.scheduler_closed:
            # Cancelled tasks were in progress until a client released them.
            given_up = self.rows("Task Run").where(
                lambda row: str(row["end_cause"] or "").startswith("client-releases-keys")
            )
            return end - begin, max(end, given_up.ends.max(initial=end)) - begin
        return min(end, self.last_end) - begin, max(end, self.end) - begin

    def shares(self, seconds: float) -> tuple[float, float]:
        """Return the minimum and maximum fraction of the run that the seconds are."""
        least, most = self.walls
        return seconds / max(most, 1e-9), seconds / max(least, 1e-9)

    @cached_property
    def lives(self) -> dict[str, tuple[float, float, int]]:
        """Return when each worker joined and left, and its number of threads, by address."""
        left = {row["worker"]: row["timestamp"] for row in self.rows("Worker Removed")}
        lives: dict[str, tuple[float, float, int]] = {
            row["worker"]: (row["timestamp"], left.get(row["worker"], self.end), row["nthreads"])
            for row in self.rows("Worker Added")
        }
        for worker in (header.get("worker", {}) for header in self.headers):
            if worker.get("address"):
                always = self.begin, self.end, worker.get("nthreads", 1)
                lives.setdefault(worker["address"], always)
        return lives

    @cached_property
    def threads(self) -> float:
        """Return the mean number of threads in the run."""
        return self.threads_there.integral(*self.span) / self.wall if self.wall > 0 else 0.0

    @cached_property
    def threads_seen(self) -> float:
        """Return the mean number of threads if workers count only while events show them.

        A worker whose first events are lost counts from the first remaining event, unless the
        scheduler recorded when it joined. Each worker counts until its last event.
        """
        first: dict[str, float] = {}
        last: dict[str, float] = {}
        for rows in self._rows.values():
            for row in rows:
                address, end = row["address"], row["timestamp"] + row["duration"]
                first[address] = min(row["timestamp"], first.get(address, np.inf))
                last[address] = max(end, row.get("done") or 0.0, last.get(address, 0.0))
        first |= {row["worker"]: row["timestamp"] for row in self.rows("Worker Added")}
        seen = [
            (max(joined, first.get(address, 0)), min(left, last.get(address, 0)), threads)
            for address, (joined, left, threads) in self.lives.items()
        ]
        return _threads_of(seen).integral(*self.span) / max(self.wall, 1e-9)

    @cached_property
    def threads_there(self) -> Steps:
        """Return the number of threads over time."""
        return _threads_of(self.lives.values())

    @property
    def thread_seconds(self) -> float:
        """Return the thread time of the run in seconds, a lower bound."""
        return (min(self.threads, self.threads_seen) or self.threads) * self.wall

    def between(self, begin: str, end: str, runs: Rows | None = None) -> Steps:
        """Return the number of task runs between two of their times, over time."""
        runs = self.runs if runs is None else runs
        return Steps.of(runs.numbers(begin), runs.numbers(end))

    @cached_property
    def idle(self) -> Steps:
        """Return the number of threads that no task held over time, an upper bound."""
        return self.threads_there.less(self.between("executing", "held"))

    def idle_by_worker(self, begin: str, end: str) -> float:
        """Return the idle thread time while task runs on the same worker were between two times."""
        total = 0.0
        for address, runs in self.runs.by("address").items():
            joined, left, threads = self.lives.get(address, (self.begin, self.end, len(runs)))
            present = Steps.of([joined], [left], threads)
            idle = present.less(self.between("executing", "held", runs))
            total += idle.least(self.between(begin, end, runs)).integral()
        return total


def _threads_of(lives: Collection[tuple[float, float, int]]) -> Steps:
    begins, ends, each = zip(*lives, strict=True) if lives else ((), (), ())
    return Steps.of(begins, ends, each)


def _ran(row: dict[str, Any]) -> bool:
    """Return whether the scheduler recorded when the function of a task run started and ended."""
    return row["start"] is not None and row["stop"] is not None


def _as_ran(row: dict[str, Any]) -> dict[str, Any]:
    """Return the scheduler's row of a task run in the form of a worker's row."""
    times = {"timestamp": row["start"], "duration": max(row["stop"] - row["start"], 0.0)}
    times |= {"executing": row["start"], "done": row["stop"]}
    unknown = ("seceded", "cpu", "run_queue", "received", "ready", "exception", "raised_at")
    unknown += ("disk_read", "disk_read_size", "deserialize", "collecting", "input_size")
    return {**row, **times, **dict.fromkeys(unknown), "address": row["worker"]}


def _end_with_the_next(runs: list[dict[str, Any]], threads: dict[str, int]) -> None:
    """Limit `held` of task runs to the time at which another task run took the thread.

    A worker records the end of a task run shortly after it has given the thread to the next one.
    The threads are not recorded, so ends and starts are paired in order of time.
    """
    by_worker: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in runs:
        if row.get("executing") is not None and row["address"] in threads:
            by_worker[row["address"]].append(row)
    for address, rows in by_worker.items():
        begins = sorted(row["executing"] for row in rows)[threads[address] :]
        for row, taken in zip(sorted(rows, key=lambda row: row["held"]), begins, strict=False):
            if row["stop"] <= taken < row["held"]:
                row["held"] = taken
