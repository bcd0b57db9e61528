"""Hooks that record a program's calls of Dask, with their times, lines and numbers of keys.

A call that Dask makes within another call belongs to the outer call. A call of an asynchronous
client returns before its result is known, and no thread waits. So only the time until the call
returns counts.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from dataclasses import dataclass
from time import monotonic, time
from types import FrameType
from typing import Any

import dask
from dask.sizeof import sizeof
from distributed import Client, Future, as_completed

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Hook, Patch, SharedPatches
from dasfprof.recording.guard import logging_errors
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.line import Line, current_line
from dasfprof.recording.steps.step import ClientCall

#: Threshold (seconds): shorter work outside of calls is not recorded, because looking up its line
#: would cost too much.
_BRIEF = 0.0002
#: Methods of the client that request no keys.
_KEYLESS = ("run", "run_on_scheduler", "upload_file", "publish_dataset", "unpublish_dataset")
#: Methods that fetch the results of futures.
_FETCHES = ("result", "gather")

#: The call within which a thread or coroutine runs. For asyncio tasks that were started within a
#: call, it may be a call that has ended.
_current: ContextVar[OpenCall | None] = ContextVar("dasfprof_call", default=None)
#: Identities of the calls in progress, in all threads and contexts.
opened: set[int] = set()
_MOST_TOKENS = 1000


class _Tokenizing(threading.local):
    """The seconds that a thread has spent tokenizing, and its latest tokenizations."""

    def __init__(self) -> None:
        self.seconds = 0.0
        #: Start and seconds of the latest tokenizations.
        self.latest: deque[tuple[float, float]] = deque(maxlen=_MOST_TOKENS)


_tokenizing = _Tokenizing()


@dataclass
class OpenCall(ClientCall):
    """A call from the program to Dask that has not returned yet."""

    #: Start of the call by the monotonic clock.
    began: float = 0.0
    token: Token[OpenCall | None] | None = None
    #: Whether all requested results were computed before the call, so that it waits for no task.
    computed: bool = False


def hooks() -> Iterator[Hook]:
    """Yield per hook an object, an attribute's name, and a function that wraps the attribute."""
    computing = ("compute", "persist", "submit", "map", "gather", "scatter", "cancel")
    for name in (*computing, *_KEYLESS, "rebalance", "replicate"):
        yield Client, name, _calling(name)
    yield Client, "get", _calling("compute")
    yield Future, "result", _calling("result")
    yield as_completed, "__next__", _calling("as_completed")
    yield names.WAITING.find("SyncMethodMixin"), "sync", _timing_waits
    if names.RECEIVING.exist():
        yield Client, "_gather_remote", _timing_results
    yield sys.modules.get("dask.tokenize"), "_tokenize", _timing_tokens


#: Hooks of `dask.compute` and `dask.persist`, for programs without a cluster.
of_dask = SharedPatches(
    lambda: [
        (owner, name, _calling(name))
        for owner in (importlib.import_module("dask.base"), dask)
        for name in ("compute", "persist")
    ]
)


def waited(began: float, seconds: float, keys: int) -> None:
    """Record that this thread waited for a computation of one of Dask's local schedulers."""
    call: ClientCall | None = _open_call()
    if call is None:
        call = ClientCall("compute", current_line(), began, _is_main(), seconds=seconds)
        _report(call)
    call.waiting += seconds
    call.keys += keys


def clock() -> float:
    """Return the time in seconds on a clock that stops while this thread tokenizes."""
    return monotonic() - _tokenizing.seconds


def spent(part: str, seconds: float, keys: int = 0, sent: int = 0) -> None:
    """Add seconds, keys and sent bytes to this thread's current call of Dask.

    `part` is the field of `ClientCall` to which the seconds are added.
    """
    call: ClientCall | None = _open_call()
    if call is None:
        # Longer times of the main thread outside of calls are recorded as separate calls.
        if seconds < _BRIEF or not _is_main():
            return
        call = ClientCall(part, current_line(), time() - seconds, seconds=seconds)
        _report(call)
    setattr(call, part, getattr(call, part) + seconds)
    call.keys += keys
    call.sent += sent


def _calling(name: str) -> Callable[[Any, Patch], Any]:
    def wrap(original: Any, patch: Patch) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            opened = _begin(name) if patch.active else None
            if opened is None:
                return original(*args, **kwargs)
            opened.computed = name in _FETCHES and _are_computed(args)
            result = None
            try:
                result = original(*args, **kwargs)
                return result
            finally:
                _end(opened, args[1:], kwargs, result)

        return call

    return wrap


def _begin(name: str) -> OpenCall | None:
    """Start recording a call, or return None if the call is part of another call."""
    with logging_errors("a call"):
        if _open_call() is not None:
            return None
        call = OpenCall(name, current_line(), 0.0, _is_main(), is_open=True)
        call.token = _current.set(call)
        opened.add(id(call))
        # The monotonic clock is read first. Otherwise, events within a call might seem to be after
        # its end.
        call.began, call.start = monotonic(), time()
        return call
    return None


def _end(call: OpenCall, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """End a call and report it to the observers."""
    with logging_errors("a call"):
        call.seconds = monotonic() - call.began
        call.is_open = False
        opened.discard(id(call))
        if call.token is not None:
            _current.reset(call.token)
        if call.name == "as_completed":
            call.waiting, call.keys = call.seconds, int(result is not None)
        elif not call.keys and call.name not in _KEYLESS:
            keys = args[0] if args else next(iter(kwargs.values()), None)
            call.keys = len(keys) if isinstance(keys, list | tuple | set | dict) else 1
        if call.computed:
            call.receiving = max(call.receiving, call.waiting)
        call.waiting = max(call.waiting - call.receiving, 0.0)
        if call.receiving:
            call.received = sizeof(result)
        if call.name == "scatter":
            call.sent = sizeof(args[0] if args else kwargs.get("data"))
        _report(call)


def _are_computed(args: tuple[Any, ...]) -> bool:
    """Return whether a call requests only futures with results that are already computed."""
    with logging_errors("the futures of a call"):
        requested = args[1] if isinstance(args[0], Client) else args[0]
        futures = requested if isinstance(requested, list | tuple | set) else (requested,)
        return all(isinstance(item, Future) and item.status == "finished" for item in futures)
    return False


def _report(call: ClientCall) -> None:
    for observer in steps.observers:
        observer.called(call)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _open_call() -> OpenCall | None:
    """Return the call of Dask that this thread or coroutine is in, or None."""
    call = _current.get()
    return call if call is not None and call.is_open else None


def line() -> Line | None:
    """Return the line of the user's code that made this thread's current call of Dask.

    Outside of calls, this is the current line.
    """
    call = _open_call()
    return current_line() if call is None else call.line


def is_open(name: str = "") -> bool:
    """Return whether this thread is in a call. If `name` is given, the call must have this name."""
    call = _open_call()
    return call is not None and name in ("", call.name)


def _timing_waits(original: Any, patch: Patch) -> Any:
    """Return a wrapper that measures how long a thread waits for the event loop."""

    def sync(*args: Any, **kwargs: Any) -> Any:
        if not patch.active:
            return original(*args, **kwargs)
        call, opened = _open_call(), None
        if call is None:
            if getattr(next(iter(args[1:]), None), "__name__", "") != "_wait":
                return original(*args, **kwargs)
            call = opened = _begin("wait")
        began = monotonic()
        try:
            return original(*args, **kwargs)
        finally:
            if call is not None:
                call.waiting += monotonic() - began
            if opened is not None:
                _end(opened, args[2:], {}, None)

    return sync


def _timing_results(original: Any, patch: Patch) -> Any:
    """Return a wrapper that measures, for the current call, the seconds until results arrive."""
    meter = names.RECEIVING.find("context_meter")

    async def _gather_remote(*args: Any, **kwargs: Any) -> Any:
        call = _current.get()
        if call is None or not patch.active:
            return await original(*args, **kwargs)

        def count(label: Any, value: float, unit: str) -> None:
            if label == "deserialize" and unit == "seconds":
                call.deserialising += value

        began = monotonic()
        try:
            with meter.add_callback(count):
                return await original(*args, **kwargs)
        finally:
            call.receiving += monotonic() - began

    return _gather_remote


def _timing_tokens(original: Any, patch: Patch) -> Any:
    """Return a wrapper that measures the time of a tokenization, including nested tokenizations."""

    def _tokenize(*args: Any, **kwargs: Any) -> Any:
        began = now()
        try:
            return original(*args, **kwargs)
        finally:
            seconds = now() - began
            # Building a delayed function takes only about 30 µs, including a tokenization for its
            # name. So short tokenizations outside of calls are not recorded.
            if (seconds >= _BRIEF or calls) and patch.active:
                _note_token(began, seconds)

    now, calls = monotonic, opened
    return _tokenize


def _note_token(began: float, seconds: float) -> None:
    """Record the time of a tokenization.

    Its nested tokenizations were recorded before, so their time is not counted again.
    """
    with logging_errors("a tokenization"):
        within, latest = 0.0, _tokenizing.latest
        while latest and latest[-1][0] >= began:
            within += latest.pop()[1]
        latest.append((began, seconds))
        _tokenizing.seconds += seconds - within
        spent("tokenising", seconds - within)


#: Phases of a client's program: by module and function of Dask, and by the start of a module's
#: name.
_FUNCTIONS = {
    ("distributed.utils", "sync"): "waiting",
    ("distributed.utils", "wait"): "waiting",  # Called within sync.
    ("distributed.client", "__next__"): "waiting",  # The method of as_completed.
    ("distributed.protocol.pickle", "dumps"): "pickling",
    ("distributed.client", "_graph_to_futures"): "sending",
}
_MODULES = (
    ("cloudpickle", "pickling"),
    ("dask.tokenize", "hashing"),
    ("dask.optimization", "optimising"),
    ("dask.array.optimization", "optimising"),
    ("dask.dataframe.optimize", "optimising"),
    # These are Dask's local schedulers, which run in the thread that computes.
    ("dask.local", "waiting"),
    ("dask.threaded", "waiting"),
    ("dask.multiprocessing", "waiting"),
)
#: Starts of the names of functions that optimize, in any module of Dask.
_OPTIMISING = ("optimize", "simplify", "lower_", "fuse")

PROGRAM, BUILDING = "program", "building"


def phase(frames: list[FrameType]) -> str:
    """Return the phase of a program (see `CLIENT_SAMPLE`), from the innermost frame of Dask."""
    for frame in reversed(frames):
        module, function = frame.f_globals.get("__name__"), frame.f_code.co_name
        if not isinstance(module, str):
            continue
        if (module, function) in _FUNCTIONS:
            return _FUNCTIONS[module, function]
        for start, name in _MODULES:
            if module.startswith(start):
                return name
        if module.partition(".")[0] in ("dask", "distributed"):
            return "optimising" if function.startswith(_OPTIMISING) else BUILDING
    return PROGRAM
