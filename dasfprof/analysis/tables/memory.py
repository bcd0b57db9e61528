"""How much memory functions held, and which of their lines allocated it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run_memory import memory_of_runs
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import all_stacks, line_of
from dasfprof.analysis.tables.columns import known_texts, text, whole
from dasfprof.analysis.tables.questions import question
from dasfprof.database.columns import Array


@question(
    "Memory of functions",
    "balance",
    short="memory",
    expendable=("Median (MB)", "Worker"),
)
def function_memory(run: Run) -> pd.DataFrame:
    """Say how much memory workers' processes held while functions ran, by the samples there are.

    Returns
    -------
    DataFrame
        A row a function, the highest first; NA where no sample tells:

        - ``Function``, ``Task Runs``
        - ``Sampled``: its task runs during which a sample was taken, ten a second by default
        - ``Highest (MB)``: the most that a process held (its resident memory) in such a sample,
          whatever for; ``Median (MB)``: of the most in each run
        - ``Alone``: its task runs that had their process to themselves and enough samples to tell
          of a rise
        - ``Largest Rise (MB)``, ``Median Rise (MB)``: by how much the process held more during
          such a run than before it. What came and went between two samples is not in it
        - ``Worker``, ``Task Key``: of the run with the highest
    """
    tasks, workers = run.tasks, run.named
    memory = memory_of_runs(run)
    codes, names = tasks["function"].cat.codes.to_numpy(), tasks["function"].cat.categories
    groups = Groups(codes, len(names))
    highest = groups.max(memory.highest)
    shown = np.flatnonzero(groups.sizes)
    shown = shown[np.argsort(-np.nan_to_num(highest[shown], nan=-1.0), kind="stable")]
    best = _rows_of_highest(codes, memory.highest, len(names))[shown]
    known = best >= 0
    labels, keys = np.full(len(shown), "", object), np.full(len(shown), "", object)
    labels[known] = workers.labels[workers.numbers(tasks.iloc[best[known]])]
    keys[known] = run.keys.texts(tasks["key_id"].to_numpy()[best[known]])
    return pd.DataFrame(
        {
            "Function": text(names.to_numpy(object)[shown]),
            "Task Runs": groups.sizes[shown],
            "Sampled": groups.known(memory.highest)[shown],
            "Highest (MB)": highest[shown] / 1e6,
            "Median (MB)": groups.median(memory.highest)[shown] / 1e6,
            "Alone": groups.known(memory.rise)[shown],
            "Largest Rise (MB)": groups.max(memory.rise)[shown] / 1e6,
            "Median Rise (MB)": groups.median(memory.rise)[shown] / 1e6,
            "Worker": text(labels),
            "Task Key": text(keys),
        }
    )


def _rows_of_highest(codes: Array, values: Array, count: int) -> Array:
    """Return the row of the largest value of each group; -1 where none has any."""
    rows = np.full(count, -1, dtype=np.int64)
    told = np.flatnonzero(np.isfinite(values))
    told = told[np.argsort(values[told], kind="stable")]
    rows[codes[told]] = told
    return rows


@question(
    "Lines that allocate what is held",
    "balance",
    short="allocations",
    expendable=("Blocks", "Worker"),
    needs="traced_functions",
)
def allocations(run: Run, function: str | None = None) -> pd.DataFrame:
    """Say which lines allocated what functions held, of the fullest moment seen of each function.

    Recorded with ``memory="tracemalloc"`` only. Python's tracemalloc tells of a whole process: so a
    task run is told of if no other one ran in its process at the time.

    Parameters
    ----------
    function
        Of the task runs, as Dask calls it; None: any.

    Returns
    -------
    DataFrame
        A row a function and line, those of the functions that held most first:

        - ``Function``
        - ``File``, ``Line``: of the user's code; where a task has none, the innermost line. NA: no
          task run had its process to itself, or none held 0.1 MB
        - ``Live (MB)``: of the objects that were allocated there and live at that moment, ``Share
          (%)`` of all that the process had allocated since the task run began and that was live:
          the rest is of other threads, other lines, Dask, and what a library allocated more than
          twelve calls deep; ``Blocks`` of memory
        - ``Peak (MB)``: the most that was live of that in this task run, seen or not
        - ``Traced Runs``, ``Left Out``: task runs of the function that had their process to
          themselves, and that shared it
        - ``Worker``, ``Task Key``: of the task run

        ``attrs["refused"]`` says of each worker that traces nothing why. What C code allocates by
        itself is in none of this; NumPy's arrays are.
    """
    lines = _lines(run)
    counted = run.traced_functions
    refused = counted[counted["refused"].notna()]
    labels = run.workers["worker"].astype(object).to_numpy()
    last = counted[counted["refused"].isna()].drop_duplicates(["worker_id", "name"], keep="last")
    runs = last.groupby(last["name"].astype(object), sort=True)[["runs", "left_out"]].sum()
    if function is not None:
        runs = runs[runs.index == function]
    table = runs.reset_index().merge(lines, how="left", on="name")
    table = table.sort_values(
        ["seen", "name", "size"], ascending=[False, True, False], kind="stable", ignore_index=True
    )
    known = table["worker_id"].notna().to_numpy()
    workers, keys = np.full(len(table), "", object), np.full(len(table), "", object)
    workers[known] = labels[table["worker_id"][known].to_numpy(dtype=np.int64)]
    keys[known] = run.keys.texts(table["key_id"][known].to_numpy(dtype=np.int64))
    found = pd.DataFrame(
        {
            "Function": text(table["name"].to_numpy(object)),
            "File": known_texts(table["file"].astype(object)),
            "Line": whole(table["line"].to_numpy(dtype=float)),
            "Live (MB)": table["size"].to_numpy(dtype=float) / 1e6,
            "Share (%)": (table["size"] / table["seen"]).to_numpy(dtype=float) * 100,
            "Blocks": whole(table["blocks"].to_numpy(dtype=float)),
            "Peak (MB)": table["peak"].to_numpy(dtype=float) / 1e6,
            "Traced Runs": table["runs"].to_numpy(dtype=np.int64),
            "Left Out": table["left_out"].to_numpy(dtype=np.int64),
            "Worker": text(workers),
            "Task Key": text(keys),
        }
    )
    found.attrs["refused"] = {
        str(labels[worker]): str(reason)
        for worker, reason in zip(refused["worker_id"], refused["refused"], strict=True)
    }
    return found


def _lines(run: Run) -> pd.DataFrame:
    """Return a row a line of the task run of each function that was seen to hold most."""
    table = run.allocations
    table = table.assign(name=table["name"].astype(object))
    identity = ["name", "worker_id", "key_id", "run_id"]
    fullest = table.sort_values("seen", kind="stable").drop_duplicates("name", keep="last")
    table = table.merge(fullest[[*identity, "seen"]], on=[*identity, "seen"])
    stacks = all_stacks(run)
    frames = [line_of(stacks[row])[0] if row >= 0 else None for row in table["stack"]]
    table["file"] = [None if frame is None else frame.file for frame in frames]
    table["line"] = [np.nan if frame is None else frame.line for frame in frames]
    by = [*identity, "seen", "peak", "file", "line"]
    return table.groupby(by, dropna=False, sort=False)[["size", "blocks"]].sum().reset_index()
