"""`TaskClients`: which clients the scheduler's tasks belong to, beyond what graphs tell."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable
from typing import Any

from dasfprof.schema.tasks import CLIENT, CLIENT_TASKS

#: Dask's topic in which processes that use dasfprof announce their clients to schedulers.
TOPIC = "dasfprof-clients"
#: Clients of a scheduler that one person uses: that of `fire_and_forget`, and the person's.
_ALONE = 2
#: Maximum number of tasks of a client that are written as recording begins.
_MOST_KNOWN = 100_000


async def announce(client: Any, command: str, process: str) -> None:
    """Tell a client's scheduler the client's name, with its program, and what process it is of."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # the system has no name for it
        user = "?"
    name = f"{user}@{socket.gethostname()} {command}"
    message = {"client": client.id, "name": name, "process": process}
    await client.scheduler.log_event(topic=TOPIC, msg=message)


class TaskClients:
    """Writes the names of clients, and the tasks that no graph of theirs brought.

    Parameters
    ----------
    scheduler
        The scheduler; only read.
    tell
        Writes an event of a kind.
    """

    def __init__(self, scheduler: Any, tell: Callable[..., None]) -> None:
        self._scheduler, self._tell = scheduler, tell
        self._written: set[str] = set()
        #: What processes announced, by client.
        self._announced: dict[str, dict[str, str]] = {}
        for _, message in scheduler.get_events(TOPIC):
            self.announced(message)
        for client, state in list(scheduler.clients.items()):
            keys = _with_dependencies(state.wants_what)
            if keys:
                self._write_name(client)
                tell(CLIENT_TASKS, client, keys)

    def announced(self, message: Any) -> None:
        """Note what a process announced."""
        if isinstance(message, dict) and isinstance(message.get("client"), str):
            self._announced[message["client"]] = message

    def sent(self, client: str, keys: Iterable[Any]) -> None:
        """Note that a client sent a graph whose results of these keys it wants."""
        if client not in self._written:
            self._write_name(client)
        if len(self._scheduler.clients) > _ALONE:
            tasks = self._scheduler.tasks
            shared = [key for key in keys if len(tasks[key].who_wants or ()) > 1]
            if shared:
                self._tell(CLIENT_TASKS, client, shared)

    def _write_name(self, client: str) -> None:
        self._written.add(client)
        name = self._announced.get(client, {}).get("name")
        if name is None:
            comm = getattr(self._scheduler.client_comms.get(client), "comm", None)
            host = str(getattr(comm, "peer_address", "")).partition("://")[2].rpartition(":")[0]
            # The first part of an id differs between clients that begin at different times.
            name = f"{host} {client.split('-')[1]}" if host and "-" in client else None
        self._tell(CLIENT, client, name)


def _with_dependencies(wanted: Iterable[Any]) -> list[Any]:
    """Return the keys of tasks and of those that they depend on, `_MOST_KNOWN` at most."""
    tasks, keys = list(wanted), dict[Any, None]()
    for task in tasks:  # it grows
        if task.key not in keys and len(keys) < _MOST_KNOWN:
            keys[task.key] = None
            tasks += task.dependencies
    return list(keys)
