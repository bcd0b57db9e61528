"""`SchedulerWatch`: notices that a client's scheduler has ended, for example by SIGKILL."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from distributed import Client
from distributed.comm import get_address_host_port

logger = logging.getLogger(__name__)

#: Seconds between two checks of the client, and the most between two checks of its scheduler.
_INTERVAL = 0.5
_LONGEST_INTERVAL = 60.0
#: Seconds to wait for a connection to the scheduler.
_PATIENCE = 3.0


class SchedulerWatch:
    """Calls a function, once and in a thread of its own, when a scheduler has ended.

    A closed client says nothing about its scheduler, which may go on with other clients. So once
    the client is not connected any more, its scheduler is contacted, less and less often.

    Parameters
    ----------
    client
        A client that is connected.
    gone
        The function.
    """

    def __init__(self, client: Client, gone: Callable[[], None]) -> None:
        self._client = client
        self._gone = gone
        self._address = str(client.scheduler.address)
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start to watch, if the scheduler has a network address."""
        if self._address.startswith(("tcp://", "tls://")):
            threading.Thread(target=self._run, name="dasfprof-scheduler-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopping.set()

    def _run(self) -> None:
        interval = _INTERVAL
        while not self._stopping.wait(interval):
            if self._client.status == "running":
                interval = _INTERVAL
            elif self._is_gone():
                self._gone()
                return
            else:
                interval = min(2 * interval, _LONGEST_INTERVAL)

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
