"""`stuck`: asks the processes of a live cluster, to find out why its work does not finish."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from distributed import Security
from distributed.deploy.cluster import Cluster

from dasfprof.analysis.trace.sent_functions import functions_of_runs
from dasfprof.analysis.under_way.causes import causes_table, find_causes
from dasfprof.analysis.under_way.from_views import state_from_views
from dasfprof.errors import InvalidArgumentError
from dasfprof.recording.cluster.clients import find_client
from dasfprof.recording.cluster.inspection import LIMIT, views_of

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis.under_way.state import ClusterState


def stuck(client: object, *, limit: float = LIMIT) -> pd.DataFrame:
    """Find why the work of a live cluster does not finish.

    This function examines the scheduler and all workers, wherever they run. Nothing is installed or
    changed there, and the cluster does not need a profiler.

    Parameters
    ----------
    client
        A Dask ``Client``, a ``Cluster``, or an object with a ``.client``.
    limit
        Seconds to wait for each process.

    Returns
    -------
    pandas.DataFrame
        One row per cause, empty if nothing is in progress. For an asynchronous client, an awaitable
        of it. Columns: *Certainty*, *Cause*, *Waiting Tasks*, *Time (s)*, *Function*, *Worker*,
        *Line*, *Suggestion*, *Evidence*, *Kind*. A certainty is certain (proven), likely or
        possible (a healthy run may look the same). Certain and likely causes come first, then
        causes with many waiting tasks.

    Raises
    ------
    NoClientError
        If there is no Dask client.
    InvalidArgumentError
        If the limit is not a positive number.
    NoSchedulerError
        If there is no scheduler at the client's address.
    """
    if not isinstance(limit, int | float) or not 0 < limit < math.inf:
        raise InvalidArgumentError(f"limit={limit!r}: expected a positive number of seconds.")
    target = client if isinstance(client, Cluster) else find_client(client)[0]

    async def find() -> pd.DataFrame:
        if isinstance(target, Cluster):
            security = getattr(target, "security", None) or Security()
            address, arguments = target.scheduler_address, security.get_connection_args("client")
        else:
            if target.status != "running":
                await target
            address, arguments = target.scheduler.address, target.connection_args
        state = await look_at(str(address), arguments, float(limit))
        return await asyncio.to_thread(lambda: causes_table(find_causes(state)))

    return target.sync(find)


async def look_at(
    address: str, connection_args: dict[str, Any] | None = None, limit: float = LIMIT
) -> ClusterState:
    """Return the state of the live cluster whose scheduler has this address.

    See `views_of` for the other arguments.
    """
    views = await views_of(address, connection_args, limit)
    looks = [look for look in views["scheduler"] if look is not None]
    runs = {tuple(run) for look in looks for run in look["runs"]}
    # If the cluster is being recorded and this host has a client's trace file, the sources of
    # functions are read from this file.
    return state_from_views(views, await asyncio.to_thread(functions_of_runs, runs))
