"""Hooks that time what a client's program does to send a graph: optimising it, and pickling it."""

from __future__ import annotations

import logging
import threading
from time import monotonic, time
from typing import Any

from distributed import Client

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.steps import step as steps

logger = logging.getLogger(__name__)

#: Of this thread: whether it optimises, and the seconds of that since its last graph, if it did.
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
        _own.inside, begin = True, monotonic()
        try:
            return original(*args, **kwargs)
        finally:
            _own.inside = False
            _own.optimising = (getattr(_own, "optimising", None) or 0.0) + monotonic() - begin

    return optimize


def _timing_submission(original: Any, patch: Patch) -> Any:
    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        if not patch.active:
            return original(*args, **kwargs)
        start = time()
        futures = original(*args, **kwargs)
        try:
            optimising = getattr(_own, "optimising", None)
            if optimising is None and _would_have_seen_it():
                optimising = 0.0
            _own.optimising = None
            for observer in steps.observers:
                observer.submitted(str(args[0].id), start, optimising)
        except Exception:
            logger.debug("the sending of a graph could not be noted", exc_info=True)
        return futures

    return _graph_to_futures


def _would_have_seen_it() -> bool:
    """Return whether all is timed that optimises: dataframes may have been imported since."""
    classes = names.OPTIMISING.find("Expr"), names.FRAMES.find("Expr")
    timed = {owner for owner, _ in _timed}
    return classes[0] in timed and classes[1] in {None, *timed}
