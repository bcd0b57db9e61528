"""Steps for the nodes of a DASF ``Pipeline``, through the pipeline's callbacks."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from dasfprof.recording.steps.step import step

logger = logging.getLogger(__name__)


class PipelineSteps:
    """The callbacks of DASF's ``PipelinePlugin``: each node is a step with the node's name.

    Another node with the same name, a method of another object, is called ``name (2)``.
    """

    def __init__(self) -> None:
        self._open: step | None = None
        self._names: dict[Any, str] = {}

    def on_pipeline_start(self, fn_keys: Any) -> None:
        """Forget the names of nodes."""
        self._names.clear()

    def on_pipeline_end(self) -> None:
        """Leave the current step, if its end was not reported."""
        self._leave()

    def on_task_start(self, func: Any, params: Any, name: str) -> None:
        """Enter the step of a node."""
        self._leave()
        self._open = step(self._name(func, name))
        self._open.__enter__()

    def on_task_end(self, func: Any, params: Any, name: str, ret: Any) -> None:
        """Leave the step of the node."""
        self._leave()

    def on_task_error(self, func: Any, params: Any, name: str, exception: Any) -> None:
        """Leave the step of the node."""
        self._leave()

    def _leave(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None

    def _name(self, func: Any, name: str) -> str:
        try:
            if func not in self._names:
                taken, count, called = set(self._names.values()), 1, str(name)
                while called in taken:
                    count += 1
                    called = f"{name} ({count})"
                self._names[func] = called
            return self._names[func]
        except TypeError:  # a method of an object that is not hashable
            return str(name)


def watch_pipeline(pipeline: Any) -> Callable[[], None] | None:
    """Record the nodes of a DASF ``Pipeline`` as steps.

    Returns
    -------
    Callable or None
        Restores the pipeline; None if it is not a DASF pipeline.
    """
    try:
        plugin_class = _plugin_class(pipeline)
        if plugin_class is None:
            return None
        plugin = type("PipelineSteps", (PipelineSteps, plugin_class), {})()
        pipeline.register_plugin(plugin)
    except Exception:
        logger.warning("the nodes of %r are not recorded as steps", pipeline, exc_info=True)
        return None
    return lambda: _forget(pipeline, plugin)


def _plugin_class(pipeline: Any) -> Any:
    """Return DASF's class of callbacks, without importing DASF; None if there is none."""
    if not callable(getattr(pipeline, "register_plugin", None)):
        return None
    modules = [sys.modules.get(base.__module__) for base in type(pipeline).__mro__]
    classes = (getattr(module, "PipelinePlugin", None) for module in modules)
    return next((found for found in classes if isinstance(found, type)), None)


def _forget(pipeline: Any, plugin: Any) -> None:
    callbacks = getattr(pipeline, "_callbacks", None)
    if isinstance(callbacks, list) and plugin in callbacks:
        callbacks.remove(plugin)
