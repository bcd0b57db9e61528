"""`plan`: the layers of a collection that has not been computed, and what earlier runs expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from graphlib import TopologicalSorter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NoReturn

import dask
from dask.optimization import cull
from dask.utils import key_split

from dasfprof.analysis.comparison.runs import Sources, open_side
from dasfprof.analysis.history.summary import Experience, Place
from dasfprof.errors import InvalidArgumentError
from dasfprof.recording.dask_internals.graphs import line_of

if TYPE_CHECKING:
    import pandas as pd


_COLUMNS = ["Node", "Function", "Line", "Layer", "Tasks", "Partitions", "Takes", "Expected (s)"]
_COLUMNS += ["Rests On", "Runs", "Task Runs"]
_TYPES = {"Tasks": "int64", "Partitions": "Int64", "Expected (s)": "float64"}
_TYPES |= {"Runs": "int64", "Task Runs": "int64"}


def plan(collection: object, history: Sources) -> pd.DataFrame:
    """List the layers of a collection before it is computed, with what earlier runs expect of them.

    Nothing is computed, no cluster is needed, and the collection stays as it is. Dask optimises a
    copy of its graph as ``collection.compute()`` would, which for some files reads their metadata.

    Parameters
    ----------
    collection
        Of dask.array, dask.dataframe, dask.bag, dask.delayed or another library.
    history
        Earlier runs: a directory with runs, or of directories with a run each; a `TraceAnalyser`;
        what `open_run` takes; or a list of those.

    Returns
    -------
    pandas.DataFrame
        A row a layer of the optimised graph, those first whose results others take:

        - ``Node``: its number and function. Of tasks whose keys are text, such as delayed
          functions, all of a function and line are a layer, as in `TraceAnalyser.plan`
        - ``Function``; ``Line`` that built it, where a run is recorded in this process since before
          that; ``Layer``: its name, NA of tasks whose keys are text
        - ``Tasks``; ``Partitions``: of a collection, NA of tasks whose keys are text
        - ``Takes``: the nodes whose results it takes
        - ``Expected (s)``: thread seconds: its tasks times the mean of a task run of that function
          in a run, the median over runs; NA: nothing was recorded
        - ``Rests On``: task runs of the function that the same ``line`` built, or if there are
          none those of the ``function``; else ``nothing recorded``
        - ``Runs``, ``Task Runs``: how many of each the expectation rests on

    Raises
    ------
    InvalidArgumentError
        If there is no collection, the history has no run, or a source is of another type.
    SourceNotFoundError, NotATraceError
        If there is no such trace.

    Notes
    -----
    Threads are expected to be busy for that long: divided by their number it is the least time that
    the run can take. Data of another size takes another time.

    Examples
    --------
    >>> dasfprof.plan(array.sum(), "traces")["Expected (s)"].sum()  # doctest: +SKIP
    """
    import pandas as pd

    if not dask.is_dask_collection(collection):
        raise InvalidArgumentError(
            f"{collection!r} of type {type(collection).__name__} is no collection of Dask: give an "
            "array, a dataframe, a bag or a delayed function that has not been computed."
        )
    if isinstance(history, Sequence) and not history:
        raise InvalidArgumentError(f"history={history!r} has no run: give a directory with runs.")
    experience = Experience(run.trace for run in open_side(history))
    rows = []
    for node in _nodes(*_optimised(collection)):
        expected = experience.expect(node.function, node.place)
        partitions = None if node.layer is None else node.tasks
        seconds = None if expected.seconds is None else expected.seconds * node.tasks
        about = node.name, node.function, node.line, node.layer, node.tasks, partitions
        basis = expected.basis, expected.runs, expected.tasks
        rows.append((*about, ", ".join(node.takes), seconds, *basis))
    return pd.DataFrame(rows, columns=_COLUMNS, dtype=object).astype(_TYPES)


class _Planned(Exception):  # noqa: N818  (it is no error)
    """Ends the call of `compute` when the graph is optimised."""

    def __init__(self, graph: Any, keys: Any) -> None:
        super().__init__("the graph is optimised")
        self.graph, self.keys = graph, keys


def _optimised(collection: Any) -> tuple[dict[Any, Any], Mapping[Any, Any]]:
    """Return the graph that ``collection.compute()`` would run, and the dependencies of its keys.

    Dataframes of older versions of Dask are optimised in their own method.
    """

    def scheduler(graph: Any, keys: Any, **_: object) -> NoReturn:
        raise _Planned(graph, keys)

    graph, keys = {}, []
    try:
        getattr(collection, "compute", partial(dask.compute, collection))(scheduler=scheduler)
    except _Planned as planned:
        graph, keys = planned.graph, planned.keys
    graph = graph.__dask_graph__() if hasattr(graph, "__dask_graph__") else graph
    return cull(dict(graph), keys)


@dataclass
class _Node:
    """A layer of the graph; see `plan`."""

    name: str
    function: str
    layer: str | None
    place: Place | None
    tasks: int = 0
    takes: dict[str, None] = field(default_factory=dict)

    @property
    def line(self) -> str | None:
        """The line as tables call it."""
        return None if self.place is None else f"{PurePath(self.place[0]).name}:{self.place[1]}"


def _nodes(graph: dict[Any, Any], dependencies: Mapping[Any, Any]) -> list[_Node]:
    """Return the layers of a graph, those first whose results others take."""
    found: dict[Any, _Node] = {}
    of_key: dict[Any, _Node] = {}
    for key in TopologicalSorter(dependencies).static_order():
        if key not in graph:
            continue  # a result that is there
        layer = str(key[0]) if isinstance(key, tuple) and key else None
        function, built = key_split(key), line_of(key if layer is None else layer)
        place = None if built is None else built.place[:2]
        node = found.get((layer, function, place))
        if node is None:
            name = f"{len(found) + 1} {function}"
            node = found[layer, function, place] = _Node(name, function, layer, place)
        node.tasks += 1
        takes = (of_key[other].name for other in dependencies[key] if other in of_key)
        node.takes.update(dict.fromkeys(name for name in takes if name != node.name))
        of_key[key] = node
    return list(found.values())
