"""The rule about joins of dataframes that multiply rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.dataframes import frames_of
from dasfprof.analysis.wording import Bytes, Count, Factor
from dasfprof.database.columns import Array

#: Names of the functions that join two dataframes and do nothing else.
_JOINS = ("hashjoinp2p", "hash-join", "blockwisemerge", "inter-broadcastjoin")
#: Threshold: number of a join's result rows, as a multiple of the rows of all its inputs.
_EXPLODES = 10.0


def _joins(run: RunFigures) -> Iterator[tuple[str, Array]]:
    """Yield the function and the task runs of each layer of joins.

    Only successful task runs that return dataframes are included.
    """
    frames = frames_of(run.trace)
    for code in np.flatnonzero(np.isin(run.function_names.astype(str), _JOINS)).tolist():
        rows = np.flatnonzero((run.functions.codes == code) & np.isfinite(frames.rows))
        layers = run.layers.codes[rows]
        for layer in np.unique(layers).tolist():
            yield str(run.function_names[code]), rows[layers == layer]


@rule("exploding-join", explains="dominant-function spilling")
def exploding_join(run: RunFigures) -> Iterator[Finding]:
    """Find the most expensive join that returns many times as many rows as its inputs have."""
    frames, sizes, joins = frames_of(run.trace), run.task_column("size"), []
    for name, rows in _joins(run):
        inputs = frames.inputs(rows)
        if inputs is None:
            continue
        before, after = frames.rows[inputs].sum(), frames.rows[rows].sum()
        if 0 < _EXPLODES * before < after:
            joins.append((float(run.working[rows].sum()), name, rows, inputs))
    if not joins:
        return
    costs, name, rows, inputs = max(joins, key=lambda join: join[0])
    before, after = frames.rows[inputs].sum(), frames.rows[rows].sum()
    yield Finding.of(
        "exploding-join",
        "A join multiplies rows: {function} returns {rows:row} from inputs with {taken:row}, "
        "{times} times as many.",
        "The inputs take {input_size} in total, and the results take {size}. The largest of "
        "{tasks:result} has {largest:row}. A key that occurs several times in both dataframes is "
        "joined in all combinations of its rows.",
        "Remove repeated keys from one of the dataframes before you join them, or aggregate its "
        "rows by key. If they repeat because the join needs another column, add it to on=.",
        function=name,
        rows=Count(after),
        taken=Count(before),
        times=Factor(after / before),
        input_size=Bytes(np.nansum(sizes[inputs])),
        size=Bytes(np.nansum(sizes[rows])),
        tasks=Count(len(rows)),
        largest=Count(frames.rows[rows].max()),
        costs=costs / run.threads,
        at_least="low",
    )
