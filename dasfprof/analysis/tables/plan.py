"""The plan of a run: the layers of its graphs, what each took, and what they handed on."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.accounting import busy_seconds
from dasfprof.analysis.model.critical_path import path_segments
from dasfprof.analysis.model.plan import Plan, PlanEdges, find_edges, find_plan
from dasfprof.analysis.model.steps import has_steps
from dasfprof.analysis.model.thread_time import USES, ThreadTime
from dasfprof.analysis.model.transfers import moved_outputs
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import known_texts, text, whole
from dasfprof.analysis.tables.questions import question
from dasfprof.database.columns import Array

_BUSY = list(ThreadTime)[:USES]
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
    table = pd.DataFrame(
        {
            "Node": text(node_names(found)),
            "Computation": found.computation + 1,
            "Function": text(np.array(found.function, dtype=object)),
            "Line": text(np.array(found.line, dtype=object)),
            "Text": _texts(run, found),
            "Step": text(np.array(found.step, dtype=object)),
            **_counts(run, found),
            "Thread Time (s)": busy,
            "Share (%)": ratio(busy, np.full(len(busy), busy.sum())) * 100,
            **{f"{each.label} (s)": spent[:, each] for each in _BUSY if spent[:, each].any()},
            "Critical Path (s)": Groups(found.of_slots[path.rows], len(found)).sum(path.length),
            **_outcomes(run, found),
            **_bytes(run, found),
        }
    )
    return table if has_steps(run) else table.drop(columns="Step")


@question(
    "What the parts of the plan handed to each other",
    "lines",
    page="plan-edges",
    needs="tasks",
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


def _texts(run: Run, found: Plan) -> pd.Series:
    noted = run.lines.drop_duplicates("line").set_index("line")["text"]
    return known_texts(noted.reindex(found.line))


def _counts(run: Run, found: Plan) -> dict[str, pd.Series]:
    """Return how many task runs, results and rows nodes have."""
    tasks, codes = run.tasks, found.of_slots[: len(run.tasks)]
    made = np.flatnonzero((tasks["state"] == "memory").to_numpy(dtype=bool))
    keys = pd.DataFrame({"node": codes, "key": tasks["key_id"]}).iloc[made]
    last = np.zeros(len(tasks), dtype=bool)
    last[made] = ~keys.duplicated(keep="last")
    results = Groups(np.where(last, codes, -1), len(found))
    kinds = tasks["type"].cat
    framed = np.array([kind.endswith(_WITH_ROWS) for kind in [*kinds.categories, ""]], dtype=bool)
    rows = np.full(len(tasks), np.nan)
    shapes = tasks["shape"].to_numpy(dtype=object)
    for row in np.flatnonzero(framed[kinds.codes.to_numpy()] & last).tolist():
        shape = shapes[row]
        rows[row] = shape[0] if isinstance(shape, tuple | list) and shape else np.nan
    summed = np.where(results.known(rows) == results.sizes, results.sum(rows), np.nan)
    return {
        "Tasks": whole(Groups(codes, len(found)).sizes),
        "Partitions": whole(results.sizes),
        "Rows": whole(np.where(results.sizes > 0, summed, np.nan)),
    }


def _outcomes(run: Run, found: Plan) -> dict[str, pd.Series]:
    tasks, count = run.tasks, len(found)
    codes = found.of_slots[: len(tasks)]
    succeeded = (tasks["state"] == "memory").to_numpy(dtype=bool)
    keys = np.where(succeeded, tasks["key_id"].to_numpy(), -1)
    again = Groups(keys, len(run.keys)).places(tasks["start"].to_numpy()) > 0
    opened = run.open["key_id"].to_numpy()
    nodes = found.of_whole[len(tasks) : len(tasks) + len(opened)]
    unfinished = nodes[~np.isin(opened, keys)]
    return {
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
    return {
        "Input (MB)": _told(taken, edges) / 1e6,
        "Output (MB)": Groups(codes, count).sum(tasks["size"].to_numpy(dtype=float)) / 1e6,
        "Moved (MB)": moved_outputs(run, of_keys, count).size / 1e6,
    }


def _told(taken: Groups, edges: PlanEdges) -> Array:
    """Sum the bytes of edges; NaN where one is unknown."""
    known: Array = np.where(taken.known(edges.size) == taken.sizes, taken.sum(edges.size), np.nan)
    return known
