"""Task runs by the step of the pipeline, and by the line of the program, that built them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.lines import NO_GRAPH, REASONS
from dasfprof.database.columns import Array

# Task runs by the step of the pipeline that they belong to, for every analysis that groups.

#: What stands for a step in the rows of task runs that belong to none.
NO_STEP = "(no step)"


def has_steps(trace: Run) -> bool:
    """Return whether a step is known of any task run."""
    return "step" in trace.tasks and bool((trace.tasks["step"].cat.codes >= 0).any())


def step_groups(*tables: pd.DataFrame) -> tuple[Array, list[str]]:
    """Number the steps of the rows of tables of task runs, one table after the other.

    Returns
    -------
    codes, names
        Row ``i`` belongs to ``names[codes[i]]``; the last name is `NO_STEP`.
    """
    return groups_of("step", NO_STEP, tables)


def groups_of(
    column: str, nothing: str, tables: tuple[pd.DataFrame, ...]
) -> tuple[Array, list[str]]:
    """Number the texts of a categorical column of tables, one after the other.

    Returns
    -------
    codes, names
        Row ``i`` has ``names[codes[i]]``; the last name is `nothing`, of rows that have none.
    """
    names: dict[str, int] = {}
    for table in tables:
        for name in table[column].cat.categories if column in table else ():
            if name != nothing:
                names.setdefault(name, len(names))
    parts = [np.empty(0, dtype=np.int64)]
    for table in tables:
        if column in table:
            texts = table[column].cat
            numbers = [*(names.get(name, len(names)) for name in texts.categories), len(names)]
            parts.append(np.array(numbers, dtype=np.int64)[texts.codes.to_numpy()])
        else:
            parts.append(np.full(len(table), len(names), dtype=np.int64))
    return np.concatenate(parts), [*names, nothing]


# --- Task runs by the line of the program that built them, for every analysis that groups ---------

#: What stands for a line in the rows of task runs of none, with why.
NO_LINES = tuple(f"({reason})" for reason in REASONS)


def has_lines(trace: Run) -> bool:
    """Return whether a line is known of any task run."""
    return "line" in trace.tasks and bool((trace.tasks["line"].cat.codes >= 0).any())


def line_groups(*tables: pd.DataFrame) -> tuple[Array, list[str]]:
    """Number the lines of the rows of tables of task runs, one table after the other.

    Returns
    -------
    codes, names
        Row ``i`` belongs to ``names[codes[i]]``; the last names are `NO_LINES`.
    """
    codes, names = groups_of("line", "", tables)
    why, reasons = groups_of("no_line", "", tables)
    number_of = [REASONS.index(reason if reason else NO_GRAPH) for reason in reasons]
    count = len(names) - 1
    unknown = count + np.array(number_of, dtype=np.int64)[why]
    return np.where(codes < count, codes, unknown), [*names[:-1], *NO_LINES]
