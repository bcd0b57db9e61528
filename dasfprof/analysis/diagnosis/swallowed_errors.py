"""The rule about tasks that log an error and return None: they count as done."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.analysis.wording import Count, Figures, Words
from dasfprof.database.columns import Array
from dasfprof.text import elide, excerpt

_NONE = "NoneType"
#: The share of a function's results from which it matters that they may be missing.
_MANY = 0.5


@rule("swallowed-errors")
def swallowed_errors(run: RunFigures) -> Iterator[Finding]:
    """Find functions whose task runs log an error and return None."""
    tasks, logged = run.trace.tasks, run.trace.logs
    logged = logged[logged["error"] == 1]
    if not len(logged):
        return
    ended = (tasks["state"] == "memory").to_numpy(dtype=bool)
    nothing = ended & (tasks["type"] == _NONE).to_numpy(dtype=bool)
    runs = pd.MultiIndex.from_frame(tasks[RUN])
    silent: Array = nothing & runs.isin(pd.MultiIndex.from_frame(logged[RUN]))
    codes = tasks["function"].cat.codes.to_numpy()
    numbers, counts = np.unique(codes[silent], return_counts=True)
    for code, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        own = codes == code
        total, empty = int((own & ended).sum()), int((own & nothing).sum())
        first = _first(logged, runs[own & silent])
        name = str(run.function_names[code])
        yield Finding.of(
            _say_swallowed_errors,
            silent=Count(count),
            empty=Count(empty),
            tasks=Count(total),
            error=first["exception"] if isinstance(first["exception"], str) else first["level"],
            line=elide(first["line"], 120),
            message=excerpt(str(first["message"])),
            at_least="medium" if count >= _MANY * total else "low",
            at_most="medium",
            function=name,
        )


def _say_swallowed_errors(f: Figures) -> Words:
    return (
        f"{f.silent} of {f.tasks:task run} of {f.function} logged an error and returned None: if "
        "they caught an error, Dask does not know of it, and they count as done.",
        f"{f'All {f.tasks}' if f.empty == f.tasks else f'{f.empty} of {f.tasks}'} results of "
        f"{f.function} are None. The first error logged: {f.error} at {f.line}: {f.message}",
        f"Look at what {f.function} logs. Let it raise what it cannot handle: Dask then names the "
        "task and does not run what depends on it. If None is meant, nothing is lost.",
    )


def _first(logged: pd.DataFrame, runs: pd.MultiIndex) -> pd.Series:
    """Return the first error that one of some runs logged."""
    return logged[pd.MultiIndex.from_frame(logged[RUN]).isin(runs)].iloc[0]
