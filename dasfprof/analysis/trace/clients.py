"""The clients of task runs: those that sent a task's graph, and others that requested its key."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.columns import Columns, make_categorical
from dasfprof.analysis.trace.steps import RunGraphs
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

#: Matches the end of the id of a client that has a name. `_CLIENT` matches the start of any
#: client's id.
_UUID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_CLIENT = re.compile(r"^Client-(?:worker-)?")
#: Prefix of the ids of clients that belong to tasks.
_OF_TASKS = "Client-worker-"


def client_name(client: str) -> str:
    """Return the name of a client, or its id if it has no name."""
    named = _UUID.sub("", client)
    return _CLIENT.sub("", named) if named not in {"Client", "Client-worker"} else client


def client_names(clients: Columns) -> dict[str, str]:
    """Return the names of clients by their ids, given the columns of events about clients."""
    pairs = zip(*(np.asarray(clients[name]).tolist() for name in ("client", "name")), strict=True)
    names = {}
    for client, name in pairs:
        given = client_name(client)
        names[client] = name if given == client and isinstance(name, str) else given
    return names


class ClientLookup:
    """Finds the clients of task runs.

    Parameters
    ----------
    graphs, runs
        The graphs that arrived at the scheduler, and the lookup of task runs' graphs.
    names
        The names of clients by their ids.
    more
        Events about clients that requested tasks without sending their graph, and the key ids of
        all these tasks.
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
        #: The code of each set of clients' names.
        self._codes: defaultdict[tuple[str, ...], int] = defaultdict(count().__next__)
        ids = graphs["client"].astype(object).tolist()
        of_graph = [self._codes[self.name(client),] for client in ids]
        #: Code of the client that sent each graph. The last entry stands for "no graph".
        self._of_graph = np.array([*of_graph, -1], dtype=np.int64)
        nested = np.flatnonzero([str(client).startswith(_OF_TASKS) for client in ids])
        if len(nested) and len(recorded["sent"]):
            self._inherit(nested, recorded)
        self._more: dict[int, list[str]] = {}
        events, keys = more
        clients = np.repeat(np.asarray(events["client"]).astype(object), events["keys"])
        for key, client in zip(keys.tolist(), clients.tolist(), strict=True):
            self._more.setdefault(key, []).append(self.name(client))

    def name(self, client: Any) -> str:
        """Return the name of a client."""
        return self._names.get(client) or client_name(str(client))

    def codes_of(self, name: str) -> list[int]:
        """Return the codes of all categories of `find` that contain the client with this name.

        Raises
        ------
        InvalidArgumentError
            If no client has this name.
        """
        codes = [code for names, code in self._codes.items() if name in names]
        if not codes:
            known = ", ".join(sorted({each for names in self._codes for each in names}))
            raise InvalidArgumentError(
                f"client={name!r}: no client of this name sent tasks in this trace. Its clients: "
                f"{known or 'none'}."
            )
        return codes

    def find(self, runs: Columns) -> pd.Categorical:
        """Return the clients of each task run as text, separated by commas, or NA if unknown."""
        key_ids = np.asarray(runs["key_id"])
        if not self._codes and not self._more:
            return make_categorical(np.full(len(key_ids), -1, dtype=np.int8), [])
        codes = self._of_graph[self._runs.find(runs)]
        if self._more:
            rows = np.flatnonzero(np.isin(key_ids, list(self._more)))
            names = list(self._codes)
            for row, key, code in zip(
                rows.tolist(), key_ids[rows].tolist(), codes[rows].tolist(), strict=True
            ):
                of_graph = names[code] if code >= 0 else ()
                codes[row] = self._codes[tuple(sorted({*of_graph, *self._more[key]}))]
        return make_categorical(codes.astype(np.int32), [", ".join(each) for each in self._codes])

    def _inherit(self, nested: Array, recorded: Columns) -> None:
        """Assign graphs that tasks submitted (`nested`) to the client whose tasks ran at that time.

        `recorded` contains the task runs that the scheduler recorded.
        """
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
        # A graph stays unchanged unless exactly one client had tasks on workers when it arrived.
        alone = active.sum(axis=0) == 1
        self._of_graph[nested[alone]] = persons[active[:, alone].argmax(axis=0)]
