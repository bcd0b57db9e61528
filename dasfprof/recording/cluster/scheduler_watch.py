"""`SchedulerWatch`: notices that a client's scheduler has ended, for example by SIGKILL.

It also tells the scheduler that the client's process is there, where the client itself is not.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable

from distributed import Client, rpc
from distributed.comm import get_address_host_port
from distributed.protocol.pickle import dumps

from dasfprof.recording.cluster.calls import hear_of_client
from dasfprof.recording.cluster.link import within

logger = logging.getLogger(__name__)

#: Seconds between two checks of the client, and the most between two checks of its scheduler.
_INTERVAL = 0.5
_LONGEST_INTERVAL = 60.0
#: Seconds to wait for a connection to the scheduler.
_PATIENCE = 3.0
#: How often, within the time for which it may be gone, a client's process tells that it is there.
_TIMES = 5


def is_on_network(client: Client) -> bool:
    """Return whether other connections to the scheduler of a connected client can be made."""
    return str(client.scheduler.address).startswith(("tcp://", "tls://"))


class SchedulerWatch:
    """Calls a function, once and in a thread of its own, when a scheduler or its run has ended.

    A closed client says nothing about its scheduler, which may go on with other clients. So once
    the client is not connected any more, its scheduler is contacted, less and less often, and told
    that the client's process is there, so that its run goes on (see `Absence`).

    Parameters
    ----------
    client
        A client that is connected.
    plugin
        The name of the run's plugin on the scheduler.
    orphan_timeout
        Seconds for which the process may be gone.
    gone
        The function.
    """

    def __init__(
        self, client: Client, plugin: str, orphan_timeout: float, gone: Callable[[], None]
    ) -> None:
        self._client = client
        self._plugin = plugin
        self._longest = min(_LONGEST_INTERVAL, orphan_timeout / _TIMES)
        self._gone = gone
        self._on_network = is_on_network(client)
        self._address = str(client.scheduler.address)
        self._connection_args = client.connection_args
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start to watch, if the scheduler has a network address."""
        if self._on_network:
            threading.Thread(target=self._run, name="dasfprof-scheduler-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopping.set()

    def _run(self) -> None:
        interval = _INTERVAL
        while not self._stopping.wait(interval):
            if self._client.status == "running":
                interval = _INTERVAL
            elif self._is_gone() or self._has_ended():
                self._gone()
                return
            else:
                interval = min(2 * interval, self._longest)

    def _is_gone(self) -> bool:
        try:
            host, port = get_address_host_port(self._address)
            socket.create_connection((host, port), _PATIENCE).close()
        except ConnectionRefusedError:
            return True
        except OSError as error:
            logger.debug("the scheduler at %s: %r", self._address, error)
            # The network may be down for a while; a closed client does not reconnect.
            return bool(self._client.status == "closed")
        return False

    def _has_ended(self) -> bool:
        """Let the scheduler know that this process is there; return whether its run is not."""
        try:
            return not asyncio.run(within(_PATIENCE, self._tell()))
        except Exception as error:  # it may be busy, or closing; the next time comes
            logger.debug("the scheduler at %s: %r", self._address, error)
            return False

    async def _tell(self) -> bool:
        async with rpc(self._address, connection_args=self._connection_args) as scheduler:
            answer = await scheduler.run_function(
                function=dumps(hear_of_client), args=dumps((self._plugin,)), kwargs=dumps({})
            )
        return answer.get("result") is not False
