"""The source of the functions that tasks call."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import known_texts, whole
from dasfprof.analysis.trace import Trace


def has_code(trace: Trace) -> bool:
    """Return whether functions of tasks were recorded."""
    return len(trace.function_code) > 0


@question("Code of functions", "lines", expendable=("Missing",), needs=has_code)
def function_code(run: Run, function: str | None = None) -> pd.DataFrame:
    """List the Python functions that tasks call, with their source.

    Parameters
    ----------
    function
        Of the tasks, as Dask calls it; None: any.

    Returns
    -------
    DataFrame
        A row a function that tasks of one name call, the same on several workers once:

        - ``Function``: the name of the tasks; ``Code``: the function's own, with its module
        - ``File``, ``Line``
        - ``Source``: its first 100 lines, as they were when it ran; empty: see ``Missing``
        - ``Missing``: why there is none: the function is a library's, its file is not on the
          worker, as that of a notebook, or has changed since
    """
    table = run.trace.function_code.sort_values(["name", "time"], kind="stable")
    if function is not None:
        table = table[(table["name"] == function).to_numpy()]
    table = table.drop_duplicates(["name", "function", "file", "line", "source"])
    return pd.DataFrame(
        {
            "Function": known_texts(table["name"]),
            "Code": known_texts(table["function"]),
            "File": known_texts(table["file"]),
            "Line": whole(table["line"].to_numpy(dtype=float)),
            "Source": known_texts(table["source"]),
            "Missing": known_texts(table["missing"]),
        }
    )
