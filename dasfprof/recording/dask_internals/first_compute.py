"""`stop_at_first_compute`: intercepts the first graph that a program would compute, in any way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask
from distributed import Client

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.captured_graphs import reads_footers
from dasfprof.recording.dask_internals.patch import Entries, Patch

#: Function that is called with a graph and the requested keys, and does not return.
Take = Callable[[Any, Any], Any]


def stop_at_first_compute(take: Take) -> None:
    """Pass each graph that this process would compute to a function, until the process ends.

    Parameters
    ----------
    take
        Raises what ends the program. Footers of Parquet files are read all the same.
    """
    schedulers = names.ESTIMATES.find("named_schedulers")
    for name in schedulers:
        Patch(Entries(schedulers), name, partial(_taking, take))
    dask.config.set(scheduler=_taking(take, dask.get))
    Patch(Client, "_graph_to_futures", partial(_taking_sent, take))


def _taking(take: Take, original: Any, _: Patch | None = None) -> Any:
    def get(graph: Any, keys: Any, **kwargs: Any) -> Any:
        if reads_footers(keys):
            return original(graph, keys, **kwargs)
        return take(graph, keys)

    return get


def _taking_sent(take: Take, original: Any, _: Patch) -> Any:
    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        # The name of the parameter differs between versions.
        _, graph, keys, *_ = (*args, *kwargs.values())
        keys = kwargs.get("keys", keys)
        return original(*args, **kwargs) if reads_footers(keys) else take(graph, keys)

    return _graph_to_futures
