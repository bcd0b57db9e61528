"""`TaskClients`: which clients the scheduler's tasks belong to, beyond what graphs tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dask.utils import key_split

from dasfprof.recording.cluster.program import TOPIC, this_process
from dasfprof.recording.dask_internals.inspection.views import UNFINISHED
from dasfprof.recording.settings import RunSettings
from dasfprof.schema.tasks import CLIENT, CLIENT_TASKS

#: Clients of a scheduler that one person uses: that of `fire_and_forget`, and the person's.
_ALONE = 2
#: Maximum number of tasks of a client that are written as recording begins.
_MOST_KNOWN = 100_000
#: The ids of clients that tasks use begin so.
_OF_TASKS = "Client-worker-"


class TaskClients:
    """Writes the names of clients, and the tasks that no graph of theirs brought.

    Where one process's own work is recorded, it contains the keys of the tasks of others, and marks
    these tasks for workers by an annotation. Those of clients that tasks use count as others' while
    any task of others is being processed, since it is unknown which task submitted them.

    Parameters
    ----------
    scheduler
        The scheduler.
    settings
        The run.
    tell
        Writes an event of a kind.
    """

    def __init__(self, scheduler: Any, settings: RunSettings, tell: Callable[..., None]) -> None:
        self._scheduler, self._settings, self._tell = scheduler, settings, tell
        self._written: set[str] = set()
        #: What processes announced, by client.
        self._announced: dict[str, dict[str, str]] = {}
        #: Whether tasks of other processes' clients are hidden.
        self.hides = settings.process not in ("", this_process())
        #: The functions of the tasks that are not hidden.
        self._functions: set[str] = set()
        #: The hidden tasks that had been sent to workers without a mark.
        self.sent_before: list[Any] = []
        for _, message in scheduler.get_events(TOPIC):
            self.announced(message)
        self._begin()

    def _begin(self) -> None:
        """Write, or hide, the tasks that are known already."""
        shown = set()
        for client, state in list(self._scheduler.clients.items()):
            keys = [] if self._is_other(client) else _with_dependencies(state.wants_what)
            if keys:
                self._write_name(client)
                self._tell(CLIENT_TASKS, client, keys[:_MOST_KNOWN])
                shown.update(keys)
        for key, task in self._scheduler.tasks.items() if self.hides else ():
            if key in shown:
                self._functions.add(task.prefix.name)
            else:
                self._mark(task)
                if task.state == "processing":
                    self.sent_before.append(key)

    def announced(self, message: Any) -> None:
        """Note what a process announced."""
        if isinstance(message, dict) and isinstance(message.get("client"), str):
            self._announced[message["client"]] = message

    def sent(self, client: str, keys: Iterable[Any], tasks: Iterable[Any]) -> bool:
        """Note that a client sent a graph; return whether its tasks are hidden.

        Parameters
        ----------
        client
            The client's id.
        keys, tasks
            The keys of the results that it wants, and of all tasks of the graph.
        """
        known = self._scheduler.tasks
        if self._is_other(client):
            for key in tasks:
                if known[key].state == "released":  # those in other states are known already
                    self._mark(known[key])
            return True
        for key in tasks if self.hides else ():
            self._functions.add(known[key].prefix.name)
            self._unmark(known[key])
        if client not in self._written:
            self._write_name(client)
        if len(self._scheduler.clients) > _ALONE:
            shared = [key for key in keys if len(known[key].who_wants or ()) > 1]
            if shared:
                self._tell(CLIENT_TASKS, client, shared)
        return False

    def __contains__(self, key: Any) -> bool:
        task = self._scheduler.tasks.get(key)
        return task is not None and self._is_marked(task)

    def narrowed(self, view: dict[str, Any]) -> dict[str, Any]:
        """Return a view of the scheduler without the texts of hidden tasks."""
        shown = self._functions
        tasks = {name: view["tasks"][name] for name in view["tasks"] if name in shown}
        workers = [
            {**one, "keys": [key for key in one["keys"] if key_split(key) in shown]}
            for one in view["workers"]
        ]
        return {
            **view,
            "tasks": tasks,
            "finished": {name: own for name, own in view["finished"].items() if name in shown},
            "unfinished": sum(own.get(state, 0) for own in tasks.values() for state in UNFINISHED),
            "held_back": [one for one in view["held_back"] if one["function"] in shown],
            "clients": [one for one in view["clients"] if not self._is_other(one["client"])],
            "workers": workers,
        }

    def stop(self) -> None:
        """Remove the marks."""
        for task in self._scheduler.tasks.values() if self.hides else ():
            self._unmark(task)

    def _is_other(self, client: str) -> bool:
        if not self.hides:
            return False
        if client.startswith(_OF_TASKS):
            workers = list(self._scheduler.workers.values())
            return any(self._is_marked(task) for one in workers for task in one.processing)
        return self._announced.get(client, {}).get("process") != self._settings.process

    def _is_marked(self, task: Any) -> bool:
        return self._settings.mark in (task.annotations or ())

    def _mark(self, task: Any) -> None:
        task.annotations = {**(task.annotations or {}), self._settings.mark: True}

    def _unmark(self, task: Any) -> None:
        if self._is_marked(task):
            left = {**task.annotations}
            del left[self._settings.mark]
            task.annotations = left

    def _write_name(self, client: str) -> None:
        self._written.add(client)
        name = self._announced.get(client, {}).get("name")
        if name is None:
            comm = getattr(self._scheduler.client_comms.get(client), "comm", None)
            host = str(getattr(comm, "peer_address", "")).partition("://")[2].rpartition(":")[0]
            # The first part of an id differs between clients that begin at different times.
            name = f"{host} {client.split('-')[1]}" if host and "-" in client else None
        self._tell(CLIENT, client, name)


def sent_before(plugin: str, dask_scheduler: Any) -> list[Any]:
    """Return the tasks that a plugin hides and that had been sent to workers before it began."""
    clients = getattr(dask_scheduler.plugins.get(plugin), "clients", None)
    return [] if clients is None else clients.sent_before


def _with_dependencies(wanted: Iterable[Any]) -> list[Any]:
    """Return the keys of tasks and of those that they depend on."""
    tasks, keys = list(wanted), dict[Any, None]()
    for task in tasks:  # it grows
        if task.key not in keys:
            keys[task.key] = None
            tasks += task.dependencies
    return list(keys)
