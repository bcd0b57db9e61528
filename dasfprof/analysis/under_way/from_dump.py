"""Construction of a `ClusterState` from the output of `distributed.Client.dump_cluster_state`.

Tasks and workers in a dump are texts such as ``<TaskState 'load-1' processing>``. A dump does not
contain stacks, locks, events and queues. Its contents are not trusted.
"""

from __future__ import annotations

import gzip
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import IO, Any

from dask.utils import key_split

from dasfprof.analysis.trace.keys import as_tuple
from dasfprof.analysis.under_way.state import (
    ClusterState,
    FailedTask,
    TaskUnderWay,
    WorkerNow,
    seconds_since,
)
from dasfprof.database.storage import is_url, reason, shown
from dasfprof.errors import DumpError, MissingExtraError, SourceNotFoundError
from dasfprof.schema.under_way import UNFINISHED, unfinished_in, unmet
from dasfprof.text import format_size

#: Maximum number of held-back tasks and of failed tasks, and of keys per worker or client.
_MOST, _MOST_KEYS = 100, 20
#: Seconds after a task's assignment in which it is normal that the worker does not know the task.
#: Scheduler and workers write their parts of the dump one after another.
_SETTLED = 5.0
#: Patterns of the text of a task, a worker and a status, with key and state, address, or name.
_TASK = re.compile(r"<TaskState (.*) ([\w-]+)>", re.DOTALL)
_WORKER = re.compile(r"<WorkerState '([^']*)'")
_STATUS = re.compile(r"<Status\.(\w+)")


def state_from_dump(dump: Mapping[str, Any]) -> ClusterState:
    """Return the state of a cluster at the time of a dump that `read_dump` returned."""
    scheduler = dump["scheduler"]
    tasks = [task for task in scheduler["tasks"].values() if isinstance(task, dict)]
    workers = _dicts(scheduler.get("workers"))
    # Entries are key, start, finish, ..., time.
    log = [
        entry
        for entry in _items(scheduler.get("transition_log"))
        if len(_items(entry)) >= 4 and _number(entry[-1]) is not None
    ]
    seen = [_number(worker.get("last_seen")) or 0.0 for worker in workers.values()]
    time = max((*(entry[-1] for entry in log), *seen), default=0.0)
    began = {_key(entry[0]): entry[-1] for entry in log}
    counts: dict[str, Counter[str]] = {}
    for task in tasks:
        counts.setdefault(_function(task), Counter())[str(task.get("state"))] += 1
    last = max((entry[-1] for entry in log if "processing" in entry[1:3]), default=None)
    row = {
        "unfinished": unfinished_in(counts.values()),
        "tasks": {function: dict(states) for function, states in counts.items()},
        "held_back": list(_held_back(tasks, workers, began)),
        "clients": list(_clients(scheduler)),
    }
    return ClusterState.from_row(
        row,
        time,
        tasks=tuple(_under_way(dump["workers"], time)),
        workers=tuple(_workers(workers, dump["workers"], tasks, began, time)),
        failed=tuple(_failed(tasks)),
        quiet=seconds_since(last, time),
        scheduler_answered=True,
    )


def _under_way(workers: Mapping[str, Any], time: float) -> Iterable[TaskUnderWay]:
    for address, worker in _dicts(workers).items():
        for task in _dicts(worker.get("tasks")).values():
            if task.get("state") in ("executing", "long-running"):
                row = {**task, "key": as_tuple(task.get("key"))}
                row["since"] = _number(task.get("start_time"))
                yield TaskUnderWay.from_row(row, time, address)


def _workers(
    workers: Mapping[str, dict[str, Any]],
    answers: Mapping[str, Any],
    tasks: list[dict[str, Any]],
    began: Mapping[str, float],
    time: float,
) -> Iterable[WorkerNow]:
    sent: dict[str, list[str]] = {}
    for task in tasks:
        place = _WORKER.match(str(task.get("processing_on")))
        if task.get("state") == "processing" and place:
            sent.setdefault(place[1], []).append(_key(task.get("key")))
    for address, worker in workers.items():
        answer = answers.get(address)
        known = {
            _key(task.get("key", key)): str(task.get("state"))
            for key, task in _dicts(_dict(answer).get("tasks")).items()
        }
        sent_late = [key for key in sent.get(address, ()) if time - began.get(key, time) < _SETTLED]
        known |= dict.fromkeys(sent_late, "unknown")
        status = _STATUS.match(str(worker.get("status")))
        keys = sent.get(address, [])
        row = {
            "worker": address,
            "name": str(worker.get("name") or ""),
            "threads": int(_number(worker.get("nthreads")) or 0),
            "status": status[1] if status else str(worker.get("status")),
            "last_seen": _number(worker.get("last_seen")),
            "processing": len(keys),
            "keys": keys[:_MOST_KEYS],
            "memory": _number(_dict(worker.get("memory")).get("process")),
            "memory_limit": _number(worker.get("memory_limit")) or None,
        }
        is_known = isinstance(answer, dict)
        yield WorkerNow.from_row(row, time, known=known if is_known else None, answered=is_known)


def _held_back(
    tasks: list[dict[str, Any]], workers: Mapping[str, dict[str, Any]], began: Mapping[str, float]
) -> Iterable[dict[str, Any]]:
    known = {
        address: (str(worker.get("host")), _amounts(worker.get("resources")))
        for address, worker in workers.items()
    }
    for task in [task for task in tasks if task.get("state") == "no-worker"][:_MOST]:
        key = _key(task.get("key"))
        asked: dict[str, Any] = {
            "workers": sorted(map(str, _items(task.get("worker_restrictions")))),
            "hosts": sorted(map(str, _items(task.get("host_restrictions")))),
            "resources": _amounts(task.get("resource_restrictions")),
        }
        asked = {name: value for name, value in asked.items() if value}
        facts = {"since": began.get(key), "restrictions": asked, "unmet": unmet(asked, known)}
        yield {"key": key, "function": _function(task), **facts}


def _clients(scheduler: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for name, client in _dicts(scheduler.get("clients")).items():
        wanted = [_TASK.match(str(task)) for task in _items(client.get("wants_what"))]
        keys = [task[1] for task in wanted if task and task[2] in UNFINISHED]
        numbers = {"wanted": len(wanted), "unfinished": len(keys)}
        yield {"client": name, **numbers, "keys": keys[:_MOST_KEYS]}


def _failed(tasks: list[dict[str, Any]]) -> Iterable[FailedTask]:
    erred = [task for task in tasks if task.get("state") == "erred"]
    blamed = Counter(str(task.get("exception_blame")) for task in erred)
    for task in [task for task in erred if task.get("exception_text")][:_MOST]:
        blame = _TASK.match(str(task.get("exception_blame")))
        if blame and _key(task.get("key")) == blame[1].strip("'\""):
            workers = _items(task.get("erred_on"))
            yield FailedTask(
                key=_key(task.get("key")),
                function=_function(task),
                message=str(task["exception_text"]),
                worker=str(workers[0]) if workers else None,
                dependents=blamed[str(task.get("exception_blame"))] - 1,
            )


def _key(key: Any) -> str:
    """Return the text of a key."""
    # A tuple is a list in a dump.
    return str(as_tuple(key))


def _function(task: Mapping[str, Any]) -> str:
    return str(key_split(as_tuple(task.get("key"))))


def _dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> dict[str, dict[str, Any]]:
    """Return those entries of a dict whose values are dicts."""
    return {str(name): item for name, item in _dict(value).items() if isinstance(item, dict)}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _amounts(value: Any) -> dict[str, float]:
    return {str(name): _number(amount) or 0.0 for name, amount in _dict(value).items()}


#: Maximum bytes of an unpacked dump.
MOST_BYTES = 2 << 30
_GZIP = b"\x1f\x8b"
#: First bytes of a map in msgpack.
_MAPS = {*range(0x80, 0x90), 0xDE, 0xDF}


def read_dump(source: str) -> dict[str, Any]:
    """Read a dump from a file.

    Parameters
    ----------
    source
        A path, or a URL that `fsspec` can open.

    Raises
    ------
    SourceNotFoundError
        If there is no such file.
    MissingExtraError
        If the URL needs a package that is not installed.
    DumpError
        If the file is not a dump, is damaged, or is too large.
    """
    import fsspec

    name = shown(source)
    try:
        with fsspec.open(source, "rb") if is_url(source) else open(source, "rb") as file:
            dump = _read(file, name)
    except FileNotFoundError as error:
        raise SourceNotFoundError(f"File {name!r} does not exist.") from error
    except ImportError as error:
        raise MissingExtraError(f"{name!r} cannot be opened: {error}.") from error
    except DumpError:
        raise
    except Exception as error:
        # A damaged file may cause any error, and so do storage libraries without credentials.
        raise DumpError(f"{name!r} is damaged or cannot be read: {reason(error)}.") from error
    scheduler = _dict(_dict(dump).get("scheduler"))
    if not isinstance(scheduler.get("tasks"), dict) or not isinstance(dump.get("workers"), dict):
        raise _not_a_dump(name)
    return dump


def _not_a_dump(name: str) -> DumpError:
    return DumpError(
        f"{name!r} is not a dump of a Dask cluster with its tasks. Client.dump_cluster_state() "
        "writes such files, if its format is msgpack."
    )


def _read(file: IO[bytes], name: str) -> Any:
    import msgpack

    content = _content(file, name)
    if content.startswith(_GZIP):
        content = _content(gzip.GzipFile(fileobj=io.BytesIO(content)), name)
    if not content:
        raise DumpError(f"{name!r} is empty.")
    if content[0] not in _MAPS:
        raise _not_a_dump(name)
    return msgpack.unpackb(content, strict_map_key=False, unicode_errors="surrogateescape")


def _content(file: Any, name: str) -> bytes:
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise DumpError(
            f"{name!r} contains more than {format_size(MOST_BYTES)}. Dump less of the cluster: "
            "client.dump_cluster_state(..., exclude=['log', 'events', 'stimulus_log'])."
        )
    return content
