"""`SentGraph`: the tasks of a graph that Dask would send to the cluster. Nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from dask.utils import key_split

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.captured_graphs import flat
from dasfprof.recording.dask_internals.graphs import line_of
from dasfprof.recording.steps.line import Place

#: Starts of the names of functions that `compute` adds to combine the results of a collection.
_JOINING = ("finalize", "repartitiontofewer")

#: Threshold: if a graph has more tasks, their arguments are not compared. Also, the types of
#: arguments that are compared by value.
_MOST_COMPARED = 100_000
_PLAIN = (int, float, str, bytes, bool, type(None))


@dataclass
class SentLayer:
    """The tasks of a layer of a graph.

    Tasks whose keys do not contain a layer's name form one `SentLayer` if they have the same
    function and the same line.
    """

    #: Name of the layer. None for tasks that have text as keys.
    name: str | None
    function: str
    #: File, line and function that built the layer, or None if unknown.
    place: Place | None
    #: The key of the first task.
    key: Any
    #: The numbers of the tasks. If the keys are tuples, `blocks` has each key without the name.
    tasks: list[int] = field(default_factory=list)
    blocks: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class SentGraph:
    """A graph that Dask would send to the cluster. Tasks and layers are numbered."""

    layers: list[SentLayer]
    #: By task: the number of its layer, and whether the client requests the task's result.
    layer_of: np.ndarray
    wanted: np.ndarray
    #: The dependencies of each task, as compressed rows: those of task ``i`` are
    #: ``inputs[input_offsets[i]:input_offsets[i + 1]]``.
    input_offsets: np.ndarray
    inputs: np.ndarray
    #: By task: whether the task only combines results. Aliases and tasks that `compute` adds do so.
    joins: np.ndarray
    #: By task: the bytes of the object if the task is only an object in the graph, or else NaN.
    constants: np.ndarray
    specifications: Mapping[Any, Any]

    def __len__(self) -> int:
        return len(self.layer_of)

    def priorities(self) -> np.ndarray:
        """Return the rank of each task in the order in which Dask would run the tasks."""
        ranks = names.ESTIMATES.find("order")(dict(self.specifications))
        return np.array([ranks[key] for key in self.specifications], dtype=np.int64)

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield each pair of a layer and a layer on which it depends, without duplicates."""
        takers = self.layer_of[np.repeat(np.arange(len(self)), np.diff(self.input_offsets))]
        pairs = np.sort(takers * len(self.layers) + self.layer_of[self.inputs])
        pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])] if len(pairs) else pairs
        for pair in pairs.tolist():
            taker, giver = divmod(pair, len(self.layers))
            if taker != giver:
                yield taker, giver


def sent_graph(graph: Any, keys: Any) -> SentGraph:
    """Return the tasks of a graph that are needed for the keys, grouped by layers."""
    graph = graph.__dask_graph__() if hasattr(graph, "__dask_graph__") else graph
    tasks = names.ESTIMATES.find("convert_legacy_graph")(dict(graph))
    alias, constant = (names.ARGUMENTS.find(name) for name in ("Alias", "DataNode"))
    wanted = [key for key in dict.fromkeys(flat(keys)) if key in tasks]
    numbers = {key: number for number, key in enumerate(wanted)}
    work, inputs, offsets, joins, sizes = list(wanted), [], [0], [], []
    for key in work:  # The list grows.
        task = tasks[key]
        for other in task.dependencies:
            number = numbers.get(other)
            if number is None:
                if other not in tasks:
                    continue  # The result already exists.
                number = numbers[other] = len(work)
                work.append(other)
            inputs.append(number)
        offsets.append(len(inputs))
        joins.append(type(task) is alias)
        sizes.append(sizeof(task.value) if type(task) is constant else nan)
    layer_of, layers = _layers(work)
    final = np.array([x.function.startswith(_JOINING) for x in layers], dtype=bool)
    needed = {key: tasks[key] for key in work}
    return SentGraph(
        layers,
        layer_of,
        wanted=np.arange(len(work)) < len(wanted),
        input_offsets=np.array(offsets, dtype=np.int64),
        inputs=np.array(inputs, dtype=np.int64),
        joins=np.array(joins, dtype=bool) | final[layer_of],
        constants=np.array(sizes),
        specifications=needed,
    )


def repeated_calls(sent: SentGraph) -> Iterator[tuple[str, list[str]]]:
    """Yield each function that several tasks call with equal arguments, and the keys of the tasks.

    Only delayed functions with arguments count.
    """
    calls: dict[Any, list[str]] = {}
    for key, task in sent.specifications.items() if len(sent) <= _MOST_COMPARED else ():
        function, args = getattr(task, "func", None), getattr(task, "args", ())
        known = (*_PLAIN, names.ARGUMENTS.find("TaskRef"))
        # Functions without arguments may return random values. Arguments are equal if they are
        # equal plain values, or the result of the same task.
        is_plain = args and not task.kwargs and all(isinstance(value, known) for value in args)
        if function is not None and isinstance(key, str) and is_plain:
            given = [(type(value), getattr(value, "key", value)) for value in args]
            calls.setdefault((function, *given), []).append(key)
    yield from ((key_split(keys[0]), keys) for keys in calls.values() if len(keys) > 1)


def _layers(keys: list[Any]) -> tuple[np.ndarray, list[SentLayer]]:
    """Return an array with the index of each task's layer, and the list of layers."""
    numbers: dict[Any, int] = {}
    of_task = np.empty(len(keys), dtype=np.int64)
    layers: list[SentLayer] = []
    for task, key in enumerate(keys):
        name = key[0] if type(key) is tuple and key and type(key[0]) is str else None
        number = None if name is None else numbers.get(name)
        if number is None:
            function, line = key_split(key), line_of(name or key)
            place = None if line is None else line.place
            number = numbers.setdefault(name or (function, place), len(layers))
            if number == len(layers):
                layers.append(SentLayer(name, function, place, key))
        layers[number].tasks.append(task)
        if name is not None:
            layers[number].blocks.append(key[1:])
        of_task[task] = number
    return of_task, layers
