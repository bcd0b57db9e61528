"""Which steps of the pipeline take the time, and how much of the run steps tell of."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.steps import has_steps
from dasfprof.analysis.numeric.groups import Groups, distinct, ratio
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text, whole
from dasfprof.database.columns import Array


@question(
    "Steps of the pipeline",
    "steps",
    short="step",
    overview=2,
    page="steps",
    expendable=(
        "Functions",
        "Workers",
        "Failed Tasks",
        "Mean Throughput (MB/s)",
        "Mean Data Size (MB)",
    ),
    needs=has_steps,
)
def per_step_bottleneck(run: Run) -> pd.DataFrame:
    """Sum up the task runs of each step of the pipeline.

    Returns
    -------
    DataFrame
        A row a step, the longest duration first; ``(no step)`` for task runs of none:

        - ``Step``: its path, ``outer/inner``; the runs of inner steps count there alone
        - ``Duration (s)``: the sum over its task runs, failed ones too
        - ``Percentage of all task time (%)``: of the duration of all task runs
        - ``Num Tasks (chunks)``, ``Mean Task time (s)``, ``Functions`` and ``Workers`` (how
          many), ``Mean Data Size (MB)`` (input bytes of a task run), ``Mean Throughput
          (MB/s)`` (all input bytes by all seconds), ``Failed Tasks``
        - ``First Start (s)``, ``Last End (s)``: of its task runs, from the trace's begin
        - ``Entered``, ``Time in Client (s)``: how often the client entered it and for how
          long in all; NA where no file of a client tells
    """
    tasks = run.ended.tasks
    codes, names = run.ended.steps_of_tasks
    groups = Groups(codes, len(names))
    duration, start = tasks["duration"].to_numpy(), tasks["start"].to_numpy()
    size = tasks["input_size"].to_numpy(dtype=float)
    seconds, known = groups.sum(duration), np.isfinite(size)
    failed = (tasks["state"] == "erred").to_numpy(dtype=float)
    entered, open_for = _entered(run, names)
    table = pd.DataFrame(
        {
            "Step": text(np.array(names, dtype=object)),
            "Duration (s)": seconds,
            "Percentage of all task time (%)": ratio(seconds, np.full(len(names), seconds.sum()))
            * 100,
            "Num Tasks (chunks)": groups.sizes,
            "Mean Task time (s)": groups.mean(duration),
            "Functions": _distinct(codes, tasks["function"].cat.codes.to_numpy(), len(names)),
            "Workers": _distinct(codes, tasks["worker_id"].to_numpy(), len(names)),
            "Mean Data Size (MB)": groups.mean(size) / 1e6,
            "Mean Throughput (MB/s)": ratio(groups.sum(size), groups.sum(duration * known)) / 1e6,
            "Failed Tasks": groups.sum(failed).astype(np.int64),
            "First Start (s)": run.since(groups.min(start)),
            "Last End (s)": run.since(groups.max(start + duration)),
            "Entered": whole(entered),
            "Time in Client (s)": open_for,
        }
    )
    order = np.argsort(-seconds, kind="stable")
    order = order[(groups.sizes[order] > 0) | (np.nan_to_num(entered)[order] > 0)]
    return table.take(order).reset_index(drop=True)


@question("How much of the run the steps cover", "steps", needs=has_steps)
def step_coverage(run: Run) -> pd.DataFrame:
    """Show how much of the run the steps cover.

    Returns
    -------
    DataFrame
        A row a step with task runs, in the order in which they were first met, and one
        ``(no step)`` for the rest: ``Step``, ``Num Tasks (chunks)``, ``Share of Tasks (%)``,
        ``Duration (s)``, ``Share of Duration (%)``.
    """
    codes, names = run.ended.steps_of_tasks
    groups = Groups(codes, len(names))
    seconds = groups.sum(run.ended.tasks["duration"].to_numpy())
    runs = groups.sizes.astype(float)
    table = pd.DataFrame(
        {
            "Step": text(np.array(names, dtype=object)),
            "Num Tasks (chunks)": groups.sizes,
            "Share of Tasks (%)": ratio(runs, np.full(len(names), runs.sum())) * 100,
            "Duration (s)": seconds,
            "Share of Duration (%)": ratio(seconds, np.full(len(names), seconds.sum())) * 100,
        }
    )
    kept = groups.sizes > 0
    kept[-1] = True
    return table[kept].reset_index(drop=True)


def _entered(run: Run, names: list[str]) -> tuple[Array, Array]:
    """Count how often the client entered each step, and the seconds that it was in it.

    Both are NaN for a step that no client's file tells of.
    """
    steps = run.trace.steps
    if "step" not in steps:
        return np.full(len(names), np.nan), np.full(len(names), np.nan)
    places = {name: place for place, name in enumerate(names)}
    codes = np.array([places.get(step, -1) for step in steps["step"]], dtype=np.int64)
    groups = Groups(codes, len(names))
    duration = steps["duration"].to_numpy(dtype=float)
    told = groups.sizes > 0
    seconds = np.where(groups.known(duration) > 0, groups.sum(duration), np.nan)
    return np.where(told, groups.sizes, np.nan), seconds


def _distinct(codes: Array, values: Array, count: int) -> Array:
    """Count the distinct values of each group."""
    span = int(values.max(initial=0)) + 2
    pairs = distinct(codes * span + values + 1)
    return np.bincount(pairs // span, minlength=count)
