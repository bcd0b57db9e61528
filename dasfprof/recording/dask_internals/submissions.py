"""Hooks around what a client's program does to send a graph: optimising it, and pickling it."""

from __future__ import annotations

import logging
import threading
from time import monotonic, time
from types import FunctionType
from typing import Any

from distributed import Client

from dasfprof.recording.dask_internals import client_calls, names
from dasfprof.recording.dask_internals.graph_values import LEAST, large_values
from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.step import SentValue, Submission

logger = logging.getLogger(__name__)

#: Of this thread: whether it optimises, the seconds of that since its last graph, if it did, and
#: the functions that it has pickled by value for the graph that it sends.
_own = threading.local()
#: What is wrapped.
_timed: set[tuple[Any, str]] = set()


def place_timers() -> list[Patch]:
    """Wrap what sends graphs, and what optimises them where Dask has that; each once."""
    patches = []
    for owner, name, wrap in (
        (Client, "_graph_to_futures", _timing_submission),
        (names.OPTIMISING.find("Expr"), "optimize", _timing_optimisation),
        (names.FRAMES.find("Expr"), "optimize", _timing_optimisation),
        (Client, "_send_to_scheduler", _noting_size),
        (names.FUNCTIONS_SENT.find("Pickler"), "_dynamic_function_reduce", _noting_functions),
    ):
        if owner is not None and (owner, name) not in _timed and name in vars(owner):
            _timed.add((owner, name))
            patches.append(Patch(owner, name, wrap))
    return patches


def forget_timers() -> None:
    """Forget what was wrapped, after all wrappers were taken off."""
    _timed.clear()


def _timing_optimisation(original: Any, patch: Patch) -> Any:
    def optimize(*args: Any, **kwargs: Any) -> Any:
        if getattr(_own, "inside", False) or not patch.active:
            return original(*args, **kwargs)
        _own.inside, begin, alone = True, monotonic(), client_calls.clock()
        try:
            return original(*args, **kwargs)
        finally:
            _own.inside = False
            _own.optimising = (getattr(_own, "optimising", None) or 0.0) + monotonic() - begin
            try:
                client_calls.spent("optimising", client_calls.clock() - alone)
            except Exception:
                logger.debug("an optimisation could not be noted", exc_info=True)

    return optimize


def _timing_submission(original: Any, patch: Patch) -> Any:
    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        if not patch.active:
            return original(*args, **kwargs)
        start, begin = time(), client_calls.clock()
        functions: list[FunctionType] = []
        _own.functions, _own.size = functions, None
        try:
            futures = original(*args, **kwargs)
        finally:
            _own.functions = None
        try:
            optimising = getattr(_own, "optimising", None)
            if optimising is None and _would_have_seen_it():
                optimising = 0.0
            _own.optimising = None
            seconds, size = client_calls.clock() - begin, _own.size
            client_calls.spent("pickling", seconds, keys=len(futures), sent=size or 0)
            values: tuple[SentValue, ...] = ()
            if size is not None and size >= LEAST:
                graph = (*args[1:], *kwargs.values())[0]
                values = tuple(large_values(graph, functions, len(futures), size, seconds))
            line = client_calls.line()
            client = str(args[0].id)
            sent = Submission(client, start, optimising, size, functions, line, values)
            for observer in steps.observers:
                observer.submitted(sent)
        except Exception:
            logger.debug("the sending of a graph could not be noted", exc_info=True)
        return futures

    return _graph_to_futures


def _noting_size(original: Any, patch: Patch) -> Any:
    def _send_to_scheduler(*args: Any, **kwargs: Any) -> Any:
        try:
            message = args[1] if patch.active and len(args) > 1 else None
            if type(message) is dict and message.get("op") == "update-graph":
                _own.size = _size_of(message)
        except Exception:
            logger.debug("the size of a graph could not be noted", exc_info=True)
        return original(*args, **kwargs)

    return _send_to_scheduler


def _size_of(message: dict[str, Any]) -> int | None:
    """Return the bytes of a graph that is sent; older versions of Dask have its frames apart."""
    frames = getattr(message.get("expr_ser"), "frames", message.get("graph_frames"))
    return None if frames is None else sum(memoryview(frame).nbytes for frame in frames)


def _noting_functions(original: Any, patch: Patch) -> Any:
    def _dynamic_function_reduce(*args: Any, **kwargs: Any) -> Any:
        functions = getattr(_own, "functions", None)
        if functions is not None:
            functions += [one for one in args if type(one) is FunctionType]
        return original(*args, **kwargs)

    return _dynamic_function_reduce


def _would_have_seen_it() -> bool:
    """Return whether all is timed that optimises: dataframes may have been imported since."""
    classes = names.OPTIMISING.find("Expr"), names.FRAMES.find("Expr")
    timed = {owner for owner, _ in _timed}
    return classes[0] in timed and classes[1] in {None, *timed}
