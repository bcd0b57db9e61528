"""The client of each task run: whose graph brought its key, or who wants the key as well."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.analysis.trace.steps import RunGraphs
from dasfprof.database.columns import Array

Columns = dict[str, Any]

#: End of the id of a client that was given a name, and begin of the id of any client.
_UUID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_CLIENT = re.compile(r"^Client-(?:worker-)?")
#: Begin of the ids of clients that tasks use.
_OF_TASKS = "Client-worker-"


def client_name(client: str) -> str:
    """Return the name that a client was given, or its id if it has none."""
    named = _UUID.sub("", client)
    return _CLIENT.sub("", named) if named not in {"Client", "Client-worker"} else client


def client_names(clients: Columns) -> dict[str, str]:
    """Return the names of clients by their ids, out of the columns of their events."""
    pairs = zip(*(np.asarray(clients[name]).tolist() for name in ("client", "name")), strict=True)
    named = {client: (client_name(client), name) for client, name in pairs}
    return {
        client: given if given != client or not isinstance(name, str) else name
        for client, (given, name) in named.items()
    }


class TaskClients:
    """Finds the clients of task runs.

    Parameters
    ----------
    graphs, runs
        The graphs that arrived at the scheduler, and those of task runs.
    names
        The names of clients by their ids.
    more
        The events of tasks that came with no graph of their client, and the key ids of them all.
    recorded
        The task runs that the scheduler recorded.
    """

    def __init__(
        self,
        graphs: pd.DataFrame,
        runs: RunGraphs,
        names: dict[str, str],
        more: tuple[Columns, Array],
        recorded: Columns,
    ) -> None:
        self._runs, self._names = runs, names
        #: Numbers of sets of names, in the order in which they occur.
        self._numbers: dict[tuple[str, ...], int] = {}
        ids = graphs["client"].astype(object).tolist()
        of_graph = [self._number((self.name(client),)) for client in ids]
        #: By graph; the last is for task runs whose graph is unknown.
        self._of_graph = np.array([*of_graph, -1], dtype=np.int64)
        nested = np.flatnonzero([str(client).startswith(_OF_TASKS) for client in ids])
        if len(nested) and len(recorded["sent"]):
            self._inherit(nested, recorded)
        self._more: dict[int, list[str]] = {}
        told, keys = more
        clients = np.repeat(np.asarray(told["client"]).astype(object), told["keys"])
        for key, client in zip(keys.tolist(), clients.tolist(), strict=True):
            self._more.setdefault(key, []).append(self.name(client))

    def name(self, client: Any) -> str:
        """Return the name of a client."""
        return self._names.get(client) or client_name(str(client))

    def all_names(self) -> list[str]:
        """Return the names of the clients of task runs."""
        return sorted({name for names in self._numbers for name in names})

    def numbers_of(self, name: str) -> list[int]:
        """Return the codes of `find` that stand for a client, alone or with others."""
        return [number for names, number in self._numbers.items() if name in names]

    def find(self, runs: Columns) -> pd.Categorical:
        """Return the client of each task run, or several with commas; NA where none is known."""
        key_ids = np.asarray(runs["key_id"])
        codes = self._of_graph[self._runs.find(runs)]
        if self._more:
            rows = np.flatnonzero(np.isin(key_ids, list(self._more)))
            names = list(self._numbers)
            for row, key, code in zip(
                rows.tolist(), key_ids[rows].tolist(), codes[rows].tolist(), strict=True
            ):
                of_graph = names[code] if code >= 0 else ()
                codes[row] = self._number(tuple(sorted({*of_graph, *self._more[key]})))
        return make_categorical(codes.astype(np.int32), [", ".join(each) for each in self._numbers])

    def _inherit(self, nested: Array, recorded: Columns) -> None:
        """Assign graphs that tasks sent to the client that alone had tasks on workers then."""
        times, codes = self._runs.arrivals[nested], self._of_graph[self._runs.find(recorded)]
        sent, known = recorded["sent"], recorded["known"]
        known = np.where(recorded["scheduler_state"] == "processing", np.inf, known)
        persons = np.setdiff1d(codes, [-1, *np.unique(self._of_graph[nested])])
        active = np.array(
            [
                np.searchsorted(np.sort(sent[codes == code]), times, side="right")
                > np.searchsorted(np.sort(known[codes == code]), times)
                for code in persons
            ]
        ).reshape(len(persons), len(nested))
        alone = active.sum(axis=0) == 1
        self._of_graph[nested[alone]] = persons[active[:, alone].argmax(axis=0)]

    def _number(self, names: tuple[str, ...]) -> int:
        return self._numbers.setdefault(names, len(self._numbers))
