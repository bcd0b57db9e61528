"""`step`: a stage of the user's pipeline, a level above functions.

The step of a thread or coroutine is a context variable, so that two of them can be in different
steps at a time. Without a run that is being recorded by this process, nothing but that variable is
set. With one, `dasfprof.recording.dask_internals.graphs` watches which layers of graphs the
program builds in a step, and in which it hands a graph to the cluster; a `StepRecorder` writes
down the first, and the graph carries the second to the scheduler, as an annotation.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from time import time
from typing import Any, Protocol, TypeVar

logger = logging.getLogger(__name__)

#: Longer names are cut: each task of a graph may carry them.
_LONGEST_NAME = 200

Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class OpenStep:
    """One time that a step was entered."""

    #: Told apart from those of other processes.
    id: int
    #: Of all steps around it, the outermost first, and its own.
    names: tuple[str, ...]
    parent: OpenStep | None
    #: Unix seconds.
    began: float
    #: The `step` that was entered.
    owner: object


class StepObserver(Protocol):
    """What is told of steps: a `StepRecorder`."""

    def began(self, opened: OpenStep) -> None:
        """Note that a step was entered."""

    def ended(self, opened: OpenStep) -> None:
        """Note that a step was left."""

    def built(self, opened: OpenStep, layer: str) -> None:
        """Note that a layer of a graph was built in a step."""

    def derived(self, layer: str, dependencies: list[str]) -> None:
        """Note that a layer was built in no step, on others that come of one."""


_current: ContextVar[OpenStep | None] = ContextVar("dasfprof_step", default=None)
_ids = itertools.count(int.from_bytes(os.urandom(6), "big") << 14)

#: Who is told; replaced as a whole, so that threads can go through it at any time.
observers: tuple[StepObserver, ...] = ()


class step:  # noqa: N801  (a context manager, used like a function)
    """Say that what a block of the program builds and computes is one step of the pipeline.

    Parameters
    ----------
    name
        What to call the step. Entered again, it is the same step; entered in another step, it is
        a part of that: ``outer/inner``.

    Notes
    -----
    Tasks belong to the step in which their layer of the graph, or their part of a dataframe, was
    built, wherever that is computed; where Dask fused several, to that of the last. Tasks of which
    this is not known, futures among them, belong to the step in which their graph was handed to
    the cluster. What was built in several steps belongs to the one that computes it, if it is one
    of them, else to the last. As with `dask.annotate`, threads that are started in a step are in
    none.

    It records where the profiler was registered by this process, and does nothing elsewhere. It
    also decorates functions, coroutines too.

    Examples
    --------
    >>> with dasfprof.step("normalise"):  # doctest: +SKIP
    ...     normal = (array - array.mean()) / array.std()

    >>> @dasfprof.step("load")  # doctest: +SKIP
    ... def load(path): ...
    """

    def __init__(self, name: str) -> None:
        self._name = _clean(name)

    def __enter__(self) -> step:
        try:
            parent = _current.get()
            names = (*(parent.names if parent else ()), self._name)
            opened = OpenStep(next(_ids), names, parent, time(), self)
            _current.set(opened)
            for observer in observers:
                observer.began(opened)
        except Exception:
            logger.debug("a step could not be entered", exc_info=True)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            opened = _current.get()
            while opened is not None and opened.owner is not self:
                opened = opened.parent  # steps inside of it that were not left
            if opened is not None:  # None: it was entered in another context
                _current.set(opened.parent)
                for observer in observers:
                    observer.ended(opened)
        except Exception:
            logger.debug("a step could not be left", exc_info=True)

    def __call__(self, function: Wrapped) -> Wrapped:
        """Make each call of a function a step."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def in_step(*args: Any, **kwargs: Any) -> Any:
                with step(self._name):
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def in_step(*args: Any, **kwargs: Any) -> Any:
                with step(self._name):
                    return function(*args, **kwargs)

        return in_step  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"step({self._name!r})"


def current_step() -> OpenStep | None:
    """Give the innermost step that this thread or coroutine is in."""
    return _current.get()


def add_observer(observer: StepObserver) -> None:
    """Tell an observer of steps from now on; it may hear of the end of one that it never met."""
    global observers  # noqa: PLW0603
    observers = (*observers, observer)


def remove_observer(observer: StepObserver) -> None:
    """Tell an observer no more."""
    global observers  # noqa: PLW0603
    observers = tuple(other for other in observers if other is not observer)


def _clean(name: Any) -> str:
    """Make any name one that messages between Dask's processes can carry."""
    try:
        text = str(name)[:_LONGEST_NAME]
    except Exception:
        text = type(name).__name__
    return text.encode("utf-8", "replace").decode()
