"""Hooks that record which lines and steps build and compute the graphs of a program.

Annotations of layers would not work. Dask loses them when it optimizes arrays, bags and dataframes,
does not fuse layers with different annotations, and warns about annotations of dataframes. Instead,
when the program builds a layer, the hooks record the layer's name, the program's line and the
current step (see `dasfprof.recording.steps.step`). When the program sends a graph, the hooks
annotate the graph with its step (`ANNOTATION`). `remove_hooks` restores the functions that
`place_hooks` replaced.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import dask
from distributed import Client

from dasfprof.recording.cluster.program import announce_once
from dasfprof.recording.dask_internals import client_calls, names
from dasfprof.recording.dask_internals.built_lines import (
    MOST_FRESH,
    BuiltLines,
    ExpressionBuilders,
    is_expression,
    layer_names,
    output_keys,
)
from dasfprof.recording.dask_internals.graph_values import timers
from dasfprof.recording.dask_internals.inspection.stacks import outward
from dasfprof.recording.dask_internals.patch import Hook, Patch, SharedPatches, takes
from dasfprof.recording.guard import logging_errors
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.line import Line, ignored_files, user_files
from dasfprof.recording.steps.step import OpenStep
from dasfprof.schema.steps import ANNOTATION

logger = logging.getLogger(__name__)

Names = tuple[str, ...]

#: Maximum number of known layer names. If there are more, all of them are removed, which limits the
#: memory.
_MOST_NAMES = 500_000
#: By name of a layer: the steps that built the layer, in order. The list is empty for a layer that
#: no step built but that depends on layers of steps.
_layers: dict[str, list[Names]] = {}
_expressions = ExpressionBuilders()
_lines = BuiltLines()


#: For each thread that is rewriting an expression in several steps, by identity of the thread: the
#: latest intermediate result, or None if there is none yet.
_rewriting: dict[int, Any] = {}
#: Name of the layer for which a thread is in `HighLevelGraph.from_collections`, or None.
_making: list[Any] = [None]
#: Names of the examined modules with collections of expressions.
_watched: set[str] = set()


def place_hooks() -> None:
    """Place the hooks. Each call must be undone by a call of `remove_hooks`."""
    _patches.enter()
    timers.enter()


def remove_hooks() -> None:
    """Restore the original functions, unless another recording still uses the hooks."""
    timers.leave()
    _patches.leave()


#: Function that returns the line that last built a layer, or None if the line is unknown. The hooks
#: must be in place.
line_of: Callable[[Any], Line | None] = _lines.line_of


def report_lines() -> None:
    """Report to the observers of steps which lines built layers, unless reported before."""
    _safely(_lines.report)


def watch_collections() -> None:
    """Place hooks on classes of collections that the program imported after `place_hooks`."""
    if any(module in sys.modules and module not in _watched for module in names.EXPRESSIONS):
        _patches.place_more()
        timers.place_more()


def _hooks() -> Iterator[Hook]:
    graph = names.GRAPH.find("HighLevelGraph")
    yield graph, "from_collections", _noting_layer
    yield graph, "__init__", _noting_sources
    yield Client, "_graph_to_futures", _annotating
    yield from client_calls.hooks()
    for module, (used, collection, expression) in names.EXPRESSIONS.items():
        if module not in sys.modules or module in _watched:
            continue
        owner, expr, missing = used.find(collection), used.find(expression), used.gone()
        if owner is None and expr is None and not missing:
            continue  # The program is just importing the module.
        _watched.add(module)
        if missing:
            logger.warning("this version of Dask has no %s: %s", missing[0], used.loss)
            continue
        yield owner, "__init__", _noting_collection
        for base in expr.__mro__:
            for method in (*names.REWRITING, names.FUSING):
                if method in vars(base):
                    yield base, method, _noting_rewritten


def _forget() -> None:
    _watched.clear()
    _layers.clear()
    _expressions.clear()
    _lines.clear()


_patches = SharedPatches(_hooks, _forget)


# Building a delayed function takes only about 30 µs, and calls each of these wrappers. A wrapper
# that has the parameters of the original takes a third of the time of a wrapper with arbitrary
# parameters.


def _noting_layer(original: Any, patch: Patch) -> Any:
    if not takes(original, "cls", "name", "layer", "dependencies"):
        # A later version of Dask may call the function with other arguments, which must not fail.
        return original

    making, fresh, frame_of, calls = _making, _lines.fresh, sys._getframe, client_calls.opened
    note, step_of, stepped = fresh.extend, steps.current_step, _layers

    def from_collections(cls: Any, name: Any, layer: Any, dependencies: Any = ()) -> Any:
        making[0] = name
        graph = original(cls, name, layer, dependencies)
        making[0] = None
        if patch.active:
            try:
                frame: Any = frame_of(1)
                while (code := frame.f_code).co_filename in ignored_files:
                    frame = frame.f_back
                if code.co_filename in user_files and not calls and len(fresh) < MOST_FRESH:
                    note((name, code, frame.f_lasti, graph.dependencies[name]))
                else:
                    _lines.built(name, graph)
                if stepped or step_of() is not None:
                    _note_steps(name, dependencies)
            except Exception:
                _safely(_lines.built, name, graph)
                _safely(_note_steps, name, dependencies)
        return graph

    return from_collections


def _noting_sources(original: Any, patch: Patch) -> Any:
    """Return a wrapper that records the layers of graphs that are not made from collections."""

    def __init__(  # noqa: N807
        self: Any, layers: Any, dependencies: Any, key_dependencies: Any = None
    ) -> None:
        original(self, layers, dependencies, key_dependencies)
        if patch.active and not (type(layers) is dict and _making[0] in layers):
            _safely(_note_sources, self)

    known = "self", "layers", "dependencies", "key_dependencies"
    return __init__ if takes(original, *known) else original


def _noting_collection(original: Any, patch: Patch) -> Any:
    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(*args, **kwargs)
        if patch.active and threading.get_ident() not in _rewriting:
            with logging_errors("a collection"):
                collection, expr = (*args, *kwargs.values())[:2]
                _expressions.built(expr, collection)

    return __init__


def _noting_rewritten(original: Any, patch: Patch) -> Any:
    """Return a wrapper that assigns rewritten expressions to the steps that built the originals."""

    def rewrite(*args: Any, **kwargs: Any) -> Any:
        if not _expressions or not patch.active:
            return original(*args, **kwargs)
        thread = threading.get_ident()
        if thread in _rewriting:
            result = original(*args, **kwargs)
            _safely(_expressions.rewritten, *args[:1], result)
            _rewriting[thread] = result
            return result
        _rewriting[thread] = None
        try:
            result = original(*args, **kwargs)
        finally:
            last = _rewriting.pop(thread)
        _safely(_note_rewritten, result, last, *args[:1])
        return result

    return rewrite


def _annotating(original: Any, patch: Patch) -> Any:
    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        step = None
        if patch.active:
            step = _safely(_note_call, args, kwargs)
            _safely(announce_once, *args[:1])
        if not step:
            return original(*args, **kwargs)
        with dask.annotate(**{ANNOTATION: step}):
            return original(*args, **kwargs)

    return _graph_to_futures


def _safely(note: Callable[..., Any], *args: Any) -> Any:
    try:
        return note(*args)
    except Exception:
        logger.debug("a graph's step could not be recorded", exc_info=True)
        return None


def _note_steps(name: Any, dependencies: Any) -> None:
    opened = steps.current_step()
    if opened is not None:
        _note_layer(name, opened)
    elif _layers:
        _note_derived(name, dependencies)


def _note_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Names | None:
    """Record the line that sends a graph to the cluster, and return the step of the graph."""
    # The name of the graph's parameter differs between versions of Dask.
    _, graph, keys, *_ = (*args, *kwargs.values(), None, None, None)
    keys = kwargs.get("keys", keys)
    _safely(_lines.sent, graph, keys)
    return _step_of_graph(graph, keys)


def _note_layer(name: Any, opened: OpenStep) -> None:
    if not isinstance(name, str):
        return
    if len(_layers) > _MOST_NAMES:
        _layers.clear()
    built = _layers.setdefault(name, [])
    if not built or built[-1] != opened.names:
        built[:] = [step for step in built if step != opened.names] + [opened.names]
        for observer in steps.observers:
            observer.built(opened, name)


def _note_derived(name: Any, dependencies: Any) -> None:
    """Record a layer that no step built, but that depends on layers of steps."""
    if name in _layers or not isinstance(name, str):
        return
    inputs = [
        layer
        for collection in dependencies
        if hasattr(collection, "__dask_layers__")
        for layer in collection.__dask_layers__()
        if layer in _layers
    ]
    if inputs:
        _layers[name] = []
        for observer in steps.observers:
            observer.derived(name, inputs)


def _note_sources(graph: Any) -> None:
    layers = graph.layers
    # If an optimization creates a graph, its layers are already known.
    if len(layers) <= 2 and not _is_made_of_collections():
        opened = steps.current_step()
        for name in layers:
            if opened is not None and name not in _layers:
                _note_layer(name, opened)
            if _lines.line_of(name) is None:
                _lines.built(name, graph)


def _is_made_of_collections() -> bool:
    """Return whether this thread is in `HighLevelGraph.from_collections`."""
    codes = (frame.f_code for frame in outward(sys._getframe(1)))
    made = "from_collections", __file__
    return any((code.co_name, code.co_filename) == made for code in codes)


def _note_rewritten(result: Any, last: Any, expr: Any) -> None:
    # First assign the parts to their steps, because a fusion belongs not only to the last step.
    _expressions.rewritten(expr, result, last)
    if is_expression(result):
        for name, builders in _expressions.layers(result):
            if builders.steps:
                _note_layer(name, builders.steps[-1])
            _lines.rewritten(name, builders)


def _step_of_graph(graph: Any, keys: Any) -> Names | None:
    """Return the step for those tasks of a graph whose layers are unknown, or None."""
    opened = steps.current_step()
    current = opened.names if opened is not None else None
    root = _expressions.root(graph)
    built = [] if root is None else [builder.names for builder in root.steps]
    if not built and not is_expression(graph) and _expressions:
        # Older versions of Dask have already converted the expression into a graph.
        built = _built_by(keys)
    if built:
        return current if current in built else built[-1]
    if current is None:
        built = _built_by(keys) or _built_by(output_keys(graph))
    return built[-1] if built else current


def _built_by(keys: Any) -> list[Names]:
    """Return the steps that built the layer to which the first key belongs."""
    return _layers.get(next(iter(layer_names(keys)), ""), [])
