"""Requests to a live cluster about its work in progress, with a time limit for each process.

Nothing is installed or changed in the cluster: functions are sent by value, and no client is
registered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from distributed.comm import get_address_host_port
from distributed.protocol.pickle import dumps

from dasfprof.errors import NoSchedulerError
from dasfprof.recording.cluster.by_value import WithModules
from dasfprof.recording.cluster.calls import run_pickled
from dasfprof.recording.dask_internals.inspection.looks import (
    look_at_scheduler,
    look_at_worker,
    look_at_workers,
    request,
    state_of_nannys_process,
    within,
)
from dasfprof.recording.dask_internals.inspection.processes import state_of_listener

#: Seconds between two snapshots of a worker.
PAUSE = 0.6
#: Seconds to wait for each process.
LIMIT = 2.0
#: Schemes of addresses with a host and a port.
_WITH_PORT = ("tcp", "tls", "ws", "wss")


async def views_of(
    address: str, connection_args: dict[str, Any] | None = None, limit: float = LIMIT
) -> dict[str, Any]:
    """Ask the processes of a live cluster for their work in progress.

    Workers are asked at the same time, so the call takes little longer than the limit if some of
    them do not answer.

    Parameters
    ----------
    address
        Address of the scheduler.
    connection_args
        Connection arguments of the client or of its `distributed.Security`, such as certificates
        for TLS.
    limit
        Seconds to wait for each process.

    Returns
    -------
    dict
        ``time``: Unix seconds. ``scheduler``: a list of two snapshots of the scheduler (see
        `looks.look_at_scheduler`), taken before and after the snapshots of the workers. A snapshot
        is None if the scheduler did not answer. ``scheduler_process``: the state of the scheduler's
        process if the scheduler did not answer, otherwise None. ``workers``: the result of
        `looks.look_at_workers`, or None if the scheduler did not answer.

    Raises
    ------
    NoSchedulerError
        If no process listens at the address, or if the process is not a Dask scheduler.
    """
    call = _SchedulerCalls(address, connection_args or {}, limit)
    answers = await call.check_is_scheduler()
    first = await call.scheduler(look_at_scheduler) if answers else None
    workers = last = None
    if first is not None:
        asked = [dumps(WithModules(look)) for look in (look_at_worker, state_of_nannys_process)]
        # The scheduler waits for the workers, so it gets more time than they do.
        workers = await call.scheduler(
            look_at_workers, *asked, min(PAUSE, limit / 3), limit, limit=2 * limit
        )
        last = await call.scheduler(look_at_scheduler)
    return {
        "time": time.time(),
        "scheduler": [first, last],
        "scheduler_process": None if last is not None else await call.process_of_scheduler(),
        "workers": workers,
    }


class _SchedulerCalls:
    """Calls functions on a scheduler through its address, without a client."""

    def __init__(self, address: str, connection_args: dict[str, Any], limit: float) -> None:
        self.address = address
        self.connection_args = connection_args
        self.limit = limit

    async def _check_listening(self) -> None:
        """Raise an error if nothing listens at the address. Called if no answer has arrived."""
        if self.address.partition("://")[0] not in _WITH_PORT:
            return
        try:
            host, port = get_address_host_port(self.address)
            # This connection has no TLS handshake, about which a scheduler with TLS would log a
            # warning.
            _, writer = await within(self.limit, asyncio.open_connection(host, port))
        except asyncio.TimeoutError:
            raise NoSchedulerError(
                f"nothing accepts a connection at {self.address} in {self.limit:g} s. Possible "
                "reasons are a wrong address, a firewall, or a host that is down. Set the "
                "seconds with `--limit`."
            ) from None
        except (OSError, ValueError) as error:
            raise NoSchedulerError(f"nothing listens at {self.address} ({error}).") from error
        writer.close()

    async def check_is_scheduler(self) -> bool:
        """Return whether a scheduler answers in time. Raise an error if another process answers."""
        # A worker or a nanny would log an error for a call that only schedulers know, so the
        # process is first asked for its identity.
        identity = await self._answer(self.limit, "identity")
        if identity is None:
            await self._check_listening()
            return False
        if not isinstance(identity, dict) or "workers" in identity:
            return True
        scheduler = identity.get("scheduler")
        address = scheduler if isinstance(scheduler, str) else "usually with port 8786"
        raise NoSchedulerError(
            f"a {identity.get('type')} listens at {self.address}, not a scheduler. Pass the "
            f"scheduler's address: {address}. client.scheduler_info() shows it."
        )

    async def _answer(self, limit: float, handler: str, **message: Any) -> Any:
        """Return a handler's answer to a message, or None if it does not arrive in time.

        Raises
        ------
        NoSchedulerError
            If the process that answers is not a process of Dask.
        """
        try:
            call = request(self.address, self.connection_args, handler, **message)
            return await within(limit, call)
        except asyncio.TimeoutError:
            return None
        except Exception as error:
            raise NoSchedulerError(
                f"the process at {self.address} does not answer like a Dask scheduler ({error}). "
                "Pass the scheduler's address (usually with port 8786), not that of its "
                "dashboard or of a worker. A cluster with TLS needs tls://, and its certificates "
                "in Dask's configuration (distributed.comm.tls)."
            ) from error

    async def scheduler(
        self, function: Callable[..., Any], *args: Any, limit: float | None = None
    ) -> Any:
        """Send a function by value to the scheduler, run it there, and return its result.

        Return None if the scheduler does not answer in time.

        Raises
        ------
        NoSchedulerError
            If the process that answers is not a Dask scheduler, or refuses to run functions.
        """
        pickled = dumps((dumps(WithModules(function)), args))
        message = {"function": dumps(run_pickled), "args": pickled}
        response = await self._answer(limit or self.limit, "run_function", **message)
        if response is None:
            return None
        if not isinstance(response, dict) or response.get("status") != "OK":
            reason = response.get("exception_text") if isinstance(response, dict) else response
            raise NoSchedulerError(
                f"the process at {self.address} refused the request ({reason}). Pass the "
                "scheduler's address. It has to allow functions (distributed.scheduler.pickle)."
            )
        return response["result"]

    async def process_of_scheduler(self) -> str | None:
        """Return the state of the scheduler's process, or None if it runs on another host."""
        if self.address.partition("://")[0] not in _WITH_PORT:
            return None
        return await state_of_listener(None, *get_address_host_port(self.address))
