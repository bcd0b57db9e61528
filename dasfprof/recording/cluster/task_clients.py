"""`TaskClients`: records which tasks belong to which client, and hides tasks of other users."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dask.utils import key_split

from dasfprof.recording.cluster.program import TASK_CLIENT_PREFIX, TOPIC, this_process
from dasfprof.recording.settings import RunSettings
from dasfprof.schema.tasks import CLIENT, CLIENT_TASKS
from dasfprof.schema.under_way import narrowed

#: Maximum number of clients of a scheduler with a single user: the user's client, and the client
#: that Dask creates for `fire_and_forget`.
_SINGLE_USER = 2
#: Maximum number of tasks per client that are written when recording begins.
_MOST_KNOWN = 100_000


class TaskClients:
    """Records the names of clients, and hides tasks of other users.

    It also records tasks of a client that are in none of the client's recorded graphs. If a run
    records only the clients of one process, the tasks of other clients are hidden. Workers
    recognize hidden tasks by an annotation. On the scheduler, ``key in task_clients`` is true for
    hidden tasks.

    Parameters
    ----------
    record
        A function that records an event. Its arguments are the kind of the event and the values of
        the event's fields.
    """

    def __init__(self, scheduler: Any, settings: RunSettings, record: Callable[..., None]) -> None:
        self._scheduler, self._settings, self._record = scheduler, settings, record
        self._recorded: set[str] = set()
        #: Messages in which processes announced their clients, by client id.
        self._announced: dict[str, dict[str, str]] = {}
        #: Whether tasks of other processes' clients are hidden.
        self.hides = settings.process not in ("", this_process())
        #: Functions of the tasks that are not hidden.
        self._functions: set[str] = set()
        #: Keys of hidden tasks that were assigned to workers before they could be marked.
        self.sent_before: list[Any] = []
        for _, message in scheduler.get_events(TOPIC):
            self.announced(message)
        # Record or hide the tasks that the scheduler already has.
        shown = set()
        for client, state in list(scheduler.clients.items()):
            keys = [] if self._is_other(client) else _with_dependencies(state.wants_what)
            if keys:
                self._record_name(client)
                self._record(CLIENT_TASKS, client, keys[:_MOST_KNOWN])
                shown.update(keys)
        for key, task in scheduler.tasks.items() if self.hides else ():
            if key in shown:
                self._functions.add(task.prefix.name)
            else:
                self._mark(task)
                if task.state == "processing":
                    self.sent_before.append(key)

    def announced(self, message: Any) -> None:
        """Store the message in which a process announced a client."""
        if isinstance(message, dict) and isinstance(message.get("client"), str):
            self._announced[message["client"]] = message

    def sent(self, client: str, keys: Iterable[Any], tasks: Iterable[Any]) -> bool:
        """Record that a client sent a graph, and return whether the graph's tasks are hidden.

        Parameters
        ----------
        client
            The client's id.
        keys
            Keys of the requested results.
        tasks
            Keys of all tasks of the graph.
        """
        known = self._scheduler.tasks
        if self._is_other(client):
            for key in tasks:
                # Tasks in other states were submitted with other graphs.
                if known[key].state == "released":
                    self._mark(known[key])
            return True
        for key in tasks if self.hides else ():
            self._functions.add(known[key].prefix.name)
            self._unmark(known[key])
        if client not in self._recorded:
            self._record_name(client)
        if len(self._scheduler.clients) > _SINGLE_USER:
            shared = [key for key in keys if len(known[key].who_wants or ()) > 1]
            if shared:
                self._record(CLIENT_TASKS, client, shared)
        return False

    def __contains__(self, key: Any) -> bool:
        task = self._scheduler.tasks.get(key)
        return task is not None and self._is_marked(task)

    def narrowed(self, view: dict[str, Any]) -> dict[str, Any]:
        """Return a snapshot of the scheduler without the functions and keys of hidden tasks."""
        shown = self._functions
        workers = [
            {**worker, "keys": [key for key in worker["keys"] if key_split(key) in shown]}
            for worker in view["workers"]
        ]
        columns = narrowed(view, shown.__contains__, lambda client: not self._is_other(client))
        return {**view, **columns, "workers": workers}

    def stop(self) -> None:
        """Remove the annotation by which workers recognize hidden tasks."""
        for task in self._scheduler.tasks.values() if self.hides else ():
            self._unmark(task)

    def _is_other(self, client: str) -> bool:
        if not self.hides:
            return False
        # If tasks themselves submit tasks, it is unknown which task submitted them. They count as
        # hidden while any hidden task is being processed.
        if client.startswith(TASK_CLIENT_PREFIX):
            workers = list(self._scheduler.workers.values())
            return any(self._is_marked(task) for worker in workers for task in worker.processing)
        return self._announced.get(client, {}).get("process") != self._settings.process

    def _is_marked(self, task: Any) -> bool:
        return self._settings.mark in (task.annotations or ())

    def _mark(self, task: Any) -> None:
        task.annotations = {**(task.annotations or {}), self._settings.mark: True}

    def _unmark(self, task: Any) -> None:
        if self._is_marked(task):
            annotations = {**task.annotations}
            del annotations[self._settings.mark]
            task.annotations = annotations

    def _record_name(self, client: str) -> None:
        self._recorded.add(client)
        name = self._announced.get(client, {}).get("name")
        if name is None:
            comm = getattr(self._scheduler.client_comms.get(client), "comm", None)
            host = str(getattr(comm, "peer_address", "")).partition("://")[2].rpartition(":")[0]
            # The part of an id after "Client-" or "Client-worker-" depends on the time of creation.
            name = f"{host} {client.split('-')[1]}" if host and "-" in client else None
        self._record(CLIENT, client, name)


def sent_before(plugin: str, dask_scheduler: Any) -> list[Any]:
    """Return the keys of hidden tasks that workers received before the tasks were annotated.

    `plugin` is the name of the scheduler's plugin that hides the tasks.
    """
    clients = getattr(dask_scheduler.plugins.get(plugin), "clients", None)
    return [] if clients is None else clients.sent_before


def _with_dependencies(wanted: Iterable[Any]) -> list[Any]:
    """Return the keys of tasks and of all their direct and indirect dependencies."""
    tasks, keys = list(wanted), dict[Any, None]()
    for task in tasks:  # The loop appends to this list.
        if task.key not in keys:
            keys[task.key] = None
            tasks += task.dependencies
    return list(keys)
