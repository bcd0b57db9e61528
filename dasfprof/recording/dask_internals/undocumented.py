"""Functions that access undocumented attributes and calls of Dask's workers and schedulers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import iscoroutinefunction
from time import time
from types import SimpleNamespace
from typing import Any

import dask
from dask.utils import parse_timedelta

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.inspection.views import primitives
from dasfprof.recording.dask_internals.patch import Entries, Patch
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.resources import MEMORY_SIZES


def use_dask_logging(level: int = logging.NOTSET) -> None:
    """Let Dask's handlers write the log records of dasfprof if there are no other handlers.

    Parameters
    ----------
    level
        Minimum level of the records. Ignored if the logger already has a level. By default,
        Python's default level applies (warnings).
    """
    ours = logging.getLogger("dasfprof")
    if not ours.hasHandlers():
        for handler in logging.getLogger("distributed").handlers:
            ours.addHandler(handler)
    if ours.level == logging.NOTSET:
        ours.setLevel(level)


def last_turn(server: Any) -> float | None:
    """Return the Unix time at which the event loop last ran, or None if Dask does not store it."""
    return getattr(server, "_last_tick", None)


def turn_interval() -> float:
    """Return the maximum seconds between updates of `last_turn` by a loop that is not blocked."""
    return float(parse_timedelta(dask.config.get("distributed.admin.tick.interval"), default="ms"))


def fingerprint(scheduler: Any) -> tuple[Any, ...]:
    """Return a value that changes with any change of tasks, workers, clients or primitives."""
    return (
        scheduler.transition_counter,
        [(worker.address, worker.status) for worker in scheduler.workers.values()],
        list(scheduler.clients),
        primitives(scheduler),
    )


def activity(worker: Any) -> tuple[Any, ...] | None:
    """Return a value that changes with a worker's tasks and data, or None while it is busy."""
    state = worker.state
    transitions = getattr(state, "transition_counter", None)
    if transitions is None or state.executing_count or getattr(worker, "active_threads", ()):
        return None
    turned = last_turn(worker)
    if turned is not None and time() - turned > 1.0 + turn_interval():  # The loop is blocked.
        return None
    if getattr(state, "long_running", ()) or getattr(worker, "transfer_outgoing_count", 0):
        return None
    sent = getattr(worker, "transfer_outgoing_count_total", 0)
    return transitions, sent, len(worker.data), worker.status


def with_correction(worker: Any) -> Any:
    """Return an object whose ``scheduler_delay`` is the worker's clock correction in seconds.

    If this version of Dask stores no correction, the attribute is 0.
    """
    return worker if hasattr(worker, "scheduler_delay") else SimpleNamespace(scheduler_delay=0.0)


def memory_sizes(worker: Any) -> dict[str, int]:
    """Return the `MEMORY_SIZES` of a worker, with 0 for a size that is not set or unknown."""
    manager = getattr(worker, "memory_manager", None)
    limit = getattr(manager, "memory_limit", None) or 0
    fractions = {name: getattr(manager, f"{name}_fraction", None) or 0 for name in MEMORY_SIZES}
    fractions["memory_limit"] = 1
    if getattr(worker, "nanny", None):  # The nanny kills the worker at a limit in the config.
        setting = "distributed.worker.memory.terminate"
        fractions["memory_terminate"] = dask.config.get(setting, 0) or 0
    return {name: int(limit * fraction) for name, fraction in fractions.items()}


def value_in_memory(data: Any, key: Any) -> Any:
    """Return the result of a task, or None if the result is not in memory."""
    # ``data[key]`` would read the result back from disk, and change the order in which results are
    # spilled.
    fast = getattr(getattr(data, "fast", data), "d", data)
    return fast.get(key) if isinstance(fast, dict) else None


def spilled_bytes(data: Any) -> int:
    """Return the bytes on disk of the results that a worker has spilled."""
    return getattr(getattr(data, "spilled_total", None), "disk", 0)


def spill_metrics(data: Any) -> dict[Any, float]:
    """Return the seconds and bytes of a worker's spilling and unspilling, by label and unit."""
    return dict(getattr(data, "cumulative_metrics", {}))


def p2p_buffers(worker: Any) -> int | None:
    """Return the bytes in the buffers of a worker's P2P shuffles, or None if unknown."""
    shuffles = getattr(worker, "plugins", {}).get("shuffle")
    limiters = [getattr(shuffles, f"memory_limiter_{name}", None) for name in ("comms", "disk")]
    sizes = [getattr(limiter, "_acquired", None) for limiter in limiters]
    known = [int(size) for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def registered_for_workers(dask_scheduler: Any) -> list[str]:
    """Return the names of the plugins for new workers, or an empty list if they are unknown."""
    return list(getattr(dask_scheduler, "worker_plugins", ()))


def forget_for_workers(plugins: list[str], dask_scheduler: Any) -> None:
    """Remove plugins from the scheduler's list of plugins for new workers."""
    registered = getattr(dask_scheduler, "worker_plugins", {})
    for name in plugins:
        registered.pop(name, None)


def error_in(response: dict[str, Any]) -> BaseException:
    """Return the exception in a response with the status ``error``, with its traceback."""
    clean = names.REMOTE_ERRORS.find("clean_exception")
    try:
        _, error, trace = clean(**response)
        return error.with_traceback(trace)
    except Exception:  # Dask lacks the function, or the function returns another form.
        return RuntimeError(str(response.get("exception_text") or response.get("exception")))


def add_routes(
    scheduler: Any, routes: list[tuple[str, type, dict[str, Any]]]
) -> Callable[[], None]:
    """Add routes before the existing routes, if the scheduler has an HTTP server.

    Return a function that removes the routes.
    """
    application = getattr(scheduler, "http_application", None)
    if application is None:
        return lambda: None
    rules = application.default_router.rules
    before = list(rules)
    application.add_handlers(".*$", routes)
    added = [rule for rule in rules if rule not in before]
    # Tornado appends new routes. Then the routes of an earlier run would answer instead.
    rules[:] = added + before

    def remove() -> None:
        for rule in added:
            rules.remove(rule)

    return remove


def observe_dropped_copies(
    scheduler: Any, observer: Callable[..., object], guard: HookGuard
) -> Callable[[], object]:
    """Call an observer each time Dask's active memory manager drops copies of results on a worker.

    The observer receives None, the worker's address and the keys (see `_observe`). Return the
    function that stops the calls.
    """
    return _observe(scheduler, "request_remove_replicas", observer, guard)


def add_handler(scheduler: Any, name: str, handler: Callable[..., Any]) -> Callable[[], object]:
    """Add a handler of requests to a scheduler, and return the function that removes it."""
    # If this version of Dask has no table of handlers, the handler is never called.
    handlers: dict[str, Any] = getattr(scheduler, "handlers", {})
    handlers[name] = handler
    return lambda: handlers.pop(name, None)


def forget_handlers() -> None:
    """Clear Dask's cache of facts about handlers, so that handlers of ended runs can be freed."""
    clear = names.HANDLER_FACTS.find("_expects_comm.cache_clear")
    if clear is not None:
        clear()


def observe_handler(
    scheduler: Any, name: str, observer: Callable[..., object], guard: HookGuard
) -> Callable[[], object]:
    """Call an observer with each answer of a handler, and return the function that stops the calls.

    The observer also receives the message, as keyword arguments.
    """
    return _observe(Entries(getattr(scheduler, "handlers", {})), name, observer, guard)


def _observe(
    owner: Any, name: str, observer: Callable[..., object], guard: HookGuard
) -> Callable[[], object]:
    """Call an observer with the result and the arguments of each call of an object's function.

    If the object has no such function, or if it is a coroutine function, the observer is never
    called. Return the function that stops the calls.
    """
    if not hasattr(owner, name) or iscoroutinefunction(getattr(owner, name)):
        return lambda: None

    def wrap(original: Any, patch: Patch) -> Any:
        def observed(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if patch.active:
                with guard.catching(name):
                    observer(result, *args, **kwargs)
            return result

        return observed

    return Patch(owner, name, wrap).remove
