"""The steps of the user's pipeline, and which of them each task run belongs to.

In this order of trust: the step that built the task's layer of the graph; the step in which the
graph was handed to the cluster; what the person annotated, ``step`` first, then Dask's spans; the
step of what was fused into the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.analysis.trace.run_graphs import KeyLayers, LayerSteps, RunGraphs, inherited_steps
from dasfprof.database.columns import Array
from dasfprof.schema.steps import SEPARATOR

Columns = dict[str, Any]

#: Dask's span of everything that is in no span.
_NO_SPAN = ("default",)


@dataclass(frozen=True)
class BuiltLayers:
    """Layers of graphs that were built in steps or at lines.

    Of steps also those that were built in none, out of layers that steps built.
    """

    #: ``timestamp``, ``id`` (of the step or line, -1: none), ``layer``, ``dependencies`` (their
    #: number).
    columns: Columns
    #: The layers that each depends on, one after the other.
    dependencies: Array

    def by_layer(self, identities: Array) -> dict[int, list[int]]:
        """Return the layers that each depends on, by their identities."""
        lengths = np.maximum(self.columns["dependencies"], 0)
        ends = np.cumsum(lengths)
        layer, ids = identities[self.columns["layer"]], identities[self.dependencies].tolist()
        found: dict[int, list[int]] = {}
        for row in np.flatnonzero(lengths).tolist():
            found.setdefault(int(layer[row]), []).extend(ids[ends[row] - lengths[row] : ends[row]])
        return found


def step_table(begun: Columns, ended: Columns) -> pd.DataFrame:
    """Return a row for each time that a step was entered, see `Trace.steps`."""
    order = np.argsort(begun["timestamp"], kind="stable")
    ids, starts = begun["id"][order], begun["timestamp"][order]
    parents, names = begun["parent"][order].tolist(), np.asarray(begun["step"])[order].tolist()
    row_of = {number: row for row, number in enumerate(ids.tolist())}
    ends = dict(zip(ended["id"].tolist(), ended["timestamp"].tolist(), strict=True))
    rows = [row_of.get(parent, -1) for parent in parents]
    paths: list[str] = []
    for row, (parent, name) in enumerate(zip(rows, names, strict=True)):
        around = f"{paths[parent]}{SEPARATOR}" if 0 <= parent < row else ""
        paths.append(f"{around}{name}")
    stops = np.array([ends.get(number, np.nan) for number in ids.tolist()], dtype=float)
    return pd.DataFrame(
        {
            "step": pd.Series(paths, dtype=object),
            "name": pd.Series(names, dtype=object),
            "parent": np.array(rows, dtype=np.int64),
            "start": starts,
            # The clock may have been set back.
            "duration": np.maximum(stops - starts, 0.0),
            "id": ids,
        }
    )


class TaskSteps:
    """Finds the steps of task runs.

    Parameters
    ----------
    steps
        The steps that were entered, see `step_table`.
    layers
        The layers that they built.
    known
        The layers of keys.
    graphs, runs
        The graphs that arrived at the scheduler, and those of task runs.
    """

    def __init__(
        self,
        steps: pd.DataFrame,
        layers: BuiltLayers,
        known: KeyLayers,
        graphs: pd.DataFrame,
        runs: RunGraphs,
    ) -> None:
        self._numbers: dict[str, int] = {}
        self._runs = runs
        self._layer_of_key = known.of_keys
        self._read_layers(steps, layers, known.of_layers)
        self._read_graphs(graphs)

    def _read_layers(self, steps: pd.DataFrame, layers: BuiltLayers, identities: Array) -> None:
        number_of = {
            number: self._number(path)
            for number, path in zip(steps["id"].tolist(), steps["step"], strict=True)
        }
        of_rows = [number_of.get(number, -1) for number in layers.columns["id"].tolist()]
        step = np.array(of_rows, dtype=np.int64)
        layer, time = identities[layers.columns["layer"]], layers.columns["timestamp"]
        built = np.flatnonzero((step >= 0) & (layer > 0))
        self._layers = LayerSteps(layer[built], step[built], time[built])
        derived = layers.by_layer(identities)
        inherited = inherited_steps(
            derived,
            dict(zip(layer[built].tolist(), step[built].tolist(), strict=True)),
            set(np.unique(self._layer_of_key).tolist()) if derived else set(),
        )
        self._inherited = LayerSteps(
            np.array(list(inherited), dtype=np.uint64),
            np.array(list(inherited.values()), dtype=np.int64),
            np.zeros(len(inherited)),
        )

    def _read_graphs(self, graphs: pd.DataFrame) -> None:
        self._computed = np.full(len(graphs) + 1, -1, dtype=np.int64)
        for row, names in enumerate(graphs.get("step", ())):
            if isinstance(names, tuple | list) and names:
                self._computed[row] = self._number(SEPARATOR.join(map(str, names)))

    def find(self, runs: Columns) -> pd.Categorical:
        """Return the step of each task run, NA where none is known."""
        key_ids = runs["key_id"]
        if not self._numbers and "annotations" not in runs:
            return make_categorical(np.broadcast_to(np.int32(-1), len(key_ids)), [])
        graph = self._runs.find(runs)
        computed, arrival = self._computed[graph], self._runs.arrivals[graph]
        layer = self._layer_of_key[key_ids]
        arrival = np.where(np.isnan(arrival), np.inf, arrival)
        found = self._layers.find(layer, computed, arrival)
        found = np.where(found >= 0, found, computed)
        found = np.where(found >= 0, found, self._annotated(runs))
        rows = np.flatnonzero(found < 0)
        found[rows] = self._inherited.find(layer[rows], found[rows], arrival[rows])
        return make_categorical(found.astype(np.int32), list(self._numbers))

    def _annotated(self, runs: Columns) -> Array:
        """Return the steps that annotations of the person's own tell of."""
        found = np.full(len(runs["key_id"]), -1, dtype=np.int64)
        if "annotations" not in runs:
            return found
        # Equal annotations are one object: see `Categories.objects`.
        objects = runs["annotations"].to_numpy()
        identities = np.fromiter(map(id, objects), dtype=np.int64, count=len(objects))
        _, first, places = np.unique(identities, return_index=True, return_inverse=True)
        codes = [self._annotation(objects[row]) for row in first.tolist()]
        return np.array(codes, dtype=np.int64)[places] if codes else found

    def _annotation(self, annotations: Any) -> int:
        if not isinstance(annotations, dict):
            return -1
        step, span = annotations.get("step"), annotations.get("span")
        if isinstance(step, str) and step:
            return self._number(step)
        names = span.get("name") if isinstance(span, dict) else None
        if isinstance(names, tuple | list) and names and tuple(names) != _NO_SPAN:
            return self._number(SEPARATOR.join(map(str, names)))
        return -1

    def _number(self, path: str) -> int:
        return self._numbers.setdefault(path, len(self._numbers))
