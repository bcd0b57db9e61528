"""What a thread waits for in one of Dask's calls, found in its frames.

Local variables are read of frames of distributed alone. Before Python 3.13, reading those of a
user's frame would keep its objects alive and could overwrite its variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

#: The most keys of futures that are returned.
MOST_KEYS = 100

#: By module and function of distributed: the call's name, and the local variable with the object
#: (the primitive, or the futures).
CALLS = {
    ("distributed.lock", "acquire"): ("Lock", "self"),
    ("distributed.semaphore", "acquire"): ("Semaphore", "self"),
    ("distributed.semaphore", "_acquire"): ("Semaphore", "self"),
    ("distributed.multi_lock", "acquire"): ("MultiLock", "self"),
    ("distributed.event", "wait"): ("Event", "self"),
    ("distributed.queues", "get"): ("Queue.get", "self"),
    ("distributed.queues", "put"): ("Queue.put", "self"),
    ("distributed.variable", "get"): ("Variable", "self"),
    ("distributed.client", "gather"): ("gather", "futures"),
    ("distributed.client", "_gather"): ("gather", "futures"),
    ("distributed.client", "result"): ("result", "self"),
    ("distributed.client", "_result"): ("result", "self"),
    ("distributed.client", "exception"): ("result", "self"),
    ("distributed.client", "wait"): ("wait", "fs"),
    ("distributed.client", "_wait"): ("wait", "fs"),
    ("distributed.client", "__next__"): ("as_completed", "self"),
    ("distributed.actor", "result"): ("actor call", "self"),
}

#: What a coroutine asks the scheduler for, and the call that this is.
REQUESTS = {
    "semaphore_acquire": "Semaphore",
    "multi_lock_acquire": "MultiLock",
    "event_wait": "Event",
    "queue_get": "Queue.get",
    "queue_put": "Queue.put",
    "variable_get": "Variable",
}

#: The call, the name of what it waits for, and the keys of the futures that it waits for.
Wait = tuple[str, Any, list[Any]]


def wait_in(frames: list[FrameType]) -> Wait | None:
    """Return what a thread waits for in the first of its frames, from the outermost, that tells it.

    None if it is in no such call.
    """
    for frame in frames:
        module = frame.f_globals.get("__name__")
        if not isinstance(module, str) or not module.startswith("distributed."):
            continue
        if frame.f_code.co_name == "send_recv_from_rpc":
            request = _request(frame.f_locals)
            if request is not None:
                return request
        call = CALLS.get((module, frame.f_code.co_name))
        if call is None:
            continue
        kind, variable = call
        subject = frame.f_locals.get(variable)
        if kind == "Semaphore" and type(subject).__name__ == "Lock":
            kind = "Lock"
        try:
            return kind, _name(subject), _keys(subject)
        except Exception:  # it is of a class that the user derived from Dask's
            return kind, None, []
    return None


def _request(variables: Mapping[str, Any]) -> Wait | None:
    kind = REQUESTS.get(str(variables.get("key")))
    if kind is None:
        return None
    asked = variables.get("kwargs") or {}
    name = asked.get("name", asked.get("locks"))
    return kind, [str(one) for one in name] if isinstance(name, list) else str(name), []


def _name(subject: Any) -> Any:
    """Return the name of a primitive; None for futures."""
    names = getattr(subject, "names", None)
    if isinstance(names, list | tuple | set):  # of a MultiLock
        return [str(name) for name in names]
    name = getattr(subject, "name", None)
    return None if name is None or callable(name) else str(name)


def _keys(subject: Any) -> list[Any]:
    """Return keys of the futures in an object: a future, those of `as_completed`, collections."""
    keys: list[Any] = []
    pending: list[Any] = [subject]
    seen = 0
    while pending and len(keys) < MOST_KEYS and seen < 10 * MOST_KEYS:
        item = pending.pop()
        seen += 1
        kind = type(item)  # not isinstance: an object of the user's may say that it is another
        if kind is dict:
            pending += list(item)[:MOST_KEYS] + list(item.values())[:MOST_KEYS]
        elif kind in (list, tuple, set, frozenset):
            pending += _first(item)
        elif str(kind.__module__).startswith("distributed."):
            if kind.__name__ == "as_completed":
                pending += _first(getattr(item, "futures", ()))
            elif hasattr(item, "key"):
                keys.append(item.key)
    return keys


def _first(items: Iterable[Any]) -> list[Any]:
    return list(items)[:MOST_KEYS]
