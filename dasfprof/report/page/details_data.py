"""What the pane of details shows of task runs: arguments, failures, logs, code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import annotation_texts
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import exit_words
from dasfprof.analysis.tables.listed_events import function_code, run_of_rows
from dasfprof.analysis.tables.why import COULD, Told, told_of
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.database.columns import Array
from dasfprof.report.page.document import PackedColumn, texts, whole_numbers
from dasfprof.text import count_of, elide, format_duration, format_size

#: The most different texts of a page; those of most task runs are kept.
MOST_ARGUMENTS = 5000


def argument_columns(run: Run, rows: Array) -> dict[str, PackedColumn]:
    """Pack ``arguments`` and ``annotations``: places in ``arguments_texts``, ``annotations_texts``.

    Parameters
    ----------
    run
        The trace.
    rows
        The row of `Trace.tasks` that each row of the page is about.
    """
    told = run.arguments["arguments"].astype("category").cat
    known = np.full(len(run.tasks) + 1, -1, dtype=np.int64)
    known[run_of_rows(run, run.arguments)] = told.codes.to_numpy()
    known[-1] = -1
    annotations, names = annotation_texts(run)
    return {
        **_packed("arguments", known[rows], list(map(str, told.categories))),
        **_packed("annotations", annotations[rows], names),
    }


def _packed(name: str, codes: Array, names: list[str]) -> dict[str, PackedColumn]:
    """Pack codes of texts, -1: none; the first text of the page is empty."""
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    kept = np.argsort(-counts, kind="stable")[:MOST_ARGUMENTS]
    places = np.zeros(len(names) + 1, dtype=np.int64)
    places[kept] = np.arange(1, len(kept) + 1)
    return {
        name: whole_numbers(places[codes]),
        f"{name}_texts": texts(["", *(names[code] for code in kept.tolist())]),
    }


#: The most tracebacks of a page, and the most lines of one: those of its end.
MOST_FAILURES, LINES, LONGEST_FAILURE = 500, 60, 200


def failure_facts(run: Run, whole: Run, rows: Array) -> dict[str, dict[str, str]]:
    """Return tracebacks, and how the worker's process ended, by the row of the page as text.

    Parameters
    ----------
    run, whole
        The trace, without and with the task runs that had not ended.
    rows
        The row of the tasks of `whole` that each row of the page is about.
    """
    return {
        "tracebacks": _tracebacks(whole, rows),
        "exits": _exits(run, whole, rows),
    }


def _tracebacks(whole: Run, rows: Array) -> dict[str, str]:
    table = whole.tracebacks.sort_values("time", kind="stable").head(MOST_FAILURES)
    if not len(table):
        return {}
    of_page = pd.MultiIndex.from_frame(whole.tasks[RUN].iloc[rows])
    first = np.flatnonzero(~of_page.duplicated())
    among = of_page[first].get_indexer(pd.MultiIndex.from_frame(table[RUN]))
    texts = table["text"].astype(object)
    return {
        str(first[place]): _cut(text)
        for place, text in zip(among.tolist(), texts, strict=True)
        if place >= 0 and isinstance(text, str)
    }


def _cut(text: str) -> str:
    lines = text.rstrip().splitlines()
    return "\n".join(elide(line, LONGEST_FAILURE) for line in lines[-LINES:])


def _exits(run: Run, whole: Run, rows: Array) -> dict[str, str]:
    """Return how the processes ended of the workers of task runs that had not."""
    open_places = np.flatnonzero(rows >= len(run.tasks))
    lives = whole.tasks["worker_id"].to_numpy()[rows[open_places]]
    words = {life: exit_words(run, life) for life in np.unique(lives).tolist()}
    found = zip(open_places.tolist(), lives.tolist(), strict=True)
    return {str(place): words[life] for place, life in found if words[life]}


#: The most records of a page, and the characters of each message.
MOST_LOGS, LONGEST_LOG = 2000, 300


def log_facts(run: Run, rows: Array) -> dict[str, list[list[str]]]:
    """Return the first records of task runs, by the row of the page as text.

    Parameters
    ----------
    run
        The trace.
    rows
        The row of `Trace.tasks` that each row of the page is about.
    """
    logs = run.logs.sort_values("time", kind="stable").head(MOST_LOGS)
    if not len(logs):
        return {}
    of_page = pd.MultiIndex.from_frame(run.tasks[RUN].iloc[rows])
    first = ~of_page.duplicated()
    among = of_page[first].get_indexer(pd.MultiIndex.from_frame(logs[RUN]))
    places = np.where(among >= 0, np.flatnonzero(first)[among], -1).tolist()
    found: dict[str, list[list[str]]] = {}
    columns = [logs[name].astype(object) for name in ("level", "message", "exception", "line")]
    for place, *fields in zip(places, *columns, strict=True):
        if place >= 0:
            told = [elide(text, LONGEST_LOG) if isinstance(text, str) else "" for text in fields]
            found.setdefault(str(place), []).append(told)
    return found


#: The most task runs of which a page says why they ran there, and of each the most workers that
#: could have been chosen. Of more task runs than so many no choice is recomputed, which takes some
#: 0.1 ms for each of them.
MOST_WHY, _MOST_CANDIDATES, _MOST_RECOMPUTED = 30, 3, 5_000
#: Seconds from which a wait, and a part of it, is told; and the parts that the page tells anyway.
_LEAST_WAIT = 0.001
_TOLD_ABOVE = ("prepares", "runs", "is put away", "is told")


def why_facts(whole: Run, rows: Array) -> dict[str, list[list[Any]]]:
    """Return why those ran there that waited longest, by the row of the page as text.

    Parameters
    ----------
    whole
        The trace with the task runs that had not ended.
    rows
        The row of its tasks that each row of the page is about.

    Returns
    -------
    dict
        For each that waited longest from being runnable to its thread a list, in the order of time:
        ``what``, ``worker``, ``from`` (seconds from the begin), ``seconds`` (None: of a choice),
        ``words``. See `TraceAnalyser.why`.
    """
    times = whole.slots.times
    waited = np.nan_to_num((times.executing - times.runnable)[rows])
    longest = np.argsort(-waited, kind="stable")[:MOST_WHY]
    longest = longest[waited[longest] >= _LEAST_WAIT]
    choices = len(whole.tasks) <= _MOST_RECOMPUTED
    told = told_of(whole, rows[longest].tolist(), choices=choices)
    return {
        str(place): _why(lines)
        for place, lines in zip(longest.tolist(), told.values(), strict=True)
    }


def _why(told: list[Told]) -> list[list[Any]]:
    lines: list[list[Any]] = []
    left = _MOST_CANDIDATES
    for _, what, worker, begin, seconds, candidate, _, words in told:
        left -= what == COULD
        if seconds < _LEAST_WAIT or what in _TOLD_ABOVE or (what == COULD and left < 0):
            continue
        expected = ""
        if candidate is not None:
            expected = (
                f"{count_of(candidate.tasks, 'task')} there, {format_size(candidate.missing)} to "
                f"move: an expected wait of {format_duration(candidate.begin)}. "
            )
        known = round(float(seconds), 6) if np.isfinite(seconds) else None
        lines.append([what, worker, round(float(begin), 6), known, f"{expected}{words}"])
    return lines


def code_facts(run: Run) -> dict[str, list[list[Any]]]:
    """Return place, source, file and line of the functions that tasks call, by their names."""
    found: dict[str, list[list[Any]]] = {}
    for name, code, file, line, source, missing in function_code(run).itertuples(index=False):
        place = f"{code}, {file}:{line}" + (f" ({missing})" if missing else "")
        found.setdefault(name, []).append([place, source, file, int(line)])
    return found
