"""`stuck`: why the work on a live cluster does not finish, from the answers of its processes."""

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

    It examines the scheduler and all workers, wherever they run. Nothing is installed or changed
    there, and the cluster does not need a profiler.

    Parameters
    ----------
    client
        A Dask ``Client``, a ``Cluster``, or an object with a ``.client``.
    limit
        Seconds to wait for each process.

    Returns
    -------
    pandas.DataFrame
        A row for each cause: *Certainty* (certain: proved; likely; open: seen, but a healthy run
        may show it as well), *Cause*, *Waiting Tasks*, *Time (s)*, *Function*, *Worker*, *Line*,
        *Suggestion*, *Evidence*, *Kind*. What is certain or likely comes first, then by the number
        of tasks that wait for it. Empty if nothing is under way. For an asynchronous client, an
        awaitable of it.

    Raises
    ------
    NoClientError
        If there is no Dask client.
    InvalidArgumentError
        If the limit is no number above 0.
    NoSchedulerError
        If there is no scheduler at the client's address.
    """
    if not isinstance(limit, int | float) or not 0 < limit < math.inf:
        raise InvalidArgumentError(f"limit={limit!r}: expected a positive number of seconds.")
    asked = client if isinstance(client, Cluster) else find_client(client)[0]

    async def look() -> pd.DataFrame:
        if isinstance(asked, Cluster):
            security = getattr(asked, "security", None) or Security()
            address, arguments = asked.scheduler_address, security.get_connection_args("client")
        else:
            if asked.status != "running":
                await asked
            address, arguments = asked.scheduler.address, asked.connection_args
        state = await look_at(str(address), arguments, float(limit))
        return await asyncio.to_thread(lambda: causes_table(find_causes(state)))

    return asked.sync(look)


async def look_at(
    address: str, connection_args: dict[str, Any] | None = None, limit: float = LIMIT
) -> ClusterState:
    """Return the state of a live cluster.

    See `views_of`. If the cluster is recorded and a client's file is on this host, the file shows
    the sources of functions.
    """
    views = await views_of(address, connection_args, limit)
    looks = [look for look in views["scheduler"] if look is not None]
    runs = {tuple(run) for look in looks for run in look["runs"]}
    return state_from_views(views, await asyncio.to_thread(functions_of_runs, runs))
