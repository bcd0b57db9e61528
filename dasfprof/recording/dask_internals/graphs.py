"""Hooks that note which graphs the program builds and computes, at which lines and in which steps.

Annotations of layers would not work: Dask loses them as it optimises arrays, bags and dataframes,
does not fuse layers with different annotations, and warns about them on dataframes. So the names of
layers are noted as they are built, with the program's line and the current step of
`dasfprof.recording.steps.step`, and only a graph that is sent to the cluster in a step is
annotated, with one tuple: `ANNOTATION`.

`remove_hooks` restores what `place_hooks` replaced.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import dask
from distributed import Client

from dasfprof.recording.dask_internals import client_calls, names
from dasfprof.recording.dask_internals.built_lines import (
    BuiltLines,
    ExpressionBuilders,
    is_expression,
    output_keys,
)
from dasfprof.recording.dask_internals.patch import Patch, SharedPatches
from dasfprof.recording.dask_internals.submissions import forget_timers, place_timers
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.line import current_line
from dasfprof.recording.steps.step import OpenStep
from dasfprof.schema.steps import ANNOTATION

logger = logging.getLogger(__name__)

Names = tuple[str, ...]

#: The most known names of layers; beyond it all are forgotten, which bounds the memory.
_MOST_NAMES = 500_000
#: The steps that built each layer, the last one last; empty for a layer that no step built and
#: that layers of steps depend on.
_layers: dict[str, list[Names]] = {}
_expressions = ExpressionBuilders()
_lines = BuiltLines()

#: Whether this thread is in `HighLevelGraph.from_collections`, or rewrites an expression.
_busy = threading.local()
#: Modules of collections of expressions that were looked at.
_watched: set[str] = set()
#: The attributes of classes that are currently wrapped.
_placed: set[tuple[Any, str]] = set()


def place_hooks() -> None:
    """Place the hooks; each call must be undone by a call of `remove_hooks`."""
    _patches.enter()


def remove_hooks() -> None:
    """Restore everything, unless another run still uses the hooks."""
    _patches.leave()


def watch_collections() -> None:
    """Place the hooks on collections of expressions too, if the program has imported them since."""
    if any(module in sys.modules and module not in _watched for module in names.EXPRESSIONS):
        _patches.place_more()


def _place() -> list[Patch]:
    graph, client = names.GRAPH.find("HighLevelGraph"), Client
    patches = [
        *_wrapped(graph, "from_collections", _noting_layer),
        *_wrapped(graph, "__init__", _noting_sources),
        *_wrapped(client, "_graph_to_futures", _annotating),
        *(patch for hook in client_calls.hooks() for patch in _wrapped(*hook)),
    ]
    return patches + _place_on_expressions() + place_timers()


def _place_on_expressions() -> list[Patch]:
    patches: list[Patch] = []
    for module, (found, collection, expression) in names.EXPRESSIONS.items():
        if module not in sys.modules or module in _watched:
            continue
        owner, expr, lost = found.find(collection), found.find(expression), found.gone()
        if owner is None and expr is None and not lost:
            continue  # it is being imported
        _watched.add(module)
        if lost:
            logger.warning("this version of Dask has no %s: %s", lost[0], found.loss)
            continue
        patches += _wrapped(owner, "__init__", _noting_collection)
        for base in expr.__mro__:
            for method in (*names.REWRITING, names.FUSING):
                patches += _wrapped(base, method, _noting_rewritten)
    return patches


def _wrapped(owner: Any, name: str, wrap: Callable[[Any, Patch], Any]) -> list[Patch]:
    """Wrap an own attribute of a class or module if it exists and is not wrapped yet."""
    if owner is None or name not in vars(owner) or (owner, name) in _placed:
        return []
    patch = Patch(owner, name, wrap)
    _placed.add((owner, name))
    return [patch]


def _forget() -> None:
    _placed.clear()
    _watched.clear()
    _layers.clear()
    _expressions.clear()
    _lines.clear()
    forget_timers()


_patches = SharedPatches(_place, _forget)


def _noting_layer(original: Any, patch: Patch) -> Any:
    def from_collections(*args: Any, **kwargs: Any) -> Any:
        outer = getattr(_busy, "building", False)
        _busy.building = True
        try:
            graph = original(*args, **kwargs)
        finally:
            _busy.building = outer
        if patch.active:
            try:  # not by `_safely`: a delayed function takes but some 50 µs to be built
                name = args[1] if len(args) > 1 else kwargs["name"]
                _lines.built(name, graph)
                if _layers or steps.current_step() is not None:
                    _note_built(name, args, kwargs)
            except Exception:
                logger.debug("a graph's line could not be noted", exc_info=True)
        return graph

    return from_collections


def _noting_sources(original: Any, patch: Patch) -> Any:
    """Note the layers of graphs that are created directly, not from collections."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(*args, **kwargs)
        if patch.active and not getattr(_busy, "building", False):
            _safely(_note_sources, *args[:1])

    return __init__


def _noting_collection(original: Any, patch: Patch) -> Any:
    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(*args, **kwargs)
        if patch.active and not getattr(_busy, "rewriting", False):
            _safely(_note_collection, args, kwargs)

    return __init__


def _noting_rewritten(original: Any, patch: Patch) -> Any:
    """Assign what an expression is rewritten to to the step that built the expression."""

    def rewrite(*args: Any, **kwargs: Any) -> Any:
        if not _expressions or not patch.active:
            return original(*args, **kwargs)
        inside = getattr(_busy, "rewriting", False)
        _busy.rewriting = True
        try:
            result = original(*args, **kwargs)
        finally:
            _busy.rewriting = inside
        _safely(_note_rewritten, result, inside, *args[:1])
        return result

    return rewrite


def _annotating(original: Any, patch: Patch) -> Any:
    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        step = _safely(_note_call, args, kwargs) if patch.active else None
        if not step:
            return original(*args, **kwargs)
        with dask.annotate(**{ANNOTATION: step}):
            return original(*args, **kwargs)

    return _graph_to_futures


def _safely(note: Callable[..., Any], *args: Any) -> Any:
    try:
        return note(*args)
    except Exception:
        logger.debug("a graph's step could not be noted", exc_info=True)
        return None


def _note_built(name: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note the layer of a call of `from_collections(cls, name, layer, dependencies)`."""
    if steps.current_step() is not None:
        _note_layers((name,))
    else:
        _note_derived(name, args[3] if len(args) > 3 else kwargs.get("dependencies", ()))


def _note_collection(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note the expression of a new collection, the first argument after `self`."""
    collection, expr = next(zip(args[:1], (*args[1:], *kwargs.values()), strict=False))
    _expressions.built(expr, steps.current_step(), current_line(), collection)


def _note_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Names | None:
    """Note the line of a graph that is sent to the cluster; return its step.

    The arguments are the client, the graph (its name differs between versions), the keys and more.
    """
    _, graph, keys, *_ = (*args, *kwargs.values(), None, None, None)
    keys = kwargs.get("keys", keys)
    _safely(_lines.sent, graph, keys)
    return _step_of_graph(graph, keys)


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
    """Note a layer that was built in no step and depends on layers that were."""
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


def _note_sources(graph: Any) -> None:
    layers = graph.layers
    if len(layers) <= 2:  # the layers of graphs that an optimisation creates are known
        _note_layers([name for name in layers if name not in _layers])
        for name in layers:
            _lines.built_directly(name, graph)


def _note_rewritten(result: Any, inside: bool, expr: Any) -> None:
    if inside:
        _expressions.rewritten(expr, result)
        _busy.last = result
        return
    # The parts' steps come first: a fusion belongs not only to the last step.
    _expressions.rewritten(expr, result, getattr(_busy, "last", None))
    _busy.last = None
    if is_expression(result):
        for name, builders in _expressions.layers(result):
            if builders.steps:
                _note_layer(name, builders.steps[-1])
            _lines.rewritten(name, builders)


def _add(known: dict[str, list[Names]], name: str, names: Names) -> bool:
    """Add a step to the builders of a name; return whether it was not already the last."""
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
    """Return the step of the tasks of a graph whose layers are unknown."""
    opened = steps.current_step()
    current = opened.names if opened is not None else None
    root = _expressions.root(graph)
    built = [] if root is None else [builder.names for builder in root.steps]
    if not built and not is_expression(graph) and _expressions:
        built = _built_by(keys)  # older versions of Dask have turned expressions into graphs by now
    if built:
        return current if current in built else built[-1]
    if current is None:
        built = _built_by(keys) or _built_by(output_keys(graph))
    return built[-1] if built else current


def _built_by(keys: Any) -> list[Names]:
    """Return the steps that built the layer of the first key."""
    key = keys
    while isinstance(key, list | set | frozenset | dict):
        key = next(iter(key), None)
    name = key[0] if isinstance(key, tuple) and key else key
    return _layers.get(name, []) if isinstance(name, str) else []
