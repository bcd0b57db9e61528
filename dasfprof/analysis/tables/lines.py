"""What each line of the program built and cost, and the layers of the graphs that lines built."""

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
from dasfprof.analysis.model.steps import has_steps, line_groups, lines_by_place
from dasfprof.analysis.model.thread_time import USES, ThreadTime
from dasfprof.analysis.model.transfers import moved_outputs
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import codes_of, integers, known_texts, text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.time_accounting import NO_TASK
from dasfprof.config.kinds import Price
from dasfprof.config.options import setting
from dasfprof.database.columns import Array

_BUSY = list(ThreadTime)[:USES]


@question(
    "Cost by program line",
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
    """Sum up what each line of your program built, and what it took of the cluster and the client.

    Parameters
    ----------
    price
        Price of a worker for an hour, see `cost`. It adds the column ``Cost``.

    Returns
    -------
    DataFrame
        One row per line, sorted by thread time in descending order, then one row per reason for
        tasks without a line, and then a row for idle threads. The columns are:

        - ``Line``: file and line that built the tasks. It is the innermost line of your own code.
          If Dask fused the work of several lines into a task, all of these lines are given, since
          their fractions are unknown. Rows without a line have ``(idle)``, or the reason in
          parentheses
        - ``Text``: source of the line (the last one of several), or in parentheses why it is
          unknown
        - ``Tasks``, ``Failed``: number of task runs, and of failed ones
        - ``Thread Time (s)``, and ``Share (%)`` of the time in which tasks occupied threads.
          Columns with the categories of this time follow. All rows sum to the thread time of
          `time_accounting`
        - ``Cost``, with a price: each worker's hours, times the line's fraction of that worker's
          threads, times the price. All rows sum to the cost of all worker hours, including idle
          ones
        - ``Critical Path (s)``: time of its tasks on the critical path, with the waits before them
        - ``Moved (MB)``: its results that were transferred between workers
        - ``Read (MB)``: spilled inputs that its tasks read back from disk
        - ``Highest (MB)``: peak memory of a worker process while one of its tasks ran, including
          memory for other purposes. NA if there is no sample
        - ``Client (s)``, ``Waiting (s)``: time of this line's calls into Dask, and for how long
          these calls waited for results. See `client_calls`
        - ``In``: the function that contains the line
        - ``Library``: the innermost line of a library between this line and Dask
        - ``File``

    Raises
    ------
    InvalidArgumentError
        If the price is invalid.

    Notes
    -----
    Idle threads have a separate row because no line causes them. ``Client (s)`` covers only calls
    into Dask, and not other time of the client, such as for building collections.
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
            "Share (%)": ratio(busy, busy.sum()) * 100,
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
    """Return the lines, with ``(idle)`` at the end, and all their sums except thread time."""
    tasks = run.tasks
    codes, names = line_groups(tasks, run.unseen)
    names += [line for line in run.lines["line"].tolist() if line not in set(names)]
    names.append(NO_TASK)
    groups, count = Groups(codes[: len(tasks)], len(names)), len(names)
    path, calls, line_at = path_segments(run), find_calls(run), lines_by_place(run)
    places = zip(calls["file"].tolist(), calls["line"].tolist(), strict=True)
    of_calls = Groups(codes_of([line_at.get(place, "") for place in places], names), count)
    of_keys = np.full(len(run.keys), count - 1, dtype=np.int64)
    of_keys[tasks["key_id"].to_numpy()] = codes[: len(tasks)]
    return names, {
        "tasks": groups.sizes,
        "failed": groups.sum((tasks["state"] == "erred").to_numpy(dtype=float)),
        "read": groups.sum(np.nan_to_num(tasks["disk_read_size"].to_numpy(dtype=float))),
        "highest": groups.max(memory_of_runs(run).highest),
        "path": Groups(codes[path.rows], count).sum(path.length),
        "moved": moved_outputs(run, of_keys, count).size,
        "client": of_calls.sum(calls["seconds"].to_numpy(dtype=float)),
        "waiting": of_calls.sum(calls["waiting"].to_numpy(dtype=float)),
    }


def _spent(run: Run, names: list[str]) -> Array:
    """Return the thread time of each line, divided into categories."""
    lines, seconds = make_accounts(run).with_idle("line", NO_TASK)
    spent = np.zeros((len(names), len(ThreadTime)))
    spent[codes_of(lines, names)] = seconds
    return spent


def _cost(run: Run, names: list[str], price: Price) -> Array:
    """Return the cost of each line's thread time, and the cost of idle threads as the last item."""
    hours = hours_of_groups(run, *line_groups(run.task_runs, run.unseen))
    cost = {name: each.price(price) for name, each in hours.items()}
    cost[NO_TASK] = cost.pop(WAITING) + cost.pop(IDLE)
    return np.array([cost.get(name, 0.0) for name in names])


def _about(run: Run, names: list[str]) -> dict[str, pd.Series]:
    """Return the columns that describe each line."""
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


#: Suffixes of the names of types that have rows.
_WITH_ROWS = (".DataFrame", ".Series", ".Index")


@question(
    "Time by part of the plan",
    "lines",
    expendable=(
        *("Text", "Partitions", "Rows", "Input (MB)", "Output (MB)", "Moved (MB)"),
        *(f"{spent.label} (s)" for spent in _BUSY),
    ),
    page="plan",
    needs="tasks",
)
def plan(run: Run) -> pd.DataFrame:
    """Sum up the layers of the submitted graphs, as Dask optimised them.

    Returns
    -------
    DataFrame
        One row per node of the plan, in the order in which they started:

        - ``Node``: its number and function. A node contains the tasks of one layer that one line
          and one step built in one computation. Tasks with text keys, such as those of ``submit``,
          have one layer per function
        - ``Computation``: its number, from 1. A new computation begins with a graph that arrives
          when all earlier tasks have ended
        - ``Function``, ``Line``, ``Text`` (see `lines`), and ``Step`` if there are steps
        - ``Tasks``: number of task runs
        - ``Partitions``: number of distinct results
        - ``Rows``: total rows of these results if they are dataframes. NA if any number is unknown
        - ``Thread Time (s)``, and ``Share (%)`` of the time in which tasks occupied threads.
          Columns with the categories of this time follow, see `time_accounting`
        - ``Critical Path (s)``: time of its tasks on the critical path, with the waits before them
        - ``Failed``: number of failed task runs
        - ``Again``: number of task runs that recomputed a result
        - ``Unfinished``: number of unfinished task runs of keys without a result
        - ``Input (MB)``: distinct results of other nodes that it used. NA as in `plan_edges`
        - ``Output (MB)``: its results
        - ``Moved (MB)``: its results that were transferred between workers
    """
    nodes = find_plan(run)
    spent = busy_seconds(run, nodes.of_all_slots, len(nodes))[:, :USES]
    busy, path = spent.sum(axis=1), path_segments(run)
    texts = run.lines.drop_duplicates("line").set_index("line")["text"]
    counts = _counts(run, nodes)
    table = pd.DataFrame(
        {
            "Node": text(node_names(nodes)),
            "Computation": nodes.computation + 1,
            "Function": text(nodes.function),
            "Line": text(nodes.line),
            "Text": known_texts(texts.reindex(nodes.line)),
            "Step": text(nodes.step),
            **{name: counts.pop(name) for name in ("Tasks", "Partitions", "Rows")},
            "Thread Time (s)": busy,
            "Share (%)": ratio(busy, busy.sum()) * 100,
            **{f"{each.label} (s)": spent[:, each] for each in _BUSY if spent[:, each].any()},
            "Critical Path (s)": Groups(nodes.of_slots[path.rows], len(nodes)).sum(path.length),
            **counts,
            **_bytes(run, nodes),
        }
    )
    return table if has_steps(run) else table.drop(columns="Step")


@question("Dependencies between parts of the plan", "lines", page="plan-edges", needs="tasks")
def plan_edges(run: Run) -> pd.DataFrame:
    """List the dependencies between nodes of the plan.

    Returns
    -------
    DataFrame
        One row per pair of nodes (see `plan`), in the order of the node that uses the results:

        - ``From``, ``To``: the nodes. They are equal if tasks of a layer use results of the same
          layer
        - ``Size (MB)``: of the distinct results. NA if unknown, and for P2P shuffles, in which data
          moves between workers without being a result
        - ``Tasks``: number of task runs of the second node that used any of these results
        - ``On Path``: number of these task runs that come directly after a task run of the first
          node on the critical path, because they waited for its result
    """
    nodes, edges = find_plan(run), find_edges(run)
    names = node_names(nodes)
    return pd.DataFrame(
        {
            "From": text(names[edges.source]),
            "To": text(names[edges.target]),
            "Size (MB)": edges.size / 1e6,
            "Tasks": edges.tasks.astype(np.int64),
            "On Path": edges.on_path.astype(np.int64),
        }
    )


def node_names(nodes: Plan) -> Array:
    """Return a unique name for each node."""
    names = np.empty(len(nodes), dtype=object)
    names[:] = [f"{number} {name}" for number, name in enumerate(nodes.function, 1)]
    return names


def _counts(run: Run, nodes: Plan) -> dict[str, pd.Series]:
    """Return numbers of task runs (by outcome), results and rows of each node."""
    tasks, codes, count = run.tasks, nodes.of_slots[: len(run.tasks)], len(nodes)
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
    opened = run.task_runs["key_id"].to_numpy()[len(tasks) :]
    open_nodes = nodes.of_all_slots[len(tasks) : len(tasks) + len(opened)]
    unfinished = open_nodes[~np.isin(opened, key_ids)]
    return {
        "Tasks": integers(Groups(codes, count).sizes),
        "Partitions": integers(results.sizes),
        "Rows": integers(np.where(results.sizes > 0, summed, np.nan)),
        "Failed": integers(Groups(codes[(tasks["state"] == "erred").to_numpy()], count).sizes),
        "Again": integers(Groups(codes[again], count).sizes),
        "Unfinished": integers(Groups(unfinished, count).sizes),
    }


def _bytes(run: Run, nodes: Plan) -> dict[str, Array]:
    """Return, in MB, the inputs and results of each node, and the transfers of its results."""
    tasks, edges, count = run.tasks, find_edges(run), len(nodes)
    codes = nodes.of_slots[: len(tasks)]
    of_keys = np.full(len(run.keys), -1, dtype=np.int64)
    of_keys[tasks["key_id"].to_numpy()] = codes
    taken = Groups(np.where(edges.source == edges.target, -1, edges.target), count)
    known = taken.known(edges.size) == taken.sizes
    return {
        "Input (MB)": np.where(known, taken.sum(edges.size), np.nan) / 1e6,
        "Output (MB)": Groups(codes, count).sum(tasks["size"].to_numpy(dtype=float)) / 1e6,
        "Moved (MB)": moved_outputs(run, of_keys, count).size / 1e6,
    }
