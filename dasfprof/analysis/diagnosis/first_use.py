"""The rule about what workers do at the first use of a function: import, compile, fill caches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.text import count_of, format_duration, format_share

#: The share of the run's wall time that first uses cost at least.
_GAIN = 0.05


@rule(
    "first-use",
    symptoms=(
        "dominating-function",
        "straggling-tasks",
        "degrading-functions",
        "slow-worker",
        "imbalance",
        "serial-chain",
        "too-few-tasks",
        "late-receipt",
        "lock-bound",
        "io-bound",
        "blocked-tasks",
        "poor-placement",
    ),
)
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
    took, usual = first.excess[own] + first.usual[own], float(first.usual[own][0])
    worker = run.trace.tasks["worker_id"].to_numpy()
    workers = len(np.unique(worker[first.rows[own]]))
    all_workers = len(np.unique(worker[run.functions.codes == most]))
    others = len(np.unique(codes)) - 1
    cpu = float(ratio(run.cpu[first.rows].sum(), run.working[first.rows].sum()))
    yield Finding(
        f"The first runs of {name} on a worker take far longer than those that follow: "
        f"{format_duration(float(np.median(took)))} against {format_duration(usual)} (medians).",
        f"{count_of(int(own.sum()), 'first run')} on {workers} of "
        f"{count_of(all_workers, 'worker')}"
        + (f", and first runs of {count_of(others, 'more function')}" if others else "")
        + f": {format_duration(lost)} of thread time beyond what is usual, waits for a core left "
        f"out; {format_share(float(cpu))} of it on the CPU. The trace does not tell what they did. "
        "See stragglers() and per_task_bottleneck().",
        f"What {name} needs at its first use, let workers do beforehand: import libraries "
        "(client.run, or a worker plugin), compile (Numba: cache=True), open files, fill caches; "
        "and keep workers in place of starting new ones.",
        seconds=seconds,
        function=name,
    )
