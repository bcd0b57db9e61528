"""The rule about what workers do at the first use of a function: import, compile, fill caches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.wording import Count, Figures, Seconds, Share, Words

#: The share of the run's wall time that first uses cost at least.
_GAIN = 0.05


@rule("first-use")
def first_use(run: RunFigures) -> Iterator[Finding]:
    """Find functions whose first run on each worker takes far longer than those that follow."""
    first = run.first_uses
    if not len(first.rows):
        return
    lost = float(first.excess.sum())
    estimate = max(run.outliers.idle_behind(first.rows, first.excess), lost / run.threads)
    seconds = run.saved(estimate, running=run.with_durations(first.rows, first.usual))
    if seconds < _GAIN * run.wall:
        return
    codes = run.functions.codes[first.rows]
    most = int(np.bincount(codes, weights=first.excess).argmax())
    name, own = str(run.function_names[most]), codes == most
    worker = run.trace.tasks["worker_id"].to_numpy()
    yield Finding.of(
        _say_first_use,
        took=Seconds(np.median(first.excess[own] + first.usual[own])),
        usual=Seconds(first.usual[own][0]),
        runs=Count(own.sum()),
        workers=Count(len(np.unique(worker[first.rows[own]]))),
        workers_of_function=Count(len(np.unique(worker[run.functions.codes == most]))),
        more_functions=Count(len(np.unique(codes)) - 1),
        lost=Seconds(lost),
        on_cpu=Share(ratio(run.cpu[first.rows].sum(), run.working[first.rows].sum())),
        seconds=seconds,
        function=name,
    )


def _say_first_use(f: Figures) -> Words:
    more = f", and first runs of {f.more_functions:more function}" if f.more_functions else ""
    return (
        f"The first runs of {f.function} on a worker take far longer than those that follow: "
        f"{f.took} against {f.usual} (medians).",
        f"{f.runs:first run} on {f.workers} of {f.workers_of_function:worker}{more}: {f.lost} of "
        f"thread time beyond what is usual, waits for a core left out; {f.on_cpu} of it on the "
        "CPU. The trace does not tell what they did. See stragglers() and per_task_bottleneck().",
        f"What {f.function} needs at its first use, let workers do beforehand: import libraries "
        "(client.run, or a worker plugin), compile (Numba: cache=True), open files, fill caches; "
        "and keep workers in place of starting new ones.",
    )
