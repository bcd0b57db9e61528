"""The clients of task runs, and the restriction of tables to the task runs of one client.

The clients of a task run are those that sent its graph, and others that requested its key. If
tables are restricted, it is known when tasks of other clients occupied threads.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.columns import Columns, make_categorical, rows_of
from dasfprof.analysis.trace.keys import KeyTable
from dasfprof.analysis.trace.steps import RunGraphs
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.tasks import OTHER_CLIENTS
from dasfprof.schema.under_way import narrowed

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


Tables = dict[str, pd.DataFrame]

_RUNS = ("tasks", "scheduler_only")


#: Result of `thread_ranges` without task runs.
_NO_RANGES = pd.DataFrame(
    {"worker_id": np.empty(0, np.int64), "begin": np.empty(0), "end": np.empty(0)}
    | {"by_worker": np.empty(0, bool)}
)


def thread_ranges(tasks: pd.DataFrame, only: pd.DataFrame) -> pd.DataFrame:
    """Return the times in which task runs occupied, or may have occupied, threads.

    `tasks` and `only` are rows of `Trace.tasks` and of `Trace.scheduler_only`. The columns are
    ``worker_id, begin, end, by_worker``, where ``by_worker`` is True for rows of `tasks`.
    """
    only = only[(only["worker_id"] >= 0).to_numpy()]
    until = only["known"].where((only["scheduler_state"] != "processing").to_numpy(), np.inf)
    stop = tasks["start"] + tasks["duration"]
    by_worker = {
        "worker_id": tasks["worker_id"],
        "begin": tasks["executing"].fillna(tasks["start"]),
        "end": tasks[["done", "seceded"]].min(axis=1).fillna(stop),
    }
    by_scheduler = {
        "worker_id": only["worker_id"],
        "begin": only["scheduler_start"].where(only["lost"], only["sent"]),
        "end": only["scheduler_stop"].where(only["lost"], until),
    }
    types = {"worker_id": np.int64, "begin": float, "end": float}
    ranges = [pd.DataFrame(each).astype(types) for each in (by_worker, by_scheduler)]
    sources = np.repeat([True, False], [len(tasks), len(only)])
    return pd.concat(ranges, ignore_index=True).assign(by_worker=sources)


def without_others(
    tables: Tables, items: dict[str, Array], keys: KeyTable, selected: Selected | None
) -> pd.DataFrame:
    """Remove the task runs of other clients, and everything about these task runs, from tables.

    Parameters
    ----------
    tables, keys
        The tables by name, and the keys of the trace.
    items
        Three arrays: ``dependencies`` contains the key ids of the dependencies of all task runs,
        ``lengths`` the number of dependencies of each task run, and ``transfers`` the key ids of
        all transfers.
    selected
        The client whose task runs remain. If it is None, only task runs that were recorded as
        `OTHER_CLIENTS` are removed.

    Returns
    -------
    DataFrame
        Times in which task runs of other clients occupied threads (see `thread_ranges`).
    """
    function, names = keys.functions()
    nameless = names.index(OTHER_CLIENTS) if OTHER_CLIENTS in names else -1
    others = {name: function[tables[name]["key_id"].to_numpy()] == nameless for name in _RUNS}
    if selected is not None:
        others = {
            name: mask | ~selected.has(tables[name]["client"]) for name, mask in others.items()
        }
    if selected is None and not any(mask.any() for mask in others.values()):
        return _NO_RANGES
    ranges = thread_ranges(*(tables[name][others[name]] for name in _RUNS))
    if not len(ranges) and selected is None:
        return ranges
    # Mask of keys that only other clients have. The last entry stands for unknown keys (-1).
    foreign = np.zeros(len(keys) + 1, dtype=bool)
    for is_other in (True, False):
        for name in _RUNS:
            foreign[tables[name]["key_id"].to_numpy()[others[name] == is_other]] = is_other
    samples, removed = tables["task_samples"], tables["tasks"][others["tasks"]]
    tables["task_samples"] = rows_of(samples, ~_within(samples, removed))
    counts = np.maximum(items["lengths"], 0)
    items["dependencies"] = items["dependencies"][np.repeat(~others["tasks"], counts)]
    items["lengths"] = items["lengths"][~others["tasks"]]
    counts = tables["transfers"]["keys"].to_numpy()
    of_row = np.repeat(np.arange(len(counts)), counts)
    mine = np.bincount(of_row, ~foreign[items["transfers"]], minlength=len(counts)) > 0
    mine |= (counts == 0) & (selected is None)
    items["transfers"] = items["transfers"][np.repeat(mine, counts)]
    tables["transfers"] = rows_of(tables["transfers"], mine)
    theirs = np.setdiff1d(function[foreign[:-1]], function[~foreign[:-1]])
    hidden = {names[code] for code in theirs.tolist()}
    for name, table in tables.items():
        if name in _RUNS:
            tables[name] = rows_of(table, ~others[name])
        elif "key_id" in table or "key" in table:
            key_ids = table["key_id" if "key_id" in table else "key"].to_numpy(dtype=np.int64)
            tables[name] = rows_of(table, ~foreign[key_ids])
        elif name in ("function_code", "call_profiles"):
            tables[name] = rows_of(table, ~table["name"].isin(hidden).to_numpy())
    if selected is not None:
        selected.narrow(tables, hidden)
    return ranges


def _within(samples: pd.DataFrame, runs: pd.DataFrame) -> Array:
    """Return a mask of the stack samples that were taken during any of the task runs `runs`."""
    inside = np.zeros(len(samples), dtype=bool)
    times = samples["time"].to_numpy(dtype=float)
    rows_of = samples.groupby(["worker_id", samples["thread"].astype(object)]).indices
    for thread, of_thread in runs.groupby(["worker_id", runs["thread"].astype(object)]):
        rows = rows_of.get(thread)
        if rows is not None:
            ordered = of_thread.sort_values("start")
            start = ordered["start"].to_numpy(dtype=float)
            stop = start + ordered["duration"].to_numpy(dtype=float)
            index = np.searchsorted(start, times[rows], side="right") - 1
            inside[rows] = (index >= 0) & (times[rows] <= stop[np.maximum(index, 0)])
    return inside


class Selected:
    """The client whose task runs are analysed."""

    def __init__(self, name: str, clients: ClientLookup) -> None:
        self._name, self._clients, self._codes = name, clients, clients.codes_of(name)

    def has(self, clients: pd.Series) -> Array:
        """Return a mask of the client's rows in a column that `ClientLookup.find` returned."""
        return np.isin(clients.cat.codes.to_numpy(), self._codes)

    def narrow(self, tables: Tables, hidden: set[str]) -> None:
        """Remove what clients and the scheduler recorded about other clients.

        `hidden` are the functions that only other clients use.
        """
        sent = self._are_mine(tables["graphs_sent"]["client"])
        if not sent.any():  # Another client's process was recorded.
            for name in ("client_calls", "sent_values", "functions_sent", "client_samples"):
                tables[name] = tables[name].iloc[:0]
        changes, states = tables["cluster_changes"], tables["scheduler_states"]
        not_cancelled = (changes["action"] != "cancel").to_numpy(dtype=bool)
        masks = {
            "graphs": self._are_mine(tables["graphs"]["client"]),
            "graphs_sent": sent,
            "clients_under_way": self._are_mine(tables["clients_under_way"]["client"]),
            "cluster_changes": not_cancelled | self._are_mine(changes["who"]),
        }
        for name, mask in masks.items():
            tables[name] = rows_of(tables[name], mask)
        if len(states):
            rows = [
                narrowed(row, lambda name: name not in hidden, self._is_mine)
                for row in states.to_dict("records")
            ]
            columns = pd.DataFrame(rows, states.index, dtype=object).astype({"unfinished": float})
            tables["scheduler_states"] = states.assign(**columns)

    def _is_mine(self, client: Any) -> bool:
        return self._clients.name(client) == self._name

    def _are_mine(self, ids: pd.Series) -> Array:
        return np.array(list(map(self._is_mine, ids.astype(object).tolist())), dtype=bool)
