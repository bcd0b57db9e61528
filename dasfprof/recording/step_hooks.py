"""Watches, while a run is recorded, which graphs the program builds and computes in its steps.

Annotations would not do: Dask loses those of layers as it optimises arrays, bags and dataframes,
does not fuse layers whose annotations differ, and warns of them on dataframes. So layers are noted
by name as they are built, in the steps that `dasfprof.recording.steps` knows, and only a graph
that is handed to the cluster is annotated, with one tuple: `ANNOTATION`.

Nothing here stays: `remove_hooks` puts back what `place_hooks` replaced.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import dask
from dask.highlevelgraph import HighLevelGraph
from distributed import Client

from dasfprof.recording import steps
from dasfprof.recording.step_frames import FrameSteps, unwrapped
from dasfprof.recording.steps import OpenStep
from dasfprof.schema.steps import ANNOTATION

logger = logging.getLogger(__name__)

Names = tuple[str, ...]

#: Beyond so many names of layers all are forgotten: memory stays bounded.
_MOST_NAMES = 500_000
#: What rewrites a part of a dataframe's expression, and all of it.
_REWRITING = ("simplify_once", "lower_once", "rewrite", "lower_completely", "optimize")

#: The steps that built each layer, the last one last. A layer that none built, and that others
#: were built out of, has none.
_layers: dict[str, list[Names]] = {}
_frames = FrameSteps()

#: Whether this thread is in `HighLevelGraph.from_collections`, or rewrites an expression.
_busy = threading.local()
_lock = threading.Lock()
_users = 0
#: The classes' attributes that were replaced: what was there before, and what is now.
_replaced: dict[tuple[type, str], tuple[Any, Any]] = {}


def place_hooks() -> None:
    """Watch from now on; each call has to be undone by one of `remove_hooks`."""
    global _users  # noqa: PLW0603
    with _lock:
        _users += 1
        _place()


def remove_hooks() -> None:
    """Put everything back, if nobody else watches."""
    global _users  # noqa: PLW0603
    with _lock:
        _users -= 1
        if _users:
            return
        for (owner, name), (before, ours) in _replaced.items():
            if owner.__dict__.get(name) is ours:  # else somebody has put theirs over it
                setattr(owner, name, before)
        _replaced.clear()
        _layers.clear()
        _frames.clear()


def watch_dataframes() -> None:
    """Watch dataframes as well, if the program has imported them since."""
    if _users and "dask.dataframe.dask_expr._collection" in sys.modules:
        with _lock:
            if _users:
                _place()


def _place() -> None:
    _replace(HighLevelGraph, "from_collections", _noting_layer)
    _replace(HighLevelGraph, "__init__", _noting_sources)
    _replace(Client, "_graph_to_futures", _annotating)
    frames = sys.modules.get("dask.dataframe.dask_expr._collection")
    if frames is not None and hasattr(frames, "FrameBase"):
        _replace(frames.FrameBase, "__init__", _noting_frame)
        for place in ("dask._expr", "dask.dataframe.dask_expr._expr"):
            owner = getattr(sys.modules.get(place), "Expr", None)
            for base in owner.__mro__ if owner is not None else ():
                for method in _REWRITING:
                    _replace(base, method, _noting_rewritten)


def _replace(owner: type, name: str, wrap: Callable[[Any], Any]) -> None:
    before = owner.__dict__.get(name)
    if before is None or (owner, name) in _replaced:
        return
    if isinstance(before, classmethod):
        ours: Any = classmethod(functools.wraps(before.__func__)(wrap(before.__func__)))
    else:
        ours = functools.wraps(before)(wrap(before))
    setattr(owner, name, ours)
    _replaced[owner, name] = (before, ours)


def _noting_layer(original: Any) -> Any:
    def from_collections(
        cls: Any, name: Any, layer: Any, dependencies: Any = (), **kwargs: Any
    ) -> Any:
        outer = getattr(_busy, "building", False)
        _busy.building = True
        try:
            graph = original(cls, name, layer, dependencies, **kwargs)
        finally:
            _busy.building = outer
        if steps.current_step() is not None:
            _safely(_note_layers, (name,))
        elif _layers:
            _safely(_note_derived, name, dependencies)
        return graph

    return from_collections


def _noting_sources(original: Any) -> Any:
    """Note the layers of graphs that are made of one, and of its source, from scratch."""

    def __init__(self: Any, layers: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, layers, *args, **kwargs)
        if steps.current_step() is not None and not getattr(_busy, "building", False):
            _safely(_note_sources, layers)

    return __init__


def _noting_frame(original: Any) -> Any:
    def __init__(self: Any, expr: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, expr, *args, **kwargs)
        if not getattr(_busy, "rewriting", False):
            _safely(_frames.built, expr, steps.current_step())

    return __init__


def _noting_rewritten(original: Any) -> Any:
    """Let what an expression is rewritten to belong to the step that built the expression."""

    def rewrite(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _frames:
            return original(self, *args, **kwargs)
        inside = getattr(_busy, "rewriting", False)
        _busy.rewriting = True
        try:
            result = original(self, *args, **kwargs)
        finally:
            _busy.rewriting = inside
        _safely(_note_rewritten, self, result, inside)
        return result

    return rewrite


def _annotating(original: Any) -> Any:
    def _graph_to_futures(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Its arguments are the graph (its name differs between versions), the keys, and more.
        graph, keys, *_ = (*args, *kwargs.values(), None, None)
        names = _safely(_step_of_graph, graph, kwargs.get("keys", keys))
        if not names:
            return original(self, *args, **kwargs)
        with dask.annotate(**{ANNOTATION: names}):
            return original(self, *args, **kwargs)

    return _graph_to_futures


def _safely(note: Callable[..., Any], *args: Any) -> Any:
    try:
        return note(*args)
    except Exception:
        logger.debug("a graph's step could not be noted", exc_info=True)
        return None


def _note_layers(names: Iterable[Any]) -> None:
    opened = steps.current_step()
    if opened is None:
        return
    for name in names:
        if isinstance(name, str):
            _note_layer(name, opened)


def _note_layer(name: str, opened: OpenStep) -> None:
    if _add(_layers, name, opened.names):
        for observer in steps.observers:
            observer.built(opened, name)


def _note_derived(name: Any, dependencies: Any) -> None:
    """Note a layer that was built in no step on others that come of one."""
    if name in _layers or not isinstance(name, str):
        return
    found = [
        layer
        for collection in dependencies
        if hasattr(collection, "__dask_layers__")
        for layer in collection.__dask_layers__()
        if layer in _layers
    ]
    if found:
        _layers[name] = []
        for observer in steps.observers:
            observer.derived(name, found)


def _note_sources(layers: Any) -> None:
    if len(layers) <= 2:
        # Graphs that an optimisation makes have layers that are known.
        _note_layers([name for name in layers if name not in _layers])


def _note_rewritten(expr: Any, result: Any, inside: bool) -> None:
    if inside:
        _frames.rewritten(expr, result)
        _busy.last = result
        return
    # What came of the parts comes first: fusing them is not the last step's doing alone.
    _frames.rewritten(expr, result, getattr(_busy, "last", None))
    _busy.last = None
    if hasattr(result, "operands"):
        for name, opened in _frames.layers(result):
            _note_layer(name, opened)


def _add(known: dict[str, list[Names]], name: str, names: Names) -> bool:
    """Note a step that built something; tells whether it was not the last to do so before."""
    if len(known) > _MOST_NAMES:
        known.clear()
    built = known.setdefault(name, [])
    if built and built[-1] == names:
        return False
    if names in built:
        built.remove(names)
    built.append(names)
    return True


def _step_of_graph(graph: Any, keys: Any) -> Names | None:
    """Find the step of those tasks of a graph whose layers nobody knows."""
    opened = steps.current_step()
    current = opened.names if opened is not None else None
    built = [builder.names for builder in _frames.root(graph) or ()]
    if not built and not hasattr(graph, "operands") and _frames:
        built = _built_by(keys)  # older versions of Dask make graphs of expressions before this
    if built:
        return current if current in built else built[-1]
    if current is None:
        built = _built_by(keys) or _built_by(_output_keys(graph))
    return built[-1] if built else current


def _built_by(keys: Any) -> list[Names]:
    """Give the steps that built the layer of the first key."""
    key = keys
    while isinstance(key, list | set | frozenset | dict):
        key = next(iter(key), None)
    name = key[0] if isinstance(key, tuple) and key else key
    return _layers.get(name, []) if isinstance(name, str) else []


def _output_keys(graph: Any) -> Any:
    """Give the keys of a graph before what Dask puts around it to compute it."""
    for part in unwrapped(graph):
        if "output_keys" in part._parameters:
            return part.operand("output_keys")
    return ()
