"""Attributes and calls of workers and schedulers that Dask does not document, a few lines each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import iscoroutinefunction
from time import time
from typing import Any

import dask
from dask.utils import parse_timedelta

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.inspection.views import primitives
from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.resources import MEMORY_SIZES

# --- Where Dask's records of logs go -------------------------------------------------------------


def use_dask_logging(level: int = logging.NOTSET) -> None:
    """Write records of dasfprof as Dask writes its own, where nothing else writes them.

    Parameters
    ----------
    level
        The least level of records, where none is set; default: that of Python, warnings.
    """
    ours = logging.getLogger("dasfprof")
    if not ours.hasHandlers():
        for handler in logging.getLogger("distributed").handlers:
            ours.addHandler(handler)
    if ours.level == logging.NOTSET:
        ours.setLevel(level)


# --- When the event loop of a worker or scheduler last turned, by Dask's own clock of it ----------


def last_turn(server: Any) -> float | None:
    """Return when the loop last turned, Unix seconds; None if this Dask does not tell."""
    return getattr(server, "_last_tick", None)


def turn_interval() -> float:
    """Return after how many seconds at most a loop that is free has turned again."""
    return float(parse_timedelta(dask.config.get("distributed.admin.tick.interval"), default="ms"))


# --- Whether anything that a scheduler has under way has changed: a cheap look --------------------


def fingerprint(scheduler: Any) -> tuple[Any, ...]:
    """Return what is another after each change of tasks, workers, clients and primitives."""
    return (
        getattr(scheduler, "transition_counter", None),
        [(worker.address, worker.status) for worker in scheduler.workers.values()],
        list(scheduler.clients),
        primitives(scheduler),
    )


def activity(worker: Any) -> tuple[Any, ...] | None:
    """Return what is another after each change of a worker's tasks and data; None: it is busy."""
    state = worker.state
    transitions = getattr(state, "transition_counter", None)
    if transitions is None or state.executing_count or getattr(worker, "active_threads", ()):
        return None
    turned = last_turn(worker)
    if turned is not None and time() - turned > 1.0 + turn_interval():  # its loop is blocked
        return None
    if getattr(state, "long_running", ()) or getattr(worker, "transfer_outgoing_count", 0):
        return None
    sent = getattr(worker, "transfer_outgoing_count_total", 0)
    return transitions, sent, len(worker.data), worker.status


# --- Undocumented attributes of a worker ----------------------------------------------------------


class _NoCorrection:
    """A worker of a Dask without `scheduler_delay`, with a correction of 0."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.scheduler_delay = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)


def with_correction(worker: Any) -> Any:
    """Return the worker, or a proxy with a correction of 0 if this Dask has no correction."""
    return worker if hasattr(worker, "scheduler_delay") else _NoCorrection(worker)


def memory_sizes(worker: Any) -> dict[str, int]:
    """Return the `MEMORY_SIZES` of a worker; 0 where there is none or it is unknown."""
    manager = getattr(worker, "memory_manager", None)
    limit = getattr(manager, "memory_limit", None) or 0
    shares = {name: getattr(manager, f"{name}_fraction", None) or 0 for name in MEMORY_SIZES}
    if getattr(worker, "nanny", None):  # which kills it, by the config that it gave to the worker
        shares["memory_terminate"] = dask.config.get("distributed.worker.memory.terminate", 0) or 0
    return {name: int(limit * share) for name, share in {**shares, "memory_limit": 1}.items()}


def value_in_memory(data: Any, key: Any) -> Any:
    """Return a result that is in memory; None for others.

    ``data[key]`` would read it back from disk and change the order in which results are spilled.
    """
    fast = getattr(getattr(data, "fast", data), "d", data)
    return fast.get(key) if isinstance(fast, dict) else None


def spilled_bytes(data: Any) -> int:
    """Return how many bytes of a worker's results are on its disk."""
    total = getattr(data, "spilled_total", None)
    return getattr(total, "disk", 0)


def spill_metrics(data: Any) -> dict[Any, float]:
    """Return seconds and bytes that a worker wrote to and read from its disk."""
    return dict(getattr(data, "cumulative_metrics", {}))


def p2p_buffers(worker: Any) -> int | None:
    """Return the bytes in the buffers of a worker's P2P shuffles; None if this Dask has others."""
    shuffles = getattr(worker, "plugins", {}).get("shuffle")
    limiters = [getattr(shuffles, f"memory_limiter_{name}", None) for name in ("comms", "disk")]
    sizes = [getattr(limiter, "_acquired", None) for limiter in limiters]
    told = [int(size) for size in sizes if size is not None]
    return sum(told) if len(told) == len(sizes) else None


# --- The plugins that a scheduler gives to each worker that joins ---------------------------------


def registered_for_workers(dask_scheduler: Any) -> list[str] | None:
    """Return the names of the plugins; None if this Dask has no list of them."""
    plugins = getattr(dask_scheduler, "worker_plugins", None)
    return None if plugins is None else list(plugins)


def forget_for_workers(plugins: list[str], dask_scheduler: Any) -> None:
    """Remove plugins from those that new workers get."""
    registered = getattr(dask_scheduler, "worker_plugins", {})
    for name in plugins:
        registered.pop(name, None)


# --- Exceptions of functions in other processes, as Dask sends them -------------------------------


def error_in(response: dict[str, Any]) -> BaseException:
    """Return the exception of a response whose status is ``error``, with its traceback."""
    clean = names.REMOTE_ERRORS.find("clean_exception")
    try:
        _, error, trace = clean(**response)
        return error.with_traceback(trace)
    except Exception:  # the name is missing, or its result has another form
        return RuntimeError(str(response.get("exception_text") or response.get("exception")))


# --- Routes on the HTTP server of a scheduler that runs -------------------------------------------


def add_routes(
    scheduler: Any, routes: list[tuple[str, type, dict[str, Any]]]
) -> Callable[[], None]:
    """Add routes before those that are there; none if the scheduler has no HTTP server.

    Returns
    -------
    callable
        Takes them off again.
    """
    application = getattr(scheduler, "http_application", None)
    if application is None:
        return lambda: None
    rules = application.default_router.rules
    before = list(rules)
    application.add_handlers(".*$", routes)
    added = [rule for rule in rules if rule not in before]
    # Tornado puts them behind those of an earlier run, which would answer in their place.
    rules[:] = added + before

    def remove() -> None:
        for rule in added:
            rules.remove(rule)

    return remove


def individual_plots() -> type | None:
    """Return the handler that lists the dashboard's plots; None if this Dask has none."""
    return names.PLOTS.find("IndividualPlots")


# --- Copies of results that a scheduler asks workers to drop, as the active memory manager does ---


def observe_dropped_copies(
    scheduler: Any, observer: Callable[[str, list[Any]], object], guard: HookGuard
) -> Callable[[], object]:
    """Call an observer with a worker's address and keys; return how that ends.

    Where this Dask drops copies by other means, nothing is observed.
    """
    if not hasattr(scheduler, "request_remove_replicas"):
        return lambda: None

    def wrap(original: Any, patch: Patch) -> Any:
        def requested(*args: Any, **kwargs: Any) -> Any:
            if patch.active:
                try:
                    observer(args[0], list(args[1]))
                except Exception:
                    guard.caught("copies that are dropped")
            return original(*args, **kwargs)

        return requested

    return Patch(scheduler, "request_remove_replicas", wrap).remove


# --- Calls that a scheduler answers, beside Dask's own --------------------------------------------


def add_handler(scheduler: Any, name: str, handler: Callable[..., Any]) -> Callable[[], object]:
    """Let a scheduler answer calls of a name; return how that ends.

    Without Dask's table of calls nothing is answered.
    """
    handlers: dict[str, Any] = getattr(scheduler, "handlers", {})
    handlers[name] = handler
    return lambda: handlers.pop(name, None)


def observe_handler(
    scheduler: Any, name: str, observer: Callable[[Any], object], guard: HookGuard
) -> Callable[[], object]:
    """Call an observer with each answer of a scheduler to calls of a name; return how that ends.

    Without such a call, or where it is a coroutine's, nothing is observed.
    """
    handlers: dict[str, Any] = getattr(scheduler, "handlers", {})
    original = handlers.get(name)
    if original is None or iscoroutinefunction(original):
        return lambda: None

    def observed(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        try:
            observer(answer)
        except Exception:
            guard.caught(f"the answer to {name}")
        return answer

    handlers[name] = observed

    def end() -> None:
        if handlers.get(name) is observed:
            handlers[name] = original

    return end
