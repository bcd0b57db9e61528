"""Which graph each task run came with, the layer of each key, and the step that built it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import distinct
from dasfprof.analysis.trace.keys import KeyTable
from dasfprof.database import keys
from dasfprof.database.columns import Array

# --- Which step of the pipeline built the layer of the graph that a key belongs to ----------------
#
# A layer is known again by its *identity*, 64 bits: of the hash that Dask puts behind the name,
# since fused tasks are named after all functions in them but end in the hash of the last; of the
# whole name, where there is no hash. 0 is the identity of no layer.

#: Bits of a time beside a layer's number: microseconds, 12 days of them.
_TIME_BITS = 40
#: Mixes the two halves of a hash; arrays of integers wrap around.
_ODD = np.uint64(0xFF51AFD7ED558CCD)


class LayerNames:
    """Numbers the names of layers that have no hash."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bool, str], int] = {}

    def identities(self, table: KeyTable, *, new: bool = False) -> Array:
        """Return the identity of the layer of each key.

        Parameters
        ----------
        table
            The keys; of layers, whose names are keys as well, or of tasks.
        new
            Whether names that are not known get a number: they do if they are those of layers.
        """
        bases = np.zeros(len(table.heads), dtype=np.uint64)
        kinds = np.array([kind for kind, _ in table.heads], dtype=np.int8)
        for place in np.flatnonzero(kinds == keys.NUMBERED).tolist():
            bases[place] = self._number((True, table.heads[place][1]), new) << 32
        named = np.flatnonzero((kinds == keys.TEXT) | (kinds >= keys.TUPLE))
        bases[named] = self._of_names([table.heads[place][1] for place in named.tolist()], new)
        found: Array = bases[table.head_ids]
        kind_of = kinds[table.head_ids]
        hashed = np.flatnonzero((kind_of == keys.HEX) | (kind_of == keys.UUID))
        found[hashed] = _hash(table.tails_of(hashed))
        numbered = np.flatnonzero((kind_of == keys.NUMBERED) & (found > 0))
        found[numbered] += table.tails_of(numbered)[:, 0]
        return found

    def _of_names(self, names: list[str], new: bool) -> Array:
        """Return the identities of the layers that keys which are tuples name first."""
        found = np.zeros(len(names), dtype=np.uint64)
        # Those that end in a hash may be as many as there are keys: they are split together.
        hashed = np.array([name[-33:-32] == "-" for name in names], dtype=bool)
        for rows in (np.flatnonzero(hashed), np.flatnonzero(~hashed)):
            texts = [names[row] for row in rows.tolist()]
            heads, tails = keys.split_keys(texts) if texts else ([], np.empty((0, 4)))
            kinds = np.array([kind for kind, _ in heads], dtype=np.int8)
            ended = (kinds == keys.HEX) | (kinds == keys.UUID)
            found[rows[ended]] = _hash(tails[ended])
            for at in np.flatnonzero(~ended).tolist():
                kind, text = heads[at]
                if kind == keys.NUMBERED:
                    number = self._number((True, text), new)
                    found[rows[at]] = (number << 32) + int(tails[at, 0]) if number else 0
                else:
                    found[rows[at]] = self._number((False, texts[at]), new)
        return found

    def _number(self, name: tuple[bool, str], new: bool) -> int:
        if new:
            return self._numbers.setdefault(name, len(self._numbers) + 1)
        return self._numbers.get(name, 0)


def _hash(tails: Array) -> Array:
    words = tails.astype(np.uint64)
    high = (words[:, 0] << np.uint64(32)) | words[:, 1]
    found: Array = high * _ODD + ((words[:, 2] << np.uint64(32)) | words[:, 3])
    return found


class LayerSteps:
    """The steps that built layers.

    Parameters
    ----------
    layers, steps, times
        A row each time that a step built a layer: identity, number of the step, Unix seconds.
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

    def find(self, layers: Array, computed: Array, arrival: Array) -> Array:
        """Return the number of the step that built each layer, -1 where none did.

        Of several it is the one in which the layer is computed; else the last before the graph
        arrived, or the first.

        Parameters
        ----------
        layers
            Identities.
        computed
            The step in which each is computed; -1: none.
        arrival
            Unix seconds.
        """
        found = np.full(len(layers), -1, dtype=np.int64)
        if not len(self._layers):
            return found
        places = np.minimum(np.searchsorted(self._layers, layers), len(self._layers) - 1)
        rows = np.flatnonzero(self._layers[places] == layers)
        numbers, computed = places[rows], computed[rows]
        until = np.searchsorted(self._times, self._at(numbers, arrival[rows]), side="right") - 1
        found[rows] = self._steps[np.maximum(until, self._first[numbers])]
        both = (computed >= 0) & (computed < self._count)
        both &= np.isin(numbers * self._count + computed, self._pairs)
        found[rows[both]] = computed[both]
        return found

    def _at(self, numbers: Array, times: Array) -> Array:
        """Put layer and time into one number, to sort and to search by."""
        since = np.nan_to_num((times - self._begin) * 1e6, nan=0.0, posinf=0.0, neginf=0.0)
        ticks = np.clip(since, 0, (1 << _TIME_BITS) - 1).astype(np.int64)
        at: Array = (numbers << _TIME_BITS) + ticks
        return at


def inherited_steps(
    derived: Mapping[int, Iterable[int]], built: dict[int, int], ran: set[int]
) -> dict[int, int]:
    """Find layers that no step built, with tasks that do the work of layers that one did.

    Where Dask fuses layers their tasks are called after the last. Those before it have no tasks.

    Parameters
    ----------
    derived
        Layers that no step built, and what each depends on.
    built
        Layers that steps built, and the last of those.
    ran
        Layers that have tasks.

    Returns
    -------
    dict
        Layers and steps: that of the nearest layer which was fused into it.
    """
    inherited = {}
    for layer, dependencies in derived.items():
        waiting, seen = list(dependencies), {layer}
        while waiting and layer in ran:
            inner = waiting.pop(0)
            if inner in seen or inner in ran:
                continue
            if inner in built:
                inherited[layer] = built[inner]
                break
            seen.add(inner)
            waiting += derived.get(inner, ())
    return inherited


# --- Which graph each task run came with, and which layer each key belongs to ---------------------

Columns = dict[str, Any]


class RunGraphs:
    """Finds the graphs of task runs, by their rows.

    Parameters
    ----------
    graphs
        The graphs that arrived at the scheduler.
    runs
        The scheduler's task runs.
    keys
        How many keys of tasks there are.
    """

    def __init__(self, graphs: pd.DataFrame, runs: Columns, keys: int) -> None:
        #: When each arrived; the last is that of no graph.
        self.arrivals = np.append(graphs["time"].to_numpy(dtype=float), np.nan)
        ids = graphs["stimulus"].to_numpy() if "stimulus" in graphs else np.empty(0, dtype=np.int64)
        self._of_stimulus = np.full(int(ids.max(initial=-1)) + 1, -1, dtype=np.int64)
        self._of_stimulus[ids] = np.arange(len(ids))
        #: Of each key that of its last run; -1: unknown.
        self.of_keys = np.full(keys, -1, dtype=np.int64)
        found = self._told(runs)
        known = np.flatnonzero(found >= 0)
        self.of_keys[runs["key_id"][known]] = found[known]

    def find(self, runs: Columns) -> Array:
        """Return the row of the graph of each task run, -1 where it is not known.

        A key that runs once more does so for the graph that it came with.
        """
        found = self._told(runs)
        graphs: Array = np.where(found >= 0, found, self.of_keys[runs["key_id"]])
        return graphs

    def _told(self, runs: Columns) -> Array:
        if "graph" not in runs:
            return np.full(len(runs["key_id"]), -1, dtype=np.int64)
        ids = np.nan_to_num(runs["graph"].astype(float), nan=-1.0).astype(np.int64)
        known = (ids >= 0) & (ids < len(self._of_stimulus))
        found = np.full(len(ids), -1, dtype=np.int64)
        found[known] = self._of_stimulus[ids[known]]
        return found


class KeyLayers:
    """The identities of layers, and those of the layers that keys belong to."""

    def __init__(self, layers: KeyTable, keys: KeyTable) -> None:
        names = LayerNames()
        self.of_layers = names.identities(layers, new=True)
        nothing = np.broadcast_to(np.uint64(0), len(keys))
        self.of_keys = names.identities(keys) if len(self.of_layers) else nothing
