"""The graph, layer and pipeline step of each task run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import distinct
from dasfprof.analysis.trace.columns import Columns, distinct_objects, make_categorical
from dasfprof.analysis.trace.keys import KeyTable, text_begin
from dasfprof.database import keys
from dasfprof.database.columns import Array, repeated
from dasfprof.schema.steps import SEPARATOR

# A layer is recognized by its *identity* of 64 bits. This is a hash of the hash at the end of the
# layer's name: the name of a fused task contains all its functions, but ends with the hash of the
# last layer. If a name has no hash, its identity is a number for the whole name. The identity 0 is
# not used by any layer.

#: Number of bits for a time, below the bits for the number of a layer. Times are in microseconds,
#: and 40 bits are enough for 12 days.
_TIME_BITS = 40
#: Multiplier that mixes the two halves of a hash. Overflow of integer arrays wraps around.
_ODD = np.uint64(0xFF51AFD7ED558CCD)


class KeyLayers:
    """The identities of layers, and for each key the identity of its layer.

    An identity is the hash in the layer's name, or else a running number.
    """

    def __init__(self, layers: KeyTable, keys: KeyTable) -> None:
        self._numbers: dict[tuple[bool, str], int] = {}
        self.of_layers = self._identities(layers, new=True)
        nothing = np.broadcast_to(np.uint64(0), len(keys))
        self.of_keys = self._identities(keys) if len(self.of_layers) else nothing

    def _identities(self, table: KeyTable, *, new: bool = False) -> Array:
        """Return the identity of the layer of each key, or 0 if it is unknown.

        Parameters
        ----------
        table
            Either keys of tasks, or names of layers (which have the form of keys).
        new
            Whether to assign numbers to names that have neither a hash nor a number yet. True for
            names of layers.
        """
        bases = np.zeros(len(table.heads), dtype=np.uint64)
        kinds = np.array([kind for kind, _ in table.heads], dtype=np.int8)
        for place in np.flatnonzero(kinds == keys.NUMBERED).tolist():
            bases[place] = self._number((True, table.heads[place][1]), new) << 32
        named = np.flatnonzero(np.isin(kinds, (keys.TEXT, keys.PACKED)) | (kinds >= keys.TUPLE))
        # Packed keys are mostly tuples that contain other items than numbers.
        names = [
            text_begin(head).partition("'")[2].partition("'")[0]
            if head[0] == keys.PACKED
            else head[1]
            for head in map(table.heads.__getitem__, named.tolist())
        ]
        bases[named] = self._of_names(names, new)
        layers: Array = bases[table.head_ids]
        kind_of = kinds[table.head_ids]
        hashed = np.flatnonzero((kind_of == keys.HEX) | (kind_of == keys.UUID))
        layers[hashed] = _hash(table.tails_of(hashed))
        numbered = np.flatnonzero((kind_of == keys.NUMBERED) & (layers > 0))
        layers[numbered] += table.tails_of(numbered)[:, 0]
        return layers

    def _of_names(self, names: list[str], new: bool) -> Array:
        """Return the identities of layers, given the names with which tuple keys begin."""
        layers = np.zeros(len(names), dtype=np.uint64)
        # There may be as many names that contain a hash as there are keys, so all of them are split
        # at once.
        hashed = np.array([name[-33:-32] == "-" for name in names], dtype=bool)
        for rows in (np.flatnonzero(hashed), np.flatnonzero(~hashed)):
            texts = [names[row] for row in rows.tolist()]
            heads, tails = keys.split_keys(texts) if texts else ([], np.empty((0, 4)))
            kinds = np.array([kind for kind, _ in heads], dtype=np.int8)
            ended = (kinds == keys.HEX) | (kinds == keys.UUID)
            layers[rows[ended]] = _hash(tails[ended])
            for at in np.flatnonzero(~ended).tolist():
                kind, text = heads[at]
                if kind == keys.NUMBERED:
                    number = self._number((True, text), new)
                    layers[rows[at]] = (number << 32) + int(tails[at, 0]) if number else 0
                else:
                    layers[rows[at]] = self._number((False, texts[at]), new)
        return layers

    def _number(self, name: tuple[bool, str], new: bool) -> int:
        if new:
            return self._numbers.setdefault(name, len(self._numbers) + 1)
        return self._numbers.get(name, 0)


def _hash(tails: Array) -> Array:
    words = tails.astype(np.uint64)
    high = (words[:, 0] << np.uint64(32)) | words[:, 1]
    return high * _ODD + ((words[:, 2] << np.uint64(32)) | words[:, 3])


class LayerSteps:
    """Finds the step that built a layer.

    Parameters
    ----------
    layers, steps, times
        One row for each time that a step built a layer: identity of the layer, code of the step,
        Unix seconds.
    """

    def __init__(self, layers: Array, steps: Array, times: Array) -> None:
        self._begin = float(times.min()) if len(times) else 0.0
        self._layers, numbers = np.unique(layers, return_inverse=True)
        ordered = self._at(numbers.astype(np.int64), times)
        order = np.argsort(ordered, kind="stable")
        self._times, self._steps = ordered[order], steps[order]
        self._count = int(steps.max(initial=-1)) + 2
        self._first = np.searchsorted(self._times, np.arange(len(self._layers)) << _TIME_BITS)
        self._pairs = distinct(numbers.astype(np.int64) * self._count + steps)

    def find(
        self, layers: Array, computed: Array | int = -1, arrival: Array | float = np.inf
    ) -> Array:
        """Return the code of the step that built each layer, or -1 if unknown.

        Parameters
        ----------
        layers
            Identities of layers.
        computed
            The step in which each layer was computed, or -1 if there is none.
        arrival
            Arrival of the graph of each layer, in Unix seconds.
        """
        built_in = np.full(len(layers), -1, dtype=np.int64)
        computed, arrival = (np.broadcast_to(each, len(layers)) for each in (computed, arrival))
        if not len(self._layers):
            return built_in
        places = np.minimum(np.searchsorted(self._layers, layers), len(self._layers) - 1)
        rows = np.flatnonzero(self._layers[places] == layers)
        numbers, computed = places[rows], computed[rows]
        # If several steps built a layer, use the last step that built it before its graph arrived,
        # or else the first step that built it.
        until = np.searchsorted(self._times, self._at(numbers, arrival[rows]), side="right") - 1
        built_in[rows] = self._steps[np.maximum(until, self._first[numbers])]
        # The step in which the layer was computed has priority, if it built the layer.
        both = (computed >= 0) & (computed < self._count)
        both &= np.isin(numbers * self._count + computed, self._pairs)
        built_in[rows[both]] = computed[both]
        return built_in

    def _at(self, numbers: Array, times: Array) -> Array:
        """Return integers that combine layers and times, for sorting and searching.

        `numbers` are indices of layers in `_layers`, one for each of `times`.
        """
        since = np.nan_to_num((times - self._begin) * 1e6, nan=0.0, posinf=0.0, neginf=0.0)
        return (numbers << _TIME_BITS) + np.clip(since, 0, (1 << _TIME_BITS) - 1).astype(np.int64)


def inherited_steps(
    derived: Mapping[int, Iterable[int]], built: dict[int, int], ran: set[int]
) -> dict[int, int]:
    """Return the steps of layers that no step built, inherited from the layers fused into them.

    Parameters
    ----------
    derived
        Layers that no step built, and the layers on which each of them depends.
    built
        Layers that steps built, and the last step that built each of them.
    ran
        Layers that have tasks.

    Returns
    -------
    dict
        For each layer with tasks that no step built, the step of the nearest fused layer that a
        step built. Layers without such a fused layer are missing.
    """
    # If Dask fuses layers, the fused tasks have the name of the last layer, and the earlier layers
    # have no tasks.
    inherited = {}
    for layer, inner in fused_layers(derived, ran).items():
        step = next((built[fused] for fused in inner if fused in built), None)
        if step is not None:
            inherited[layer] = step
    return inherited


def fused_layers(depends: Mapping[int, Iterable[int]], ran: set[int]) -> dict[int, list[int]]:
    """Return, for each layer with tasks, the layers that were fused into it, nearest first."""
    fused: dict[int, list[int]] = {}
    for layer in ran.intersection(depends):
        waiting, inner = list(depends[layer]), []
        # A fused layer has no tasks. The layer depends on it directly or indirectly.
        for before in waiting:
            if before not in ran and before not in inner:
                inner.append(before)
                waiting += depends.get(before, ())
        if inner:
            fused[layer] = inner
    return fused


class RunGraphs:
    """Finds the graph (row of `Trace.graphs`) of each task run.

    Parameters
    ----------
    graphs
        The graphs that arrived at the scheduler.
    runs
        The task runs that the scheduler recorded.
    keys
        Number of keys in the trace.
    """

    def __init__(self, graphs: pd.DataFrame, runs: Columns, keys: int) -> None:
        #: Arrival of each graph in Unix seconds, or infinity if unknown. The last entry stands for
        #: "no graph".
        self.arrivals = np.append(graphs["time"].fillna(np.inf).to_numpy(dtype=float), np.inf)
        ids = graphs["stimulus"].to_numpy()
        self._of_stimulus = np.full(int(ids.max(initial=-1)) + 1, -1, dtype=np.int32)
        self._of_stimulus[ids] = np.arange(len(ids))
        #: Graph of the last task run of each key, or -1 if unknown.
        self.of_keys = np.full(keys, -1, dtype=np.int32)
        graph = self._recorded(runs)
        known = np.flatnonzero(graph >= 0)
        self.of_keys[runs["key_id"][known]] = graph[known]

    def find(self, runs: Columns) -> Array:
        """Return the row of the graph of each task run, or -1 if unknown."""
        # If the graph of a task run was not recorded, the graph of another run of its key is used.
        graph = self._recorded(runs)
        return np.where(graph >= 0, graph, self.of_keys[runs["key_id"]])

    def _recorded(self, runs: Columns) -> Array:
        """Return the row of each task run's graph, or -1 if that graph was not recorded."""
        if "graph" not in runs:
            return repeated(np.int32(-1), len(runs["key_id"]))
        ids = np.nan_to_num(runs["graph"].astype(float), nan=-1.0).astype(np.int64)
        known = (ids >= 0) & (ids < len(self._of_stimulus))
        graph = np.full(len(ids), -1, dtype=np.int32)
        graph[known] = self._of_stimulus[ids[known]]
        return graph


# The step of a task run is the first known of these: the step that built its graph layer; the step
# in which its graph was submitted; the user's annotations (``step``, then Dask's spans); the step
# of a layer that was fused into the task.

#: Name of the span that Dask uses for everything outside of the user's spans.
_NO_SPAN = ("default",)


@dataclass(frozen=True)
class BuiltLayers:
    """Graph layers that were built in steps or at source lines.

    For steps, this includes layers that were built outside of any step, if they depend on layers
    that a step had built.
    """

    #: Columns ``timestamp``, ``id`` (of the step or line, or -1), ``layer``, and ``dependencies``
    #: (number of layers on which the layer depends).
    columns: Columns
    #: The layers on which each of the layers depends, concatenated.
    dependencies: Array

    def by_layer(self, identities: Array) -> dict[int, list[int]]:
        """Return, for each layer, the layers on which it depends, all as identities.

        `identities` contains the identity for each layer number in `columns`.
        """
        lengths = np.maximum(self.columns["dependencies"], 0)
        layers = np.repeat(identities[self.columns["layer"]], lengths).tolist()
        depends: defaultdict[int, list[int]] = defaultdict(list)
        for layer, before in zip(layers, identities[self.dependencies].tolist(), strict=True):
            depends[layer].append(before)
        return dict(depends)


def codes_of(ids: Array, codes: Mapping[int, int]) -> Array:
    """Return the code of each id, or -1 if it has none."""
    return np.array([codes.get(number, -1) for number in ids.tolist()], dtype=np.int64)


def step_table(begun: Columns, ended: Columns) -> pd.DataFrame:
    """Return a table with one row for each time that a step was entered (see `Trace.steps`)."""
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
            # If the clock was set back, the difference may be negative.
            "duration": np.maximum(stops - starts, 0.0),
            "id": ids,
        }
    )


class TaskSteps:
    """Finds the pipeline steps of task runs.

    Parameters
    ----------
    steps
        The steps that were entered. See `step_table`.
    layers
        The layers that these steps built.
    known
        The layer of each key.
    graphs, runs
        The graphs that arrived at the scheduler, and the lookup of task runs' graphs.
    """

    def __init__(
        self,
        steps: pd.DataFrame,
        layers: BuiltLayers,
        known: KeyLayers,
        graphs: pd.DataFrame,
        runs: RunGraphs,
    ) -> None:
        #: The code of each step, by name.
        self._codes: defaultdict[str, int] = defaultdict(count().__next__)
        self._runs = runs
        self._layer_of_key, identities = known.of_keys, known.of_layers
        ids = zip(steps["id"].tolist(), steps["step"], strict=True)
        number_of = {number: self._codes[path] for number, path in ids}
        step = codes_of(layers.columns["id"], number_of)
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
        #: Code of the step in which each graph was submitted. The last entry stands for "no graph".
        self._computed = np.full(len(graphs) + 1, -1, dtype=np.int64)
        for row, names in enumerate(graphs.get("step", ())):
            if isinstance(names, tuple | list) and names:
                self._computed[row] = self._codes[SEPARATOR.join(map(str, names))]

    def find(self, runs: Columns) -> pd.Categorical:
        """Return the step of each task run, or NA if unknown."""
        key_ids = runs["key_id"]
        if not self._codes and "annotations" not in runs:
            return make_categorical(np.broadcast_to(np.int32(-1), len(key_ids)), [])
        graph = self._runs.find(runs)
        computed, arrival = self._computed[graph], self._runs.arrivals[graph]
        layer = self._layer_of_key[key_ids]
        step = self._layers.find(layer, computed, arrival)
        step = np.where(step >= 0, step, computed)
        step = np.where(step >= 0, step, self._annotated(runs))
        rows = np.flatnonzero(step < 0)
        step[rows] = self._inherited.find(layer[rows], step[rows], arrival[rows])
        return make_categorical(step.astype(np.int32), list(self._codes))

    def _annotated(self, runs: Columns) -> Array:
        """Return the code of the step in the annotations of each task run, or -1 if none."""
        if "annotations" not in runs:
            return np.full(len(runs["key_id"]), -1, dtype=np.int64)
        places, objects = distinct_objects(runs["annotations"])
        return np.array(list(map(self._annotation, objects)), dtype=np.int64)[places]

    def _annotation(self, annotations: Any) -> int:
        if not isinstance(annotations, dict):
            return -1
        step, span = annotations.get("step"), annotations.get("span")
        if isinstance(step, str) and step:
            return self._codes[step]
        names = span.get("name") if isinstance(span, dict) else None
        if isinstance(names, tuple | list) and names and tuple(names) != _NO_SPAN:
            return self._codes[SEPARATOR.join(map(str, names))]
        return -1
