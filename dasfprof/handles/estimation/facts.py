"""`LayerFacts`: the bytes, the line and the inputs of each layer in a graph that Dask sends."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import inf, isnan, nan
from pathlib import PurePath
from typing import Any

import numpy as np

from dasfprof.recording.dask_internals.graphs import line_of
from dasfprof.recording.dask_internals.layer_sizes import BuiltLayer
from dasfprof.recording.dask_internals.sent_graphs import SentGraph, SentLayer
from dasfprof.recording.steps.line import Place

#: Parts of names: the two steps into which Dask splits a rechunk layer, and the last task of
#: `compute`.
_SPLIT, _MERGE, _FINAL = "rechunk-split-", "rechunk-merge-", "-finalize-hlgfinalizecompute-"

#: Functions that select values. Their result is at most as large as their input.
_CHOICES = ("getitem", "shuffle-split")


def line_text(place: Place | None) -> str | None:
    """Return a location in the program as text for tables, such as ``script.py:12``, or None."""
    return None if place is None else f"{PurePath(place[0]).name}:{place[1]}"


def line_of_layer(name: str) -> str | None:
    """Return the line that built a layer, or None if unknown."""
    line = line_of(name)
    return None if line is None else line_text(line.place)


@dataclass(frozen=True)
class LayerFacts:
    """Facts about a layer of the graph that Dask sends."""

    name: str | None
    function: str
    place: Place | None
    tasks: int
    #: Bytes of the largest result and of all results, or NaN if unknown.
    largest: float
    total: float
    #: Bytes of the largest chunk that its tasks create, even if only as an intermediate value, and
    #: the function and line that create this chunk.
    most: float
    made_by: str
    made_at: str | None
    #: Indices of the layers whose results it uses, and the reason if its bytes are unknown.
    takes: list[int]
    unknown: str


def inputs_first(facts: list[LayerFacts]) -> list[int]:
    """Return the indices of the layers, sorted so that each layer comes after its inputs."""
    try:
        graph = {number: fact.takes for number, fact in enumerate(facts)}
        return list(TopologicalSorter(graph).static_order())
    except CycleError:  # Fused layers may use each other's results.
        return list(range(len(facts)))[::-1]


def layer_facts(
    sent: SentGraph, built: dict[str, BuiltLayer]
) -> tuple[list[LayerFacts], np.ndarray, np.ndarray]:
    """Return facts about the layers of a graph that Dask would send, and bounds of result sizes.

    The two arrays have the minimum and the maximum bytes of each task's result.
    """
    bases = [_base(layer, built) for layer in sent.layers]
    low, high = _bounds(sent, bases)
    takes: list[list[int]] = [[] for _ in sent.layers]
    for taker, giver in sent.edges():
        takes[taker].append(giver)
    sent_alone = {base.name for base in bases if base is not None}
    facts = []
    for layer, base, taken in zip(sent.layers, bases, takes, strict=True):
        sizes = low[layer.tasks]
        is_known = np.array_equal(sizes, high[layer.tasks])
        place, largest, inside = layer.place, nan, None
        if base is not None:
            line = None if place else line_of(base.name)
            place = place if line is None else line.place
            inside = max(_inside(base, built, sent_alone), key=lambda x: x.largest, default=None)
        if is_known and not (layer.name or "").startswith(_SPLIT):
            largest = float(sizes.max())
        made = largest, layer.function, line_text(place)
        if inside is not None and not inside.largest <= largest:
            made = inside.largest, inside.function, line_of_layer(inside.name)
        unknown = base.reason if base is not None else BuiltLayer.reason
        total, unknown = (float(sizes.sum()), "") if is_known else (nan, unknown)
        facts.append(
            LayerFacts(
                *(layer.name, layer.function, place, len(layer.tasks), largest, total, *made),
                *(taken, unknown),
            )
        )
    return facts, low, high


def _inside(base: BuiltLayer, built: dict[str, BuiltLayer], sent: set[str]) -> list[BuiltLayer]:
    """Return the layers that Dask fused into the layer `base`.

    `sent` has the names of all layers that Dask did not fuse into others. Layers of unknown chunk
    size are left out.
    """
    waiting, layers = list(base.inputs), {}
    for name in waiting:
        if name in built and name not in sent and name not in layers:
            layers[name] = built[name]
            waiting += built[name].inputs
    known = [layer for layer in layers.values() if layer.grid is not None]
    if any(layer.function == "getitem" for layer in (base, *known)):
        # If a task takes slices of a file, Dask reads only these slices.
        known = [x for x in known if any(built[n].chunks for n in x.inputs if n in built)]
    return known


def _base(layer: SentLayer, built: dict[str, BuiltLayer]) -> BuiltLayer | None:
    """Return the program's layer to which a layer of the sent graph belongs, or None if unknown."""
    name = (layer.name or "").replace(_SPLIT, _MERGE, 1)
    # The name of the sent layer may have additional prefixes.
    while name and name not in built:
        name = name.partition("-")[2]
    return built[name] if name else _of_one_chunk(layer.key, built)


def _of_one_chunk(key: Any, built: dict[str, BuiltLayer]) -> BuiltLayer | None:
    """Return the layer that Dask fused into the task `key`, which is the last task of a `compute`.

    Return None if `key` belongs to another kind of task, or if the layer is unknown or has several
    chunks.
    """
    if not isinstance(key, str) or _FINAL not in key:
        return None
    functions = f"-{key.partition(_FINAL)[0]}"
    layers = [x for x in built.values() if x.chunks == 1 and functions.endswith(f"-{x.function}")]
    return layers[-1] if len({layer.largest for layer in layers}) == 1 else None


def _bounds(sent: SentGraph, bases: list[BuiltLayer | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and the upper bound of the bytes of each task's result.

    An unknown upper bound is infinite. `bases` has the result of `_base` for each layer.
    """
    low, high = np.full(len(sent), nan), np.full(len(sent), nan)
    shrinks = np.zeros(len(sent), dtype=bool)
    for layer, base in zip(sent.layers, bases, strict=True):
        grid = None if base is None else base.most if base.grid is None else base.grid
        shrinks[layer.tasks] = layer.function in _CHOICES if base is None else base.shrinks
        if base is None or grid is None:
            continue
        sizes: Any = nan
        if (layer.name or "").startswith(_SPLIT):  # The parts together have the bytes of the data.
            sizes = grid.sum() / len(layer.tasks)
        elif not layer.blocks or not layer.blocks[0]:
            sizes = grid.sum()
        elif len(layer.blocks[0]) == grid.ndim:
            blocks = tuple(np.array(layer.blocks, dtype=np.int64).T)
            is_there = all((at < n).all() for at, n in zip(blocks, grid.shape, strict=True))
            sizes = grid[blocks] if is_there else nan
        high[layer.tasks], low[layer.tasks] = sizes, sizes if base.grid is not None else 0.0
    high[sent.joins] = nan
    is_constant = np.isnan(high) & ~np.isnan(sent.constants)
    low[is_constant] = high[is_constant] = sent.constants[is_constant]
    _sum_up(sent, low, high, shrinks)
    return low, high


def _sum_up(sent: SentGraph, low: np.ndarray, high: np.ndarray, shrinks: np.ndarray) -> None:
    """Replace unknown bounds of results by bounds that follow from their inputs, in place.

    `shrinks` is a mask of the tasks whose results are not larger than their inputs.
    """
    least, most, joins, bound = low.tolist(), high.tolist(), sent.joins.tolist(), shrinks.tolist()
    offsets, inputs = sent.input_offsets.tolist(), sent.inputs.tolist()
    for first in np.flatnonzero(np.isnan(high)).tolist():
        waiting = [first]
        while waiting:
            task = waiting[-1]
            taken = inputs[offsets[task] : offsets[task + 1]]
            missing = [other for other in taken if isnan(most[other])]
            if missing and isnan(most[task]):
                waiting += missing
                continue
            waiting.pop()
            if isnan(most[task]):
                # If a result consists of its inputs (`SentGraph.joins`), both bounds are sums of
                # the inputs' bounds. If it is not larger than its inputs, only its upper bound is
                # such a sum. Otherwise the bounds become 0 and infinity.
                is_sum = bool(taken) and joins[task]
                is_bound = bool(taken) and (is_sum or bound[task])
                least[task] = sum(least[other] for other in taken) if is_sum else 0.0
                most[task] = sum(most[other] for other in taken) if is_bound else inf
    low[:], high[:] = least, most
