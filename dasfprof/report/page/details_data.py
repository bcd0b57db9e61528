"""Data of the page's details pane: arguments, failures, log records and code of task runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import annotation_texts
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import exit_words
from dasfprof.analysis.tables.columns import run_of_rows
from dasfprof.analysis.tables.listed_events import function_code
from dasfprof.database.columns import Array
from dasfprof.report.page.document import PackedColumn, pack_integers, texts
from dasfprof.text import elide

#: Maximum number of distinct argument texts in a page. The most frequent ones are selected.
MOST_ARGUMENTS = 5000


def argument_columns(run: Run, rows: Array) -> dict[str, PackedColumn]:
    """Pack the arguments and annotations of task runs, as indices in lists of distinct texts.

    Parameters
    ----------
    rows
        For each row of the page, its row in `Run.task_runs`.
    """
    recorded = run.arguments["arguments"].astype("category").cat
    known = np.full(len(run.task_runs) + 1, -1, dtype=np.int64)
    known[run_of_rows(run.task_runs, run.arguments)] = recorded.codes.to_numpy()
    known[-1] = -1
    annotations, names = annotation_texts(run.task_runs)
    return {
        **_packed("arguments", known[rows], list(map(str, recorded.categories))),
        **_packed("annotations", annotations[rows], names),
    }


def _packed(name: str, codes: Array, names: list[str]) -> dict[str, PackedColumn]:
    """Pack the index of each row's text, and the list of texts. The first text is empty.

    `codes` are indices in `names`, or -1 for rows without text. If there are too many texts, the
    rarest ones are replaced by the empty text.
    """
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    frequent = np.argsort(-counts, kind="stable")[:MOST_ARGUMENTS]
    places = np.zeros(len(names) + 1, dtype=np.int64)
    places[frequent] = np.arange(1, len(frequent) + 1)
    return {
        name: pack_integers(places[codes]),
        f"{name}_texts": texts(["", *(names[code] for code in frequent.tolist())]),
    }


#: Maximum number of tracebacks in a page, number of last lines that are shown of each, and maximum
#: number of characters per line.
MOST_FAILURES, LINES, LONGEST_FAILURE = 500, 60, 200


def tracebacks(run: Run, rows: Array) -> dict[str, str]:
    """Return the tracebacks of failed task runs, by row of the page (as a string).

    Parameters
    ----------
    rows
        For each row of the page, its row in `Run.task_runs`.
    """
    table = run.tracebacks.sort_values("time", kind="stable").head(MOST_FAILURES)
    return {
        str(place): _cut(text)
        for place, text in zip(_places_of(run, rows, table), table["text"], strict=True)
        if place >= 0 and isinstance(text, str)
    }


def _places_of(run: Run, rows: Array, table: pd.DataFrame) -> list[int]:
    """Return, for each row of a table of task runs, its row of the page, or -1 if there is none."""
    places = np.full(len(run.task_runs) + 1, -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    listed: list[int] = places[run_of_rows(run.task_runs, table)].tolist()
    return listed


def _cut(text: str) -> str:
    lines = text.rstrip().splitlines()
    return "\n".join(elide(line, LONGEST_FAILURE) for line in lines[-LINES:])


def exits(run: Run, rows: Array) -> dict[str, str]:
    """Return how the worker process of each unfinished task run ended.

    The result is a dict by row of the page (as a string). Task runs for which this is unknown are
    left out. See `tracebacks` for `rows`.
    """
    open_places = np.flatnonzero(rows >= len(run.tasks))
    lives = run.task_runs["worker_id"].to_numpy()[rows[open_places]]
    words = {life: exit_words(run, life) for life in np.unique(lives).tolist()}
    instances = zip(open_places.tolist(), lives.tolist(), strict=True)
    return {str(place): words[life] for place, life in instances if words[life]}


#: Maximum number of log records in a page, and of characters per field.
MOST_LOGS, LONGEST_LOG = 2000, 300


def log_facts(run: Run, rows: Array) -> dict[str, list[list[str]]]:
    """Return the log records of task runs, by row of the page (as a string).

    Only the first `MOST_LOGS` records of the run are returned. Each record is a list of its level,
    message, exception and line.

    Parameters
    ----------
    rows
        For each row of the page, its row in `Run.task_runs`.
    """
    logs = run.logs.sort_values("time", kind="stable").head(MOST_LOGS)
    records: dict[str, list[list[str]]] = {}
    columns = [logs[name] for name in ("level", "message", "exception", "line")]
    for place, *fields in zip(_places_of(run, rows, logs), *columns, strict=True):
        if place >= 0:
            texts = [elide(text, LONGEST_LOG) if isinstance(text, str) else "" for text in fields]
            records.setdefault(str(place), []).append(texts)
    return records


def code_facts(run: Run) -> dict[str, list[list[Any]]]:
    """Return location, source, file and line of the functions that tasks call, by task prefix."""
    functions: dict[str, list[list[Any]]] = {}
    for name, code, file, line, source, missing in function_code(run).itertuples(index=False):
        place = f"{code}, {file}:{line}" + (f" ({missing})" if missing else "")
        functions.setdefault(name, []).append([place, source, file, int(line)])
    return functions
