"""The ledger of the program: which of its lines built what took the time of the cluster."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.accounting import make_accounts
from dasfprof.analysis.model.client_time import find_calls
from dasfprof.analysis.model.cost import IDLE, WAITING, hours_of_groups
from dasfprof.analysis.model.critical_path import path_segments
from dasfprof.analysis.model.run_memory import memory_of_runs
from dasfprof.analysis.model.steps import line_groups
from dasfprof.analysis.model.thread_time import USES, ThreadTime
from dasfprof.analysis.model.transfers import moved_outputs
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import known_texts, text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.time_accounting import NO_TASK
from dasfprof.config import setting
from dasfprof.config.kinds import Price
from dasfprof.database.columns import Array

_BUSY = list(ThreadTime)[:USES]


def has_noted_lines(run: Run) -> bool:
    """Return whether lines of the program were recorded."""
    return len(run.lines) > 0


@question(
    "What the lines of the program cost",
    "lines",
    overview=2,
    page="ledger",
    expendable=(
        *("In", "Library", "File", "Moved (MB)", "Read (MB)", "Highest (MB)", "Waiting (s)"),
        *(f"{spent.label} (s)" for spent in _BUSY),
    ),
    needs=has_noted_lines,
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
            "Line": text(np.array(names, dtype=object)),
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
    for line, seconds in zip(accounts.lines, accounts.of_lines, strict=True):
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
            np.array(
                [f"{file}:{line:.0f}" if isinstance(file, str) else "" for file, line in below],
                dtype=object,
            )
        ),
        "File": known_texts(noted["file"]),
    }
