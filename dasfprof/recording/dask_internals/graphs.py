"""Watches, while a run is recorded, which graphs the program builds and computes in its steps.

Annotations would not do: Dask loses those of layers as it optimises arrays, bags and dataframes,
does not fuse layers whose annotations differ, and warns of them on dataframes. So layers are noted
by name as they are built, in the steps that `dasfprof.recording.steps` knows, and only a graph
that is handed to the cluster is annotated, with one tuple: `ANNOTATION`.

Nothing here stays: `remove_hooks` puts back what `place_hooks` replaced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

import dask
from distributed import Client

from dasfprof.recording import steps
from dasfprof.recording.dask_internals import expressions, names
from dasfprof.recording.dask_internals.expressions import FrameSteps, is_expression, output_keys
from dasfprof.recording.dask_internals.patch import Patch, SharedPatches
from dasfprof.recording.steps import OpenStep
from dasfprof.schema.steps import ANNOTATION

logger = logging.getLogger(__name__)

Names = tuple[str, ...]

#: Beyond so many names of layers all are forgotten: memory stays bounded.
_MOST_NAMES = 500_000
#: The steps that built each layer, the last one last. A layer that none built, and that others
#: were built out of, has none.
_layers: dict[str, list[Names]] = {}
_frames = FrameSteps()

#: Whether this thread is in `HighLevelGraph.from_collections`, or rewrites an expression.
_busy = threading.local()
#: The attributes of classes that are wrapped now.
_placed: set[tuple[Any, str]] = set()


def place_hooks() -> None:
    """Watch from now on; each call has to be undone by one of `remove_hooks`."""
    _patches.enter()


def remove_hooks() -> None:
    """Put everything back, if nobody else watches."""
    _patches.leave()


def watch_dataframes() -> None:
    """Watch dataframes as well, if the program has imported them since."""
    frame = names.FRAME.find()
    if frame is not None and (frame, "__init__") not in _placed:
        _patches.place_more()


def _place() -> list[Patch]:
    graph, client = names.GRAPH.find(), Client
    patches = [
        *_wrapped(graph, names.FROM_COLLECTIONS.attribute, _noting_layer),
        *_wrapped(graph, "__init__", _noting_sources),
        *_wrapped(client, names.GRAPH_TO_FUTURES.attribute, _annotating),
    ]
    return patches + _place_on_dataframes()


def _place_on_dataframes() -> list[Patch]:
    frame, expr = names.FRAME.find(), names.EXPR.find()
    if (frame, "__init__") in _placed:
        return []
    lost = [name for name in expressions.NAMES if not name.exists()]
    if lost or frame is None or expr is None:  # gone, or dataframes are not in use yet
        if lost:
            _placed.add((frame, "__init__"))
            logger.warning("this version of Dask has no %s: %s", lost[0].path, lost[0].loss)
        return []
    patches = _wrapped(frame, "__init__", _noting_frame)
    for base in expr.__mro__:
        for method in names.REWRITING:
            patches += _wrapped(base, method.attribute, _noting_rewritten)
    return patches


def _wrapped(owner: Any, name: str, wrap: Callable[[Any, Patch], Any]) -> list[Patch]:
    """Wrap a class's own attribute, if it has it and it is not wrapped already."""
    if not isinstance(owner, type) or name not in vars(owner) or (owner, name) in _placed:
        return []
    patch = Patch(owner, name, wrap)
    _placed.add((owner, name))
    return [patch]


def _forget() -> None:
    _placed.clear()
    _layers.clear()
    _frames.clear()


_patches = SharedPatches(_place, _forget)


def _noting_layer(original: Any, patch: Patch) -> Any:
    def from_collections(*args: Any, **kwargs: Any) -> Any:
        outer = getattr(_busy, "building", False)
        _busy.building = True
        try:
            graph = original(*args, **kwargs)
        finally:
            _busy.building = outer
        if patch.active and (_layers or steps.current_step() is not None):
            _safely(_note_built, graph, args, kwargs)
        return graph

    return from_collections


def _noting_sources(original: Any, patch: Patch) -> Any:
    """Note the layers of graphs that are made of one, and of its source, from scratch."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(*args, **kwargs)
        if patch.active and steps.current_step() is not None:
            _safely(_note_sources, *args[:1])

    return __init__


def _noting_frame(original: Any, patch: Patch) -> Any:
    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(*args, **kwargs)
        if patch.active and not getattr(_busy, "rewriting", False):
            _safely(_note_frame, args, kwargs)

    return __init__


def _noting_rewritten(original: Any, patch: Patch) -> Any:
    """Let what an expression is rewritten to belong to the step that built the expression."""

    def rewrite(*args: Any, **kwargs: Any) -> Any:
        if not _frames or not patch.active:
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
        step = _safely(_step_of_call, args, kwargs) if patch.active else None
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


def _note_built(graph: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note the layer that `from_collections` was called with: class, name, layer, dependencies."""
    called = dict(zip(("cls", "name", "layer", "dependencies"), args, strict=False)) | kwargs
    if steps.current_step() is not None:
        _note_layers((called["name"],))
    elif _layers:
        _note_derived(called["name"], called.get("dependencies", ()))


def _note_frame(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note the expression that a dataframe was made of: the first argument after itself."""
    expr = next(iter((*args[1:], *kwargs.values())))
    _frames.built(expr, steps.current_step())


def _step_of_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Names | None:
    """Find the step of a graph that is handed to the cluster.

    The arguments are the client, the graph (its name differs between versions), the keys and more.
    """
    _, graph, keys, *_ = (*args, *kwargs.values(), None, None, None)
    return _step_of_graph(graph, kwargs.get("keys", keys))


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


def _note_sources(graph: Any) -> None:
    layers = graph.layers
    if len(layers) <= 2 and not getattr(_busy, "building", False):
        # Graphs that an optimisation makes have layers that are known.
        _note_layers([name for name in layers if name not in _layers])


def _note_rewritten(result: Any, inside: bool, expr: Any) -> None:
    if inside:
        _frames.rewritten(expr, result)
        _busy.last = result
        return
    # What came of the parts comes first: fusing them is not the last step's doing alone.
    _frames.rewritten(expr, result, getattr(_busy, "last", None))
    _busy.last = None
    if is_expression(result):
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
    if not built and not is_expression(graph) and _frames:
        built = _built_by(keys)  # older versions of Dask make graphs of expressions before this
    if built:
        return current if current in built else built[-1]
    if current is None:
        built = _built_by(keys) or _built_by(output_keys(graph))
    return built[-1] if built else current


def _built_by(keys: Any) -> list[Names]:
    """Give the steps that built the layer of the first key."""
    key = keys
    while isinstance(key, list | set | frozenset | dict):
        key = next(iter(key), None)
    name = key[0] if isinstance(key, tuple) and key else key
    return _layers.get(name, []) if isinstance(name, str) else []
