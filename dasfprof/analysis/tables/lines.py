"""What the parts of a program took: its lines, and the nodes of the plan that they made."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.accounting import (
    IDLE,
    WAITING,
    busy_seconds,
    hours_of_groups,
    make_accounts,
)
from dasfprof.analysis.model.client_time import find_calls
from dasfprof.analysis.model.critical_path import path_segments
from dasfprof.analysis.model.plan import Plan, find_edges, find_plan
from dasfprof.analysis.model.run_memory import memory_of_runs
from dasfprof.analysis.model.steps import has_steps, line_groups
from dasfprof.analysis.model.thread_time import USES, ThreadTime
from dasfprof.analysis.model.transfers import moved_outputs
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import known_texts, text, whole
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.time_accounting import NO_TASK
from dasfprof.config import setting
from dasfprof.config.kinds import Price
from dasfprof.database.columns import Array

_BUSY = list(ThreadTime)[:USES]


@question(
    "What the lines of the program cost",
    "lines",
    overview=2,
    page="ledger",
    expendable=(
        *("In", "Library", "File", "Moved (MB)", "Read (MB)", "Highest (MB)", "Waiting (s)"),
        *(f"{spent.label} (s)" for spent in _BUSY),
    ),
    needs="lines",
)
def lines(run: Run, price: float | str | None = None) -> pd.DataFrame:
    """Sum up what each line of the program built, and what it took of the cluster and the client.

    Parameters
    ----------
    price
        Of a worker for an hour, see `cost`: the table then has ``Cost``.

    Returns
    -------
    DataFrame
        A row a line, the most thread time first; after them why other tasks have none, and the
        threads that no task held:

        - ``Line``: file and line that built the tasks, the innermost of the program's own code; of
          tasks into which Dask fused the work of several lines, all of those: nothing tells their
          shares. In brackets: why there is no line, ``(idle)``
        - ``Text``: of the line, of the last of several; where it is unknown, why in brackets
        - ``Tasks``: task runs; ``Failed``: of them
        - ``Thread Time (s)``, ``Share (%)`` of the time that tasks held threads; then the same time
          by its classes, see `time_accounting`, to which all rows sum
        - ``Cost``, with a price: the line's share of the threads of each worker, times that
          worker's hours and the price; all rows sum to the hours of all workers, idle ones too
        - ``Critical Path (s)``: of the path, until its tasks had ended
        - ``Moved (MB)``: its results, between workers; ``Read (MB)``: inputs of its tasks, from
          disk, where they had been spilled; ``Highest (MB)``: the most that a worker's process held
          while one of its tasks ran, whatever for; NA: no sample tells
        - ``Client (s)``: the program's calls of Dask from this line, ``Waiting (s)`` for results in
          them, see `client_calls`
        - ``In``: the function that the line is in; ``Library``: the innermost line of a library
          that it called and that called Dask; ``File``

    Raises
    ------
    InvalidArgumentError
        If that is no price.

    Notes
    -----
    Threads are idle for no line's sake, so that they have a row of their own. Building collections
    takes the client time that is in no call.
    """
    declared: Price | None = setting("price", price)
    names, sums = _sums(run)
    spent = _spent(run, names)
    busy = spent[:, :USES].sum(axis=1)
    table = pd.DataFrame(
        {
            "Line": text(names),
            **_about(run, names),
            "Tasks": sums["tasks"].astype(np.int64),
            "Thread Time (s)": spent.sum(axis=1),
            "Share (%)": ratio(busy, np.full(len(busy), busy.sum())) * 100,
            **({} if declared is None else {"Cost": _cost(run, names, declared)}),
            **{f"{each.label} (s)": spent[:, each] for each in _BUSY if spent[:, each].any()},
            "Critical Path (s)": sums["path"],
            "Failed": sums["failed"].astype(np.int64),
            "Moved (MB)": sums["moved"] / 1e6,
            "Read (MB)": sums["read"] / 1e6,
            "Highest (MB)": sums["highest"] / 1e6,
            "Client (s)": sums["client"],
            "Waiting (s)": sums["waiting"],
        }
    )
    known = np.array([not name.startswith("(") for name in names], dtype=bool)
    order = np.lexsort((-sums["client"], -busy, ~known, np.array(names) == NO_TASK))
    shown = (table["Thread Time (s)"] > 0) | (table["Tasks"] > 0) | (table["Client (s)"] > 0)
    return table.take(order[shown.to_numpy()[order]]).reset_index(drop=True)


def _sums(run: Run) -> tuple[list[str], dict[str, Array]]:
    """Return all lines, with what each took, less the threads; in the end the idle ones."""
    tasks = run.tasks
    codes, names = line_groups(tasks, run.unseen)
    names += [line for line in run.lines["line"].tolist() if line not in set(names)]
    names.append(NO_TASK)
    groups, count = Groups(codes[: len(tasks)], len(names)), len(names)
    path, client = path_segments(run), _client(run, names)
    of_keys = np.full(len(run.keys), count - 1, dtype=np.int64)
    of_keys[tasks["key_id"].to_numpy()] = codes[: len(tasks)]
    return names, {
        "tasks": groups.sizes,
        "failed": groups.sum((tasks["state"] == "erred").to_numpy(dtype=float)),
        "read": groups.sum(np.nan_to_num(tasks["disk_read_size"].to_numpy(dtype=float))),
        "highest": groups.max(memory_of_runs(run).highest),
        "path": Groups(codes[path.rows], count).sum(path.length),
        "moved": moved_outputs(run, of_keys, count).size,
        **client,
    }


def _client(run: Run, names: list[str]) -> dict[str, Array]:
    """Return the seconds of the client's calls from each line."""
    calls, noted = find_calls(run), run.lines
    label = {
        (file, number): line
        for file, number, line, fused in zip(
            noted["file"], noted["number"], noted["line"], noted["fused"], strict=True
        )
        if not fused
    }
    places = {name: place for place, name in enumerate(names)}
    seconds, waiting = np.zeros(len(names)), np.zeros(len(names))
    rows = (calls[name].tolist() for name in ("file", "line", "seconds", "waiting"))
    for file, number, spent, waited in zip(*rows, strict=True):
        place = places.get(label.get((file, number), ""))
        if place is not None:
            seconds[place] += spent
            waiting[place] += waited
    return {"client": seconds, "waiting": waiting}


def _spent(run: Run, names: list[str]) -> Array:
    """Return the thread-seconds of each line by class."""
    accounts = make_accounts(run)
    places = {name: place for place, name in enumerate(names)}
    spent = np.zeros((len(names), len(ThreadTime)))
    for line, seconds in zip(*accounts.busy["line"], strict=True):
        spent[places[line]] += seconds
    idle = accounts.of_lives.sum(axis=0)
    spent[places[NO_TASK], USES:] = idle[USES:]
    return spent


def _cost(run: Run, names: list[str], price: Price) -> Array:
    """Return what the threads cost that each line's tasks held; at the end those that were idle."""
    ran = run.whole
    hours = hours_of_groups(run, *line_groups(ran.tasks, ran.unseen))
    cost = {name: each.price(price) for name, each in hours.items()}
    cost[NO_TASK] = cost.pop(WAITING) + cost.pop(IDLE)
    return np.array([cost.get(name, 0.0) for name in names])


def _about(run: Run, names: list[str]) -> dict[str, pd.Series]:
    """Return what is known of each line."""
    noted = run.lines.drop_duplicates("line").set_index("line").reindex(names)
    missing = [f"({why})" if isinstance(why, str) else "" for why in noted["missing"]]
    below = zip(noted["library"], noted["library_line"], strict=True)
    return {
        "Text": known_texts(noted["text"].where(noted["text"].notna(), missing)),
        "In": known_texts(noted["code"]),
        "Library": text(
            [f"{file}:{line:.0f}" if isinstance(file, str) else "" for file, line in below]
        ),
        "File": known_texts(noted["file"]),
    }


# --- The plan: the layers of the graphs, what each took, and what they handed on ------------------

#: How the types of results end that have rows.
_WITH_ROWS = (".DataFrame", ".Series", ".Index")


@question(
    "What the parts of the plan took",
    "lines",
    expendable=(
        *("Text", "Partitions", "Rows", "Input (MB)", "Output (MB)", "Moved (MB)"),
        *(f"{spent.label} (s)" for spent in _BUSY),
    ),
    page="plan",
    needs="tasks",
)
def plan(run: Run) -> pd.DataFrame:
    """Sum up what each node of the plan took: a layer of the graphs, as Dask had optimised them.

    Returns
    -------
    DataFrame
        A row a node, in the order in which they began:

        - ``Node``: its number and function. A node is what one line and step of the program built
          of one layer, in one computation; of tasks whose keys are text, such as futures, all of a
          function count as a layer
        - ``Computation``: its number, from 1. Another one begins with a graph that arrives when all
          that came before has ended
        - ``Function``; ``Line`` and ``Text`` of it, see `lines`; ``Step``, where there are any
        - ``Tasks``: task runs; ``Partitions``: their distinct results; ``Rows`` of these, of
          dataframes, NA where not all are known
        - ``Thread Time (s)``, ``Share (%)`` of the time that tasks held threads; then the same time
          by its classes, see `time_accounting`
        - ``Critical Path (s)``: of the path, until its tasks had ended
        - ``Failed``: task runs, ``Again``: those that made a result once more, ``Unfinished``: that
          had not ended, of keys without a result
        - ``Input (MB)``: distinct results that it took of other nodes, NA: see `plan_edges`;
          ``Output (MB)``: its results; ``Moved (MB)``: those, between workers
    """
    found, ran = find_plan(run), run.whole
    spent = busy_seconds(ran, found.of_whole, len(found))[:, :USES]
    busy, path = spent.sum(axis=1), path_segments(run)
    texts = run.lines.drop_duplicates("line").set_index("line")["text"]
    counts = _counts(run, found)
    table = pd.DataFrame(
        {
            "Node": text(node_names(found)),
            "Computation": found.computation + 1,
            "Function": text(found.function),
            "Line": text(found.line),
            "Text": known_texts(texts.reindex(found.line)),
            "Step": text(found.step),
            **{name: counts.pop(name) for name in ("Tasks", "Partitions", "Rows")},
            "Thread Time (s)": busy,
            "Share (%)": ratio(busy, np.full(len(busy), busy.sum())) * 100,
            **{f"{each.label} (s)": spent[:, each] for each in _BUSY if spent[:, each].any()},
            "Critical Path (s)": Groups(found.of_slots[path.rows], len(found)).sum(path.length),
            **counts,
            **_bytes(run, found),
        }
    )
    return table if has_steps(run) else table.drop(columns="Step")


@question(
    "What the parts of the plan handed to each other", "lines", page="plan-edges", needs="tasks"
)
def plan_edges(run: Run) -> pd.DataFrame:
    """List which nodes of the plan took results of which.

    Returns
    -------
    DataFrame
        A row a pair of nodes, see `plan`, in the order of the node that took:

        - ``From``, ``To``: the nodes; they are the same where tasks of a layer take results of it
        - ``Size (MB)``: of the distinct results; NA: unknown, or of a P2P shuffle, whose rows and
          blocks go from worker to worker and are no results
        - ``Tasks``: task runs of the second that took any; ``On Path``: those of the critical path
          that it comes to from a result that they waited for
    """
    found, edges = find_plan(run), find_edges(run)
    names = node_names(found)
    return pd.DataFrame(
        {
            "From": text(names[edges.source]),
            "To": text(names[edges.target]),
            "Size (MB)": edges.size / 1e6,
            "Tasks": edges.tasks.astype(np.int64),
            "On Path": edges.on_path.astype(np.int64),
        }
    )


def node_names(found: Plan) -> Array:
    """Return what nodes are called: each differs from all others."""
    names = np.empty(len(found), dtype=object)
    names[:] = [f"{number} {name}" for number, name in enumerate(found.function, 1)]
    return names


def _counts(run: Run, found: Plan) -> dict[str, pd.Series]:
    """Return how many task runs, results and rows nodes have, and what became of the runs."""
    tasks, codes, count = run.tasks, found.of_slots[: len(run.tasks)], len(found)
    succeeded = (tasks["state"] == "memory").to_numpy(dtype=bool)
    made = np.flatnonzero(succeeded)
    keys = pd.DataFrame({"node": codes, "key": tasks["key_id"]}).iloc[made]
    last = np.zeros(len(tasks), dtype=bool)
    last[made] = ~keys.duplicated(keep="last")
    results = Groups(np.where(last, codes, -1), count)
    kinds = tasks["type"].cat
    framed = np.array([kind.endswith(_WITH_ROWS) for kind in [*kinds.categories, ""]], dtype=bool)
    rows = np.full(len(tasks), np.nan)
    shapes = tasks["shape"].to_numpy(dtype=object)
    for row in np.flatnonzero(framed[kinds.codes.to_numpy()] & last).tolist():
        shape = shapes[row]
        rows[row] = shape[0] if isinstance(shape, tuple | list) and shape else np.nan
    summed = np.where(results.known(rows) == results.sizes, results.sum(rows), np.nan)
    key_ids = np.where(succeeded, tasks["key_id"].to_numpy(), -1)
    again = Groups(key_ids, len(run.keys)).places(tasks["start"].to_numpy()) > 0
    opened = run.open["key_id"].to_numpy()
    nodes = found.of_whole[len(tasks) : len(tasks) + len(opened)]
    unfinished = nodes[~np.isin(opened, key_ids)]
    return {
        "Tasks": whole(Groups(codes, count).sizes),
        "Partitions": whole(results.sizes),
        "Rows": whole(np.where(results.sizes > 0, summed, np.nan)),
        "Failed": whole(Groups(codes[(tasks["state"] == "erred").to_numpy()], count).sizes),
        "Again": whole(Groups(codes[again], count).sizes),
        "Unfinished": whole(Groups(unfinished, count).sizes),
    }


def _bytes(run: Run, found: Plan) -> dict[str, Array]:
    """Return the MB that nodes took, made, and that were moved of their results."""
    tasks, edges, count = run.tasks, find_edges(run), len(found)
    codes = found.of_slots[: len(tasks)]
    of_keys = np.full(len(run.keys), -1, dtype=np.int64)
    of_keys[tasks["key_id"].to_numpy()] = codes
    taken = Groups(np.where(edges.source == edges.target, -1, edges.target), count)
    told = taken.known(edges.size) == taken.sizes
    return {
        "Input (MB)": np.where(told, taken.sum(edges.size), np.nan) / 1e6,
        "Output (MB)": Groups(codes, count).sum(tasks["size"].to_numpy(dtype=float)) / 1e6,
        "Moved (MB)": moved_outputs(run, of_keys, count).size / 1e6,
    }
