"""Dask's locks, events, queues, ...: what the scheduler knows of them, and who holds them."""

from __future__ import annotations

import gc
from typing import Any

#: The most primitives of a kind.
MOST = 200


def primitives(scheduler: Any) -> list[dict[str, Any]]:
    """Return Dask's primitives that something waits for or holds, a dict each.

    The attributes of Dask's extensions make entries by being read: `get` is used throughout.
    """
    extensions = getattr(scheduler, "extensions", {})
    found: list[dict[str, Any]] = []
    for look, name in (
        (_semaphores, "semaphores"),
        (_events, "events"),
        (_queues, "queues"),
        (_multi_locks, "multi_locks"),
    ):
        extension = extensions.get(name)
        if extension is not None:
            found += look(extension)
    return found


def _semaphores(extension: Any) -> list[dict[str, Any]]:
    pending = extension.metrics.get("pending", {})
    return [
        {
            "kind": "Semaphore",  # or a Lock, which is one of a single lease
            "name": str(name),
            "limit": limit,
            "holders": list(extension.leases.get(name, ())),
            "waiting": pending.get(name, 0),
        }
        for name, limit in list(extension.max_leases.items())[:MOST]
        if extension.leases.get(name) or pending.get(name)
    ]


def _events(extension: Any) -> list[dict[str, Any]]:
    waiting = extension._waiter_count
    return [
        {"kind": "Event", "name": str(name), "waiting": waiting[name], "set": event.is_set()}
        for name, event in list(extension._events.items())[:MOST]
        if waiting.get(name)
    ]


def _queues(extension: Any) -> list[dict[str, Any]]:
    found = []
    for name, queue in list(extension.queues.items())[:MOST]:
        getters, putters = len(queue._getters), len(queue._putters)
        if getters or putters or queue.qsize():
            found.append(
                {
                    "kind": "Queue.put" if putters else "Queue.get",
                    "name": str(name),
                    "waiting": getters + putters,
                    "items": queue.qsize(),
                    "limit": queue.maxsize,
                }
            )
    return found


def _multi_locks(extension: Any) -> list[dict[str, Any]]:
    return [
        {
            "kind": "MultiLock",
            "name": str(name),
            "holders": [str(user) for user in users[:1]],
            "waiting": len(users) - 1,
            "limit": 1,
        }
        for name, users in list(extension.locks.items())[:MOST]
        if users
    ]


def held_semaphores() -> list[tuple[str, str, list[str], int]]:
    """Return the semaphores and locks that this process holds: kind, name, leases and identity.

    All objects are looked at, which takes some 10 ms for each million.
    """
    held = []
    for item in gc.get_objects():
        kind = type(item)
        if kind.__name__ in ("Lock", "Semaphore") and kind.__module__ in (
            "distributed.lock",
            "distributed.semaphore",
        ):
            leases = getattr(item, "_leases", None)
            if leases:
                held.append((kind.__name__, str(item.name), list(leases), id(item)))
    return held
