"""Groups of task runs by pipeline step, client, source line, annotations and graph layer."""

from __future__ import annotations

from pathlib import PurePath

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.columns import distinct_objects, joined_categoricals
from dasfprof.analysis.trace.lines import NO_GRAPH, REASONS
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array
from dasfprof.text import elide, excerpt

# Task runs by pipeline step, for all analyses that group by step.

#: Label of task runs that do not belong to any step.
NO_STEP = "(no step)"


def has_steps(run: Run) -> bool:
    """Return whether any task run has a step."""
    return bool((run.tasks["step"].cat.codes >= 0).any())


def step_groups(*tables: pd.DataFrame) -> tuple[Array, list[str]]:
    """Return codes and names of the steps of task runs, for concatenated tables.

    Row ``i`` has the step ``names[codes[i]]``. The last name is `NO_STEP`.
    """
    return groups_of("step", NO_STEP, tables)


def groups_of(
    column: str, nothing: str, tables: tuple[pd.DataFrame, ...]
) -> tuple[Array, list[str]]:
    """Return codes and texts of a categorical column, for concatenated tables.

    Row ``i`` has ``names[codes[i]]``. The last name is `nothing`, which rows without a text have.
    """
    texts = joined_categoricals(*(table[column].array for table in tables))
    named = np.array([*(name != nothing for name in texts.categories), False])
    names = texts.categories[named[:-1]].tolist()
    return np.where(named, np.cumsum(named) - 1, len(names))[texts.codes], [*names, nothing]


#: Label of an unknown client.
NO_CLIENT = "(no client)"


def has_clients(run: Run) -> bool:
    """Return whether task runs of several clients are known."""
    names: set[str] = set()
    for table in (run.tasks, run.scheduler_only):
        codes = np.unique(table["client"].cat.codes.to_numpy())
        names.update(table["client"].cat.categories[codes[codes >= 0]])
    return len(names) > 1


def groups_by(by: str, *tables: pd.DataFrame) -> tuple[Array, list[str]]:
    """Return codes and names of the groups of task runs, for concatenated tables.

    `by` is ``"function"``, ``"step"``, ``"line"`` or ``"client"``. Row ``i`` is in the group
    ``names[codes[i]]``. The last names stand for rows without a group.
    """
    if by == "line":
        return line_groups(*tables)
    return groups_of(by, {"step": NO_STEP, "client": NO_CLIENT}.get(by, ""), tables)


#: Labels of task runs whose line is unknown. Each label contains the reason.
NO_LINES = tuple(f"({reason})" for reason in REASONS)


def has_lines(run: Run) -> bool:
    """Return whether any task run has a source line."""
    return bool((run.tasks["line"].cat.codes >= 0).any())


def line_groups(*tables: pd.DataFrame) -> tuple[Array, list[str]]:
    """Return codes and names of the source lines of task runs, for concatenated tables.

    Row ``i`` has the line ``names[codes[i]]``. The last names are `NO_LINES`.
    """
    codes, names = groups_of("line", "", tables)
    why, reasons = groups_of("no_line", "", tables)
    number_of = [REASONS.index(reason if reason else NO_GRAPH) for reason in reasons]
    count = len(names) - 1
    unknown = count + np.array(number_of, dtype=np.int64)[why]
    return np.where(codes < count, codes, unknown), [*names[:-1], *NO_LINES]


def line_words(run: Run, line: str) -> str:
    """Return a line followed by its source text, if known: ``pipeline.py:7 (x = load())``."""
    noted = run.lines
    text = noted["text"][noted["line"] == line].iloc[0]
    return f"{excerpt(line)} ({excerpt(text)})" if isinstance(text, str) else excerpt(line)


def lines_by_place(run: Run) -> dict[tuple[object, object], str]:
    """Return the texts of lines that built tasks, by file and line number."""
    noted = zip(*(run.lines[name] for name in ("file", "number", "line", "fused")), strict=True)
    # If layers were fused, a text may stand for several lines. Such texts are left out.
    return {(file, number): line for file, number, line, fused in noted if not fused}


#: Annotations with a meaning in Dask. Annotations of users may contain any value.
_OF_DASK = ("priority", "retries", "resources", "workers", "allow_other_workers")
_LONGEST = 200


def annotation_texts(tasks: pd.DataFrame) -> tuple[Array, list[str]]:
    """Return codes and texts of the annotations of task runs.

    Row ``i`` has ``texts[codes[i]]``. The first text is empty, for rows without annotations.
    """
    indices, values = distinct_annotations(tasks)
    texts = {"": 0}
    codes = [texts.setdefault(_text(value), len(texts)) for value in values]
    return np.array([*codes, 0], dtype=np.int64)[indices], list(texts)


def distinct_annotations(tasks: pd.DataFrame) -> tuple[Array, list[object]]:
    """Return the index of each row's annotations (-1 if unknown), and the distinct annotations."""
    if "annotations" not in tasks:
        return np.full(len(tasks), -1, dtype=np.int64), []
    return distinct_objects(tasks["annotations"])


def _text(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    parts = [f"{name} {_plain(value[name])}" for name in _OF_DASK if value.get(name) is not None]
    return elide(", ".join(parts), _LONGEST)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={amount}" for name, amount in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


#: Calls of Dask that submit graphs.
_SENDING = ("compute", "persist", "submit", "map")


@once_per_trace
def asked_lines(run: Run) -> Array:
    """Return the line that submitted the graph of each of `Trace.tasks`, or "" if unknown."""
    lines = np.full(len(run.tasks), "", dtype=object)
    if "graph" not in run.tasks or not len(run.client_calls):
        return lines
    # The graphs of a client arrive in the order in which they were submitted, and each graph was
    # submitted within a call. If several calls overlap, such as in threads, the line is unknown.
    of_graph = dict(zip(run.graphs["stimulus"].tolist(), _of_graphs(run), strict=True))
    stimuli = np.nan_to_num(run.tasks["graph"].to_numpy(dtype=float), nan=-1.0)
    lines[:] = [of_graph.get(stimulus, "") for stimulus in stimuli.astype(np.int64).tolist()]
    return lines


def _of_graphs(run: Run) -> list[str]:
    """Return the line that submitted each graph, or "" if unknown."""
    graphs, sent = run.graphs, run.graphs_sent
    lines = [""] * len(graphs)
    clients = graphs["client"].astype(object).to_numpy()
    senders = sent["client"].astype(object).to_numpy()
    arrivals = graphs["time"].to_numpy(dtype=float)
    for client in dict.fromkeys(senders.tolist()):
        arrived = np.flatnonzero(clients == client)
        times = np.sort(sent["time"].to_numpy(dtype=float)[senders == client])
        if len(arrived) != len(times):
            continue  # Some graphs or calls were not recorded.
        arrived = arrived[np.argsort(arrivals[arrived], kind="stable")]
        for graph, line in zip(arrived.tolist(), _of_calls(run, times), strict=True):
            lines[graph] = line
    return lines


def _of_calls(run: Run, times: Array) -> list[str]:
    """Return, for each time, the line of the only call in progress, or an empty text."""
    calls = run.client_calls
    calls = calls[calls["call"].isin(_SENDING).to_numpy() & (calls["line"] >= 0).to_numpy()]
    begin, stop = (calls[name].to_numpy(dtype=float) for name in ("time", "stop"))
    begun, ended = np.argsort(begin, kind="stable"), np.argsort(stop, kind="stable")
    first = np.searchsorted(begin[begun], times, side="right")
    over = np.searchsorted(stop[ended], times, side="left")
    # The sum of the indices of all calls that have started, minus the sum of those that have ended,
    # is the index of the call in progress, if only one is in progress.
    left = np.append(0, np.cumsum(begun))[first] - np.append(0, np.cumsum(ended))[over]
    named = lines_by_place(run)
    files, numbers = calls["file"].astype(object).tolist(), calls["line"].tolist()
    lines = []
    for row in np.where(first - over == 1, left, -1).tolist():
        file, number = (files[row], numbers[row]) if row >= 0 else ("", -1)
        usual = f"{PurePath(str(file)).name}:{number}" if row >= 0 else ""
        lines.append(str(named.get((file, number), usual)))
    return lines


@once_per_trace
def task_layers(run: Run) -> Groups:
    """Return the task runs grouped by layer."""
    tasks = run.tasks
    functions = tasks["function"].cat.codes.to_numpy()
    codes = number_layers(run, tasks["key_id"].to_numpy(), functions)
    return Groups(codes, int(codes.max(initial=-1)) + 1)


def number_layers(run: Run, key_ids: Array, functions: Array) -> Array:
    """Return a code for the graph layer of each task run, from 0.

    `key_ids` and `functions` are the key and the function code of each task run.
    """
    # Tasks of x.mean() and of (x ** 3).mean() have the same name, mean_chunk, but do different
    # work. Keys of the same layer of a collection are tuples with the same head, which is the part
    # before the numbers. If the keys of a function are texts, all tasks of the function count as
    # one layer.
    keys, others = run.keys, len(run.keys.heads) + functions.astype(np.int64)
    layers = np.where(keys.are_tuples(key_ids), keys.head_ids[key_ids], others)
    return pd.factorize(layers)[0]
