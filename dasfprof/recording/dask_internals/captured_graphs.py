"""Functions that capture the graph of a collection or a program, without computing the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Any, NoReturn

import dask
from dask.utils import key_split
from distributed import Client

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Entries, Patch

#: Name of the tasks with which Dask reads the footers of Parquet files. Footers are only metadata.
_FOOTERS = "_gather_statistics"


class NeedsComputingError(Exception):
    """Raised if Dask would have to compute results before it can build the graph."""


class _Captured(Exception):  # noqa: N818  (It is not an error.)
    """Raised to end a call of `compute` when Dask has optimized the graph.

    The arguments are the graph and the keys.
    """


def capture_graph(collection: Any) -> tuple[Any, Any, float]:
    """Return the graph and the keys that ``collection.compute()`` would send, and a duration.

    The duration is how many seconds Dask took to build and optimize the graph.

    Raises
    ------
    NeedsComputingError
        If Dask would first compute other results, such as quantiles for `set_index`.
    """

    def capture(graph: Any, keys: Any, **_: object) -> NoReturn:
        raise _Captured(graph, keys)

    start = monotonic()
    try:
        with dask.config.set(scheduler=_refuse):
            getattr(collection, "compute", partial(dask.compute, collection))(scheduler=capture)
    except _Captured as captured:
        graph, keys = captured.args
        return graph, keys, monotonic() - start
    return {}, [], monotonic() - start


def optimised_expression(collection: Any) -> Any:
    """Return the optimized expression of a dataframe, in the form in which Dask sends it.

    Return None for other collections, and for versions of Dask that send a graph.
    """
    # The class is examined, because an instance of `Delayed` has every attribute.
    if not hasattr(type(collection), "expr"):
        return None
    with dask.config.set(scheduler=_refuse):
        return collection.optimize().expr


def stop_at_first_compute(handle: Callable[[Any, Any], Any]) -> None:
    """Call a function with each graph that this process would compute, until the process ends.

    Parameters
    ----------
    handle
        Called with a graph and the requested keys. It must raise an exception that ends the
        program. Graphs that only read footers of Parquet files are computed instead.
    """
    schedulers = names.ESTIMATES.find("named_schedulers")
    wrap = partial(_intercepting, handle)
    for name in schedulers:
        Patch(Entries(schedulers), name, wrap)
    dask.config.set(scheduler=wrap(dask.get))
    Patch(Client, "_graph_to_futures", wrap)


def _intercepting(handle: Callable[..., Any], original: Any, _: Patch | None = None) -> Any:
    def get(*args: Any, **kwargs: Any) -> Any:
        # The name of the graph's parameter differs between versions of Dask. A client may be passed
        # before the graph.
        given = [value for value in (*args, *kwargs.values()) if not isinstance(value, Client)]
        keys = kwargs.get("keys", given[1])
        return original(*args, **kwargs) if reads_footers(keys) else handle(given[0], keys)

    return get


def _refuse(graph: Any, keys: Any, **_: object) -> Any:
    """Compute a graph that only reads footers of files, or raise an error for any other graph."""
    if reads_footers(keys):
        return dask.get(graph, keys)
    raise NeedsComputingError(key_split(next(flat(keys), "")))


def reads_footers(keys: Any) -> bool:
    """Return whether Dask computes these keys only to read footers of Parquet files."""
    return bool(key_split(next(flat(keys), "")) == _FOOTERS)


def flat(keys: Any) -> Iterator[Any]:
    """Yield each key in nested lists and sets of keys."""
    if isinstance(keys, list | set | frozenset):
        for part in keys:
            yield from flat(part)
    else:
        yield keys
