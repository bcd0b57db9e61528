"""`step`: marks a stage of the user's pipeline. A stage comprises the calls of many functions.

The current step is stored in a context variable, so that threads and coroutines can be in different
steps at the same time. If this process records no run, a step has no other effect. If it records a
run, `dasfprof.recording.dask_internals.graphs` determines which layers of graphs the program builds
in a step, and a `StepRecorder` records these layers. Each graph that is sent to the cluster is
annotated with the current step. The scheduler records this annotation.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import dataclass
from time import time
from types import FunctionType
from typing import Any, TypeVar

from dasfprof.recording.guard import logging_errors
from dasfprof.recording.steps.line import Line

#: Maximum length of a step's name. Longer names are cut, because every task of a graph may carry
#: the name.
_LONGEST_NAME = 200

Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class OpenStep:
    """A step that the program has entered."""

    #: Unique among the steps of all processes.
    id: int
    #: Names of the enclosing steps, outermost first, and of this step as the last.
    names: tuple[str, ...]
    parent: OpenStep | None
    #: Time when the step was entered, in Unix seconds.
    began: float
    #: The `step` object that was entered.
    owner: object


@dataclass(frozen=True)
class SentValue:
    """A large object that is embedded in a graph. See `SENT_VALUE` in the schema."""

    kind: str
    name: str
    size: int
    #: Seconds that it takes to pickle the object once.
    seconds: float
    tasks: int
    why: str
    held: str


@dataclass(frozen=True)
class Submission:
    """A graph that a client has sent."""

    #: The client's id.
    client: str
    #: Time when the client began to pickle the graph.
    start: float
    #: Seconds for which the client's thread optimized collections since it sent the previous graph,
    #: or None if unknown.
    optimising: float | None
    #: Size of the pickled graph in bytes, or None if unknown.
    size: int | None
    #: Those functions in the graph that were pickled by value.
    functions: list[FunctionType]
    #: The line that sent the graph, or None if unknown.
    line: Line | None = None
    values: Sequence[SentValue] = ()


@dataclass
class ClientCall:
    """A call from the program to Dask, or work of Dask outside of such calls.

    See `CLIENT_CALLS` in the schema.
    """

    name: str
    line: Line | None
    #: Unix seconds.
    start: float
    is_main: bool = True
    is_open: bool = False
    seconds: float = 0.0
    waiting: float = 0.0
    receiving: float = 0.0
    deserialising: float = 0.0
    tokenising: float = 0.0
    optimising: float = 0.0
    pickling: float = 0.0
    keys: int = 0
    received: int = 0
    sent: int = 0


_current: ContextVar[OpenStep | None] = ContextVar("dasfprof_step", default=None)
_ids = itertools.count(int.from_bytes(os.urandom(6), "big") << 14)

#: The active recorders of this process, which are notified of steps. Changes replace the tuple, so
#: that other threads can iterate over it.
observers: tuple[Any, ...] = ()


class step(ContextDecorator):  # noqa: N801  (a context manager, used like a function)
    """Mark what a block of the program builds and computes as a step of the pipeline.

    Parameters
    ----------
    name
        The name of the step. Blocks with the same name belong to the same step. A step inside
        another step is a part of the outer step, and is shown as ``outer/inner``.

    Notes
    -----
    A task belongs to the step in which the program built its layer of the graph, or its partition
    of a dataframe. It does not matter in which step the program computes the layer. If Dask fuses
    several layers, the step of the last layer counts. If the layer of a task is unknown, as with
    futures, the task belongs to the step in which its graph was sent to the cluster. A layer may be
    built in several steps. If one of these steps also computes the layer, the layer belongs to this
    step. Otherwise, it belongs to the last of these steps. As with `dask.annotate`, a thread that
    is started inside a step does not belong to this step.

    Steps are recorded if this process registered the profiler. Otherwise, they have no effect. A
    step can also decorate functions and coroutine functions.

    Examples
    --------
    >>> with dasfprof.step("normalise"):  # doctest: +SKIP
    ...     normal = (array - array.mean()) / array.std()

    >>> @dasfprof.step("load")  # doctest: +SKIP
    ... def load(path): ...
    """

    def __init__(self, name: str) -> None:
        try:
            text = str(name)[:_LONGEST_NAME]
        except Exception:
            text = type(name).__name__
        # Dask cannot send all texts between processes.
        self._name = text.encode("utf-8", "replace").decode()

    def __enter__(self) -> step:
        with logging_errors("a step"):
            parent = _current.get()
            names = (*(parent.names if parent else ()), self._name)
            opened = OpenStep(next(_ids), names, parent, time(), self)
            _current.set(opened)
            for observer in observers:
                observer.began(opened)
        return self

    def __exit__(self, *_: object) -> None:
        with logging_errors("the end of a step"):
            opened = _current.get()
            while opened is not None and opened.owner is not self:
                opened = opened.parent  # The inner step was not left.
            if opened is not None:  # None if the step was entered in another context.
                _current.set(opened.parent)
                for observer in observers:
                    observer.ended(opened)

    def __call__(self, function: Wrapped) -> Wrapped:
        """Return a function that enters the step for the duration of each call of `function`."""
        if not inspect.iscoroutinefunction(function):
            return super().__call__(function)

        @functools.wraps(function)
        async def in_step(*args: Any, **kwargs: Any) -> Any:
            with step(self._name):
                return await function(*args, **kwargs)

        return in_step  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"step({self._name!r})"


#: Function that returns the innermost step that this thread or coroutine is in, or None.
current_step: Callable[[], OpenStep | None] = _current.get


def add_observer(observer: Any) -> None:
    """Notify an observer of each step that is entered or left from now on."""
    global observers  # noqa: PLW0603
    observers = (*observers, observer)


def remove_observer(observer: Any) -> None:
    """Stop notifying an observer of steps."""
    global observers  # noqa: PLW0603
    observers = tuple(other for other in observers if other is not observer)
