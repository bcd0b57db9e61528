"""`LiveSteps`: which step of the pipeline task runs belong to, as far as it is known by then.

In this order: the step that built the task's layer, the step in which its graph was computed.
`dasfprof.analysis.trace.steps`, which has the whole trace, also knows of annotations and of layers
that were fused into others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.database import keys
from dasfprof.database.block_codec import Batch
from dasfprof.database.columns import Array, Column, KeyColumn
from dasfprof.schema.steps import SEPARATOR, STEP, STEP_LAYER
from dasfprof.schema.tasks import GRAPH

#: What is read of each kind of event.
WANTED = {STEP.name: ("id", "parent", "step"), STEP_LAYER.name: ("id", "layer")}
WANTED_OF_SCHEDULER = {GRAPH.name: ("tasks", "stimulus", "step")}

#: A layer's hash, or its whole name.
_Layer = Any
_HASHES = (keys.HEX, keys.UUID)


class LiveSteps:
    """The steps that were entered, and what was built and computed in them."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._layers: dict[_Layer, str] = {}
        self._graphs: dict[tuple[keys.Head, tuple[int, ...]], str] = {}
        #: Tasks of all graphs that arrived.
        self.tasks = 0
        self.graphs = 0
        #: The step in which the last graph was computed, and those that task runs belong to by
        #: their graphs alone.
        self._last: str | None = None
        self._by_graphs: set[str | None] = set()

    def elsewhere(self) -> frozenset[str | None]:
        """Return the steps after which graphs of others came, which may have the same functions."""
        return frozenset(self._by_graphs - {self._last})

    def take(self, batches: list[Batch]) -> None:
        """Take what the client recorded."""
        for batch in (batch for batch in batches if batch.name == STEP.name):
            columns = (batch.args[name].to_list() for name in WANTED[STEP.name])
            for number, parent, name in zip(*columns, strict=True):
                around = self._paths.get(parent)
                self._paths[number] = f"{around}{SEPARATOR}{name}" if around else str(name)
        for batch in (batch for batch in batches if batch.name == STEP_LAYER.name):
            columns = (batch.args[name].to_list() for name in WANTED[STEP_LAYER.name])
            for number, layer in zip(*columns, strict=True):
                if number in self._paths:
                    self._layers[_layer_of(str(layer))] = self._paths[number]

    def take_graphs(self, batch: Batch) -> None:
        """Take graphs that arrived at the scheduler."""
        self.tasks += sum(count or 0 for count in batch.args["tasks"].to_list())
        self.graphs += batch.rows
        names = batch.args["step"].to_list() if "step" in batch.args else []
        stimuli = batch.args.get("stimulus")
        if isinstance(stimuli, KeyColumn):
            for row, step in enumerate(names):
                self._last = None
                if isinstance(step, tuple | list) and step:
                    self._last = SEPARATOR.join(map(str, step))
                    identity = stimuli.heads[stimuli.codes[row]], tuple(stimuli.tails[row].tolist())
                    self._graphs[identity] = self._last

    def find(self, key: KeyColumn, graph: Column | None) -> tuple[Array, list[str | None]]:
        """Return the step of each task run.

        Returns
        -------
        codes, steps
            Row ``i`` belongs to ``steps[codes[i]]``; None: to none that is known.
        """
        steps: dict[str | None, int] = {None: 0}
        codes = np.zeros(len(key), dtype=np.int64)
        if self._graphs and isinstance(graph, KeyColumn):
            self._by_graph(graph, codes, steps)
        by_graph = codes.copy()
        if self._layers:
            self._by_layer(key, codes, steps)
        names = list(steps)
        self._by_graphs.update(names[code] for code in np.unique(codes[codes == by_graph]))
        return codes, list(steps)

    def _by_graph(self, graph: KeyColumn, codes: Array, steps: dict[str | None, int]) -> None:
        words = np.column_stack([graph.codes.astype(np.uint32), graph.tails])
        _, first, places = np.unique(
            words.view(f"S{words.shape[1] * 4}").ravel(), return_index=True, return_inverse=True
        )
        found = [
            steps.setdefault(
                self._graphs.get((graph.heads[graph.codes[row]], tuple(graph.tails[row].tolist()))),
                len(steps),
            )
            for row in first.tolist()
        ]
        codes[:] = np.array(found, dtype=np.int64)[places]

    def _by_layer(self, key: KeyColumn, codes: Array, steps: dict[str | None, int]) -> None:
        for place, (kind, text) in enumerate(key.heads):
            rows = np.flatnonzero(key.codes == place)
            if kind in _HASHES:
                for row in rows.tolist():
                    step = self._layers.get(tuple(key.tails[row].tolist()))
                    if step is not None:
                        codes[row] = steps.setdefault(step, len(steps))
            elif kind not in (keys.PACKED, keys.FLOAT, keys.NUMBERED):
                step = self._layers.get(_layer_of(text))
                if step is not None:
                    codes[rows] = steps.setdefault(step, len(steps))


def _layer_of(name: str) -> _Layer:
    (kind, _), tail = keys.split_key(name)
    return tail if kind in _HASHES else name
