"""The tables of one client's task runs, and when the tasks of other clients held threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.clients import TaskClients
from dasfprof.analysis.trace.keys import KeyTable
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.tasks import OTHER_CLIENTS

Tables = dict[str, pd.DataFrame]

#: States of tasks that have not ended, as the scheduler counts them.
_UNFINISHED = ("waiting", "no-worker", "queued", "processing")
_RUNS = ("tasks", "scheduler_only")


def spans_of(tables: Tables, rows: dict[str, Array]) -> pd.DataFrame:
    """Return when task runs held threads, or may have: ``worker_id, begin, end, by_worker``.

    Parameters
    ----------
    tables
        The tables of task runs.
    rows
        Of each the rows of the task runs.
    """
    tasks, only = (tables[name].iloc[rows[name]] for name in _RUNS)
    executing, done = (tasks[name].to_numpy(dtype=float) for name in ("executing", "done"))
    start = tasks["start"].to_numpy(dtype=float)
    ended = np.fmin(done, tasks["seceded"].to_numpy(dtype=float))
    stop = start + tasks["duration"].to_numpy(dtype=float)
    worker = {
        "worker_id": tasks["worker_id"].to_numpy(dtype=np.int64),
        "begin": np.where(np.isnan(executing), start, executing),
        "end": np.where(np.isnan(ended), stop, ended),
    }
    only = only[(only["worker_id"] >= 0).to_numpy()] if "sent" in only else only.iloc[:0]
    if not len(only):
        return pd.DataFrame({**worker, "by_worker": True})
    ran = only["lost"].to_numpy(dtype=bool)
    open_ = (only["scheduler_state"] == "processing").to_numpy(dtype=bool)
    until = np.where(open_, np.inf, only["known"].to_numpy(dtype=float))
    scheduler = {
        "worker_id": only["worker_id"].to_numpy(dtype=np.int64),
        "begin": np.where(ran, only["scheduler_start"], only["sent"]).astype(float),
        "end": np.where(ran, only["scheduler_stop"], until).astype(float),
    }
    parts = [pd.DataFrame({**worker, "by_worker": True})]
    parts += [pd.DataFrame({**scheduler, "by_worker": False})]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def without_others(
    tables: Tables, items: dict[str, Array], keys: KeyTable, selected: Selected | None
) -> pd.DataFrame:
    """Take the task runs of other clients, and what was recorded of them, out of tables.

    Parameters
    ----------
    tables
        The tables, by name.
    items
        Key ids: ``dependencies`` of ``tasks``, whose numbers are ``lengths``, and the keys of
        ``transfers``.
    keys
        The keys.
    selected
        The client whose task runs stay, or None if all stay but those without texts.

    Returns
    -------
    DataFrame
        When the others held threads, see `spans_of`.
    """
    function, names = keys.functions()
    nameless = names.index(OTHER_CLIENTS) if OTHER_CLIENTS in names else -1
    others = {}
    for name in _RUNS:
        table = tables[name]
        others[name] = function[table["key_id"].to_numpy()] == nameless
        if selected is not None:
            others[name] |= ~selected.has(table["client"])
    spans = spans_of(tables, others)
    if not len(spans) and selected is None:
        return spans
    foreign = np.zeros(len(keys) + 1, dtype=bool)  # the last is that of unknown keys, -1
    for chosen in (True, False):
        for name in _RUNS:
            foreign[tables[name]["key_id"].to_numpy()[others[name] == chosen]] = chosen
    samples, ran = tables["task_samples"], tables["tasks"][others["tasks"]]
    tables["task_samples"] = _rows(samples, ~_within(samples, ran))
    counts = np.maximum(items["lengths"], 0)
    items["dependencies"] = items["dependencies"][np.repeat(~others["tasks"], counts)]
    items["lengths"] = items["lengths"][~others["tasks"]]
    counts = tables["transfers"]["keys"].to_numpy()
    of_row = np.repeat(np.arange(len(counts)), counts)
    mine = np.bincount(of_row, ~foreign[items["transfers"]], minlength=len(counts)) > 0
    mine |= (counts == 0) & (selected is None)
    items["transfers"] = items["transfers"][np.repeat(mine, counts)]
    tables["transfers"] = _rows(tables["transfers"], mine)
    theirs = np.setdiff1d(function[foreign[:-1]], function[~foreign[:-1]])
    hidden = {names[code] for code in theirs.tolist()}
    for name, table in tables.items():
        if name in _RUNS:
            tables[name] = _rows(table, ~others[name])
        elif (key := next((one for one in ("key_id", "key") if one in table), None)) is not None:
            tables[name] = _rows(table, ~foreign[table[key].to_numpy(dtype=np.int64)])
        elif name in ("function_code", "call_profiles"):
            tables[name] = _rows(table, ~table["name"].isin(hidden).to_numpy())
    if selected is not None:
        selected.narrow(tables, hidden)
    return spans


def _rows(table: pd.DataFrame, mask: Array) -> pd.DataFrame:
    return table if mask.all() else table[mask].reset_index(drop=True)


def _within(samples: pd.DataFrame, runs: pd.DataFrame) -> Array:
    """Return which samples of threads are of some task runs."""
    inside = np.zeros(len(samples), dtype=bool)
    times = samples["time"].to_numpy(dtype=float)
    threads = samples["thread"].astype(object).to_numpy()
    places = pd.DataFrame({"thread": threads, "worker": samples["worker_id"]})
    rows_of = places.groupby(["worker", "thread"]).indices
    for where, own in runs.groupby(["worker_id", runs["thread"].astype(object)]):
        rows = rows_of.get(where)
        if rows is not None:
            ordered = own.sort_values("start")
            start = ordered["start"].to_numpy(dtype=float)
            stop = start + ordered["duration"].to_numpy(dtype=float)
            place = np.searchsorted(start, times[rows], side="right") - 1
            inside[rows] = (place >= 0) & (times[rows] <= stop[np.maximum(place, 0)])
    return inside


class Selected:
    """The client whose task runs an analysis is of.

    Parameters
    ----------
    name
        Its name.
    clients
        The clients of task runs.
    """

    def __init__(self, name: str, clients: TaskClients) -> None:
        self._name, self._clients = name, clients
        if name not in (known := clients.all_names()):
            there = ", ".join(known) if known else "none"
            raise InvalidArgumentError(
                f"client={name!r}: no client of this name sent tasks in this trace. Its clients: "
                f"{there}."
            )

    def has(self, clients: pd.Series) -> Array:
        """Return which rows of a column of `TaskClients.find` are the client's."""
        codes = clients.cat.codes.to_numpy()
        return np.isin(codes, self._clients.numbers_of(self._name))

    def narrow(self, tables: Tables, hidden: set[str]) -> None:
        """Take out what clients and the scheduler recorded of others.

        Parameters
        ----------
        tables
            The tables, by name.
        hidden
            The functions of others alone.
        """
        sent = self._are_mine(tables["graphs_sent"]["client"])
        tables["graphs"] = _rows(tables["graphs"], self._are_mine(tables["graphs"]["client"]))
        if not sent.any():  # the process that was recorded is another client's
            for name in ("client_calls", "sent_values", "functions_sent", "client_samples"):
                tables[name] = tables[name].iloc[:0]
        tables["graphs_sent"] = _rows(tables["graphs_sent"], sent)
        under_way = tables["clients_under_way"]
        tables["clients_under_way"] = _rows(under_way, self._are_mine(under_way["client"]))
        changes = tables["cluster_changes"]
        kept = (changes["action"] != "cancel").to_numpy(dtype=bool) | self._are_mine(changes["who"])
        tables["cluster_changes"] = _rows(changes, kept)
        states = tables["scheduler_states"]
        if len(states):
            tables["scheduler_states"] = states.assign(**self._narrowed(states, hidden))

    def _are_mine(self, ids: pd.Series) -> Array:
        names = [self._clients.name(client) for client in ids.astype(object).tolist()]
        return np.array([name == self._name for name in names], dtype=bool)

    def _narrowed(self, states: pd.DataFrame, hidden: set[str]) -> dict[str, Any]:
        """Return the columns of the scheduler's states that list tasks and clients."""
        rows: dict[str, list[Any]] = {"tasks": [], "finished": [], "held_back": [], "clients": []}
        for state in states[list(rows)].to_dict("records"):
            for name in ("tasks", "finished"):
                own = dict(state[name] or {})
                rows[name].append({key: own[key] for key in own if key not in hidden})
            held = state["held_back"] or ()
            rows["held_back"].append([one for one in held if one.get("function") not in hidden])
            there = state["clients"] or ()
            mine = [one for one in there if self._clients.name(one["client"]) == self._name]
            rows["clients"].append(mine)
        unfinished = [
            sum(number for of in row.values() for kind, number in of.items() if kind in _UNFINISHED)
            for row in rows["tasks"]
        ]
        index = states.index
        made = {name: pd.Series(own, index, dtype=object) for name, own in rows.items()}
        return {**made, "unfinished": np.array(unfinished, dtype=float)}
