"""What task runs logged, and the code of functions, for the page's pane of details."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.function_code import function_code
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.database.columns import Array
from dasfprof.text import elide

#: The most records of a page, and the characters of each message.
MOST, LONGEST = 2000, 300


def log_facts(run: Run, rows: Array) -> dict[str, list[list[str]]]:
    """Return the first records of task runs, by the row of the page as text.

    Parameters
    ----------
    run
        The run.
    rows
        The row of `Trace.tasks` that each row of the page is about.
    """
    logs = run.trace.logs.sort_values("time", kind="stable").head(MOST)
    if not len(logs):
        return {}
    of_page = pd.MultiIndex.from_frame(run.all.tasks[RUN].iloc[rows])
    first = ~of_page.duplicated()
    among = of_page[first].get_indexer(pd.MultiIndex.from_frame(logs[RUN]))
    places = np.where(among >= 0, np.flatnonzero(first)[among], -1).tolist()
    found: dict[str, list[list[str]]] = {}
    columns = [logs[name].astype(object) for name in ("level", "message", "exception", "line")]
    for place, *texts in zip(places, *columns, strict=True):
        if place >= 0:
            told = [elide(text, LONGEST) if isinstance(text, str) else "" for text in texts]
            found.setdefault(str(place), []).append(told)
    return found


def code_facts(run: Run) -> dict[str, list[list[Any]]]:
    """Return place, source, file and line of the functions that tasks call, by their names."""
    found: dict[str, list[list[Any]]] = {}
    for name, code, file, line, source, missing in function_code(run).itertuples(index=False):
        place = f"{code}, {file}:{line}" + (f" ({missing})" if missing else "")
        found.setdefault(name, []).append([place, source, file, int(line)])
    return found
