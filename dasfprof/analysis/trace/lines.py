"""The lines of the program, and which of them built each task run.

The line of a task run is the first known of these: the line that built its graph layer; the line
that sent its graph, if this line alone built the graph; for tasks of P2P shuffles, the line of the
tasks that use their results. If Dask fused layers of several lines into one task, the task belongs
to all these lines, because the time of each layer is not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.columns import Columns, make_categorical
from dasfprof.analysis.trace.keys import KeyTable, function_name
from dasfprof.analysis.trace.steps import (
    BuiltLayers,
    KeyLayers,
    LayerSteps,
    RunGraphs,
    codes_of,
    fused_layers,
)
from dasfprof.database.columns import Array

#: Reasons why the line of a task run is unknown. Their order is that of their codes.
NOT_RECORDED = "lines were not recorded"
OF_OTHERS = "sent by a task, or by a client that was not recorded"
NO_GRAPH = "graph of the task not recorded"
MADE_BY_DASK = "line that built the layer not recorded"
REASONS = (NOT_RECORDED, OF_OTHERS, NO_GRAPH, MADE_BY_DASK)

#: Tasks of P2P shuffles whose names do not contain their layer. They get the line of the tasks that
#: use their results.
_OF_SHUFFLES = ("hash-join-transfer", "shuffle-transfer", "rechunk-transfer", "shuffle-barrier")

_FACTS = ["file", "number", "code", "text", "missing", "cell"]
_LIBRARY = ["library", "library_line", "library_code"]


def line_table(noted: Columns) -> tuple[pd.DataFrame, dict[int, int]]:
    """Return the distinct lines (see `Trace.lines`), and the row of each line id in this table."""
    table = pd.DataFrame(
        {name: pd.Series(np.asarray(noted[name]), dtype=object) for name in noted}
        | {"id": noted["id"], "number": noted["line"], "library_line": noted["library_line"]}
    )
    table = table[table["file"].notna() & (table["number"] >= 0)]
    names = _names(table)
    places_of = zip(table["file"], table["number"], strict=True)
    table = table.assign(line=[f"{names[file]}:{number}" for file, number in places_of])
    first = table.drop_duplicates("line")[["line", *_FACTS, *_LIBRARY]].reset_index(drop=True)
    places = {line: row for row, line in enumerate(first["line"].tolist())}
    rows = {
        number: places[line]
        for number, line in zip(table["id"].tolist(), table["line"].tolist(), strict=True)
    }
    first["fused"] = [()] * len(first)
    return first, rows


def _names(table: pd.DataFrame) -> dict[str, str]:
    """Map each file's path to its name in line labels, such as ``a.py`` in ``a.py:3``."""
    cells = {
        file: cell
        for file, cell in zip(table["file"], table["cell"], strict=True)
        if isinstance(cell, str)
    }
    files = table["file"].unique().tolist()
    short = Counter(PurePath(file).name for file in files)
    # A notebook cell has the name that Jupyter shows. Any other file has its base name if that is
    # unique, and its path otherwise.
    return {
        file: cells.get(file, name if short[name := PurePath(file).name] == 1 else file)
        for file in files
    }


@dataclass(frozen=True)
class FusedLayers:
    """Shared layers: graph layers that Dask fused into more than one other layer.

    The tasks of each of these other layers execute the shared layer, too.
    """

    #: For each layer with tasks: the layers that were fused into it and also into others, nearest
    #: first.
    shared: Mapping[int, Sequence[int]]
    #: For each layer with tasks: the other functions that its tasks execute.
    others: Mapping[int, set[str]]
    #: For each shared layer: its function, and the name of its line.
    functions: Mapping[int, str]
    lines: Mapping[int, str]
    #: The layer of each key.
    of_keys: Array
    #: Layers whose tasks read or create chunks only within their shared layers.
    only_shared: set[int]


class TaskLines:
    """Finds the source lines of task runs.

    Parameters
    ----------
    noted
        The lines that were recorded.
    layers
        The layers that these lines built.
    mapped
        The graphs that a single line built, each with the ``id`` of the line and the ``key`` of one
        task in the graph.
    known, keys
        The layer of each key, and the keys.
    graphs, runs
        The graphs that arrived at the scheduler, and the lookup of task runs' graphs.
    clients
        The clients that were recorded.
    """

    def __init__(  # noqa: PLR0917
        self,
        noted: Columns,
        layers: BuiltLayers,
        mapped: Columns,
        known: KeyLayers,
        keys: KeyTable,
        graphs: pd.DataFrame,
        runs: RunGraphs,
        clients: set[str],
    ) -> None:
        self._table, rows = line_table(noted)
        self._runs, self._of_keys = runs, known.of_keys
        line = codes_of(layers.columns["id"], rows)
        layer = known.of_layers[layers.columns["layer"]]
        built = np.flatnonzero((line >= 0) & (layer > 0))
        self._layers = LayerSteps(layer[built], line[built], layers.columns["timestamp"][built])
        depends = self._depends = layers.by_layer(known.of_layers)
        self._fused = fused_layers(depends, set(self._of_keys.tolist()) if depends else set())
        #: Row of the line that built each graph. The last entry stands for "no graph".
        self._of_graph = np.full(len(graphs) + 1, -1, dtype=np.int64)
        of_mapped = runs.of_keys[mapped["key"]] if len(mapped["key"]) else mapped["key"]
        self._of_graph[of_mapped] = codes_of(mapped["id"], rows)
        self._of_graph[-1] = -1
        sent = [client in clients for client in graphs["client"].tolist()]
        self._is_ours = np.append(np.array(sent, dtype=bool), False)
        self._groups: dict[tuple[int, ...], int] = {}
        codes, names = keys.functions()
        self._shuffles = np.isin(np.array(names, dtype=object), _OF_SHUFFLES)[codes]

    @property
    def table(self) -> pd.DataFrame:
        """The known lines, followed by the groups of lines that `find` has created so far."""
        if not self._groups:
            return self._table
        last = self._table.iloc[[rows[-1] for rows in self._groups]].reset_index(drop=True)
        names = [[self._table["line"][row] for row in rows] for rows in self._groups]
        groups = last.assign(
            line=[_joined(each) for each in names],
            fused=pd.Series([tuple(each[:-1]) for each in names], dtype=object),
        )
        return pd.concat([self._table, groups], ignore_index=True)

    def fused_layers(self, identities: Array, layers: KeyTable) -> FusedLayers:
        """Return the layers that were fused into several others.

        `identities` contains the identity of each layer in `layers`.
        """
        times = Counter(layer for fused in self._fused.values() for layer in fused)
        shared = {
            layer: again
            for layer, fused in self._fused.items()
            if (again := [inner for inner in fused if times[inner] > 1])
        }
        known = {layer for each in shared for layer in (each, *self._fused[each])}
        rows = np.flatnonzero(np.isin(identities, np.array([*known], dtype=np.uint64)))
        names = zip(identities[rows].tolist(), layers.texts(rows).tolist(), strict=True)
        functions = {layer: function_name(name) for layer, name in names}
        inner = np.array(
            [*{inner_layer for each in shared.values() for inner_layer in each}], dtype=np.uint64
        )
        line = self._layers.find(inner)
        lines = {
            layer: str(self._table["line"][row])
            for layer, row in zip(inner.tolist(), line.tolist(), strict=True)
            if row >= 0
        }
        others = {
            layer: {
                functions.get(inner_layer, "")
                for inner_layer in {layer, *self._fused[layer]} - {*again}
            }
            for layer, again in shared.items()
        }
        only_shared = {
            layer
            for layer, again in shared.items()
            if all(
                set() < {*self._depends.get(other, ())} <= {*self._fused[layer]}
                for other in {layer, *self._fused[layer]} - {*again}
            )
        }
        of_keys = self._of_keys if shared else inner
        return FusedLayers(shared, others, functions, lines, of_keys, only_shared)

    def find(
        self, runs: Columns, dependencies: tuple[Array, Array] | None = None
    ) -> tuple[pd.Categorical, pd.Categorical]:
        """Return two columns: the line of each task run, and the reason if the line is unknown.

        In each row, one of the two is NA. `dependencies` contains the number of dependencies of
        each task run, and the key ids of all dependencies.
        """
        key_ids = runs["key_id"]
        if not len(self._table):
            unknown = np.full(len(key_ids), -1, dtype=np.int8)
            reasons = np.full(len(key_ids), REASONS.index(NOT_RECORDED), dtype=np.int8)
            return make_categorical(unknown, []), make_categorical(reasons, list(REASONS))
        graph, layer = self._runs.find(runs), self._of_keys[key_ids]
        arrival = self._runs.arrivals[graph]
        line = self._layers.find(layer, arrival=arrival)
        line = np.where(line >= 0, line, self._of_graph[graph])
        if dependencies is not None:
            self._inherit(line, key_ids, dependencies)
        # A task that uses results of the same layer executes no fused layers.
        go_on = np.zeros(len(layer), dtype=bool)
        if dependencies is not None and self._fused:
            rows = np.repeat(np.arange(len(layer)), np.maximum(dependencies[0], 0))
            go_on[rows[self._of_keys[dependencies[1]] == layer[rows]]] = True
        self._group(line, layer, arrival, go_on)
        why = np.full(len(line), REASONS.index(MADE_BY_DASK), dtype=np.int8)
        why[~self._is_ours[graph]] = REASONS.index(OF_OTHERS)
        why[graph < 0] = REASONS.index(NO_GRAPH)
        why[line >= 0] = -1
        lines = make_categorical(line.astype(np.int32), self.table["line"].tolist())
        return lines, make_categorical(why, list(REASONS))

    def _inherit(self, line: Array, key_ids: Array, dependencies: tuple[Array, Array]) -> None:
        """Assign tasks of shuffles to the line of the tasks that use their results."""
        wanted = np.flatnonzero(self._shuffles[key_ids] & (line < 0))
        if not len(wanted):
            return
        users = np.repeat(np.arange(len(line)), np.maximum(dependencies[0], 0))
        # The last tasks of a shuffle use results of its barrier, and the barrier uses results of
        # its transfers. So the line is passed on twice.
        for _ in range(2):
            lines = line[users]
            known = lines >= 0
            least = np.full(len(self._of_keys), np.iinfo(np.int64).max)
            most = np.full(len(self._of_keys), -1, dtype=np.int64)
            np.minimum.at(least, dependencies[1][known], lines[known])
            np.maximum.at(most, dependencies[1][known], lines[known])
            keys = key_ids[wanted]
            # If these tasks have several lines, the line stays unknown.
            line[wanted] = np.where(least[keys] == most[keys], most[keys], line[wanted])

    def _group(self, lines: Array, layer: Array, arrival: Array, go_on: Array) -> None:
        """Replace the line in `lines` by a group of lines for each task that executes fused layers.

        `layer` is the layer of each task, and `arrival` is when its graph arrived. Tasks in the
        mask `go_on` execute no fused layers.
        """
        into = np.fromiter(self._fused, dtype=np.uint64, count=len(self._fused))
        rows = np.flatnonzero((lines >= 0) & ~go_on & np.isin(layer, into))
        if not len(rows):
            return
        pairs = np.stack(
            [layer[rows], arrival[rows].view(np.uint64), lines[rows].astype(np.uint64)]
        )
        kinds, places = np.unique(pairs, axis=1, return_inverse=True)
        # A group consists of the lines of the fused layers and the task's line.
        groups = np.array([self._group_of(*kind) for kind in kinds.T.tolist()], dtype=np.int64)
        lines[rows] = groups[places.ravel()]

    def _group_of(self, layer: int, arrival: int, line: int) -> int:
        inner = np.array(self._fused[layer][::-1], dtype=np.uint64)
        until = np.array([arrival], dtype=np.uint64).view(np.float64)
        lines = self._layers.find(inner, arrival=until)
        members = dict.fromkeys(row for row in lines.tolist() if row not in (-1, line))
        if not members:
            return line
        return len(self._table) + self._groups.setdefault((*members, line), len(self._groups))


def _joined(lines: Sequence[str]) -> str:
    """Return the name of a group of lines, such as ``a.py:3, 5 + b.py:1``."""
    places = [line.rpartition(":")[::2] for line in lines]
    files = groupby(places, key=lambda place: place[0])
    return " + ".join(
        f"{file}:{', '.join(number for _, number in members)}" for file, members in files
    )
