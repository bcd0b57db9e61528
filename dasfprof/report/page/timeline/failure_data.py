"""How task runs failed, for the page's pane of details."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.worker_exits import exit_words
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.database.columns import Array
from dasfprof.text import elide

#: The most tracebacks of a page, and the most lines of one: those of its end.
MOST, LINES, LONGEST = 500, 60, 200


def failure_facts(run: Run, rows: Array) -> dict[str, dict[str, str]]:
    """Return tracebacks, and how the worker's process ended, by the row of the page as text.

    Parameters
    ----------
    run
        The run.
    rows
        The row of ``run.all.tasks`` that each row of the page is about.
    """
    return {
        "tracebacks": _tracebacks(run, rows),
        "exits": _exits(run, rows),
    }


def _tracebacks(run: Run, rows: Array) -> dict[str, str]:
    table = run.trace.tracebacks.sort_values("time", kind="stable").head(MOST)
    if not len(table):
        return {}
    of_page = pd.MultiIndex.from_frame(run.all.tasks[RUN].iloc[rows])
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
    return "\n".join(elide(line, LONGEST) for line in lines[-LINES:])


def _exits(run: Run, rows: Array) -> dict[str, str]:
    """Return how the processes ended of the workers of task runs that had not."""
    open_places = np.flatnonzero(rows >= len(run.ended.tasks))
    lives = run.all.tasks["worker_id"].to_numpy()[rows[open_places]]
    words = {life: exit_words(run.trace, life) for life in np.unique(lives).tolist()}
    found = zip(open_places.tolist(), lives.tolist(), strict=True)
    return {str(place): words[life] for place, life in found if words[life]}
