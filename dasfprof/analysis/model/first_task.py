"""The time from the begin of recording to the first task, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace

#: The ids of what graphs bring about begin so; Dask's time as it took the graph up follows.
_UPDATE = "update-graph-"
#: Seconds for which the scheduler may be at a graph; else its id holds another number.
_LONGEST = 3600.0
#: Seconds before its graph in which a task cannot have begun, whatever the clocks.
_BEFORE = 0.01
#: Files of programs that wait for their user, and functions in which these run what was typed.
_PROMPTS = ("/ipykernel/", "/IPython/", "/_pyrepl/", "/prompt_toolkit/")
_RUNS_INPUT = ("run_code", "runcode", "run_cell")


class Stage(str, Enum):
    """What is done before the first task, in this order."""

    PROMPT = "input"
    """The program waited for its user: at the prompt of a notebook or a shell."""
    PROGRAM = "program"
    """The program ran, before it sent a graph; with optimising, where that is unknown."""
    OPTIMISING = "optimising"
    """Dask optimised the program's collections, in its process."""
    PICKLING = "pickling"
    """Dask pickled the graph there."""
    SENDING = "sending"
    """The graph was on its way, until the scheduler took it up."""
    SCHEDULER = "scheduler"
    """The scheduler unpickled the graph and prepared its tasks, which may optimise it as well."""
    WORKERS = "workers"
    """The tasks were known, and no worker was there."""
    STARTING = "starting"
    """A worker was there, until the first task was given a thread."""


#: The stages in which the scheduler knows of no task, and that are the program's.
_LATE = (Stage.PROGRAM, Stage.OPTIMISING, Stage.PICKLING, Stage.SENDING, Stage.SCHEDULER)


@dataclass(frozen=True)
class FirstTask:
    """What came before the first task of a run."""

    #: Seconds of each; NaN: unknown.
    stages: dict[Stage, float]
    #: Seconds from the begin of recording; NaN where that is unknown, or by another clock.
    seconds: float
    #: Those of them until the scheduler had tasks, without time at a prompt, as far as is known.
    late: float


@once_per_trace
def find_first_task(run: Run) -> FirstTask | None:
    """Find what came before the first task; None if tasks ran before, or none did."""
    if not len(run.graphs) or "client" not in run.graphs:
        return None
    times, begun = run.graphs["time"].to_numpy(dtype=float), run.slots.times.executing
    if not np.isfinite(times).any() or not len(begun):
        return None
    graph = _row(run.graphs, int(np.nanargmin(times)))
    known, begun = float(graph["time"]), run.begin + begun
    if not begun.min() >= known - _BEFORE:
        return None
    joined = run.workers["joined"].to_numpy(dtype=float)
    there = max(float(np.nanmin(joined)), known) if np.isfinite(joined).any() else known
    first = max(float(begun.min()), there)
    stages = dict.fromkeys(Stage, np.nan)
    begin = _of_the_client(run, graph, stages)
    stages[Stage.WORKERS], stages[Stage.STARTING] = there - known, first - there
    late = known - begin - stages[Stage.PROMPT]
    if np.isnan(late):
        late = float(np.nansum([stages[stage] for stage in _LATE]))
    return FirstTask(stages, first - begin, late)


def _of_the_client(run: Run, graph: dict[Any, Any], stages: dict[Stage, float]) -> float:
    """Fill in what happened before a graph was known.

    Returns
    -------
    float
        When recording began, by the scheduler's clock; NaN: unknown.
    """
    known, taken_up = float(graph["time"]), _taken_up(run, graph)
    stages[Stage.SCHEDULER] = known - taken_up
    clients = run.graphs_sent["client"].tolist()
    if graph["client"] not in clients:
        return np.nan
    sent = _row(run.graphs_sent, clients.index(graph["client"]))
    workers = zip(run.workers["kind"], run.workers["host"], strict=True)
    one_clock = ("scheduler", sent["host"]) in set(workers)
    if one_clock and sent["start"] > known:  # the client's first graph was sent before
        return np.nan
    since, start, ended = (float(sent[name]) for name in ("since", "start", "time"))
    if one_clock:
        # What the client noted behind the sending, the scheduler's process may have overtaken.
        ended = max(min(ended, taken_up if np.isfinite(taken_up) else known), start)
        stages[Stage.SENDING] = taken_up - ended
    optimising = float(np.nan_to_num(sent["optimising"]))
    stages[Stage.PROMPT] = _at_a_prompt(run, since, start - optimising)
    stages[Stage.PROGRAM] = max(start - optimising - since - stages[Stage.PROMPT], 0.0)
    stages[Stage.OPTIMISING] = float(sent["optimising"])
    stages[Stage.PICKLING] = ended - start
    return since if one_clock else np.nan


def _row(table: pd.DataFrame, place: int) -> dict[Any, Any]:
    return {name: table[name].iloc[place] for name in table}


def _taken_up(run: Run, graph: dict[Any, Any]) -> float:
    """Return when the scheduler took a graph up, as Dask's id of that says; NaN if it does not."""
    text = str(run.stimuli.texts(np.array([graph["stimulus"]]))[0])
    try:
        time = float(text.removeprefix(_UPDATE))
    except ValueError:
        return np.nan
    return time if 0 <= float(graph["time"]) - time < _LONGEST else np.nan


def _at_a_prompt(run: Run, begin: float, end: float) -> float:
    """Return for how long a client's main thread waited for its user: to within a second."""
    seen = run.clients_under_way
    if not len(seen):
        return 0.0
    idle = np.array([_waits_for_input(run, row) for row in seen["stack"].tolist()], dtype=bool)
    times = np.clip(np.append(seen["time"].to_numpy(dtype=float), np.inf), begin, max(begin, end))
    return float(np.diff(times)[idle].sum())


def _waits_for_input(run: Run, stack: int) -> bool:
    if stack < 0:
        return False
    frames = run.stacks["frames"].iloc[stack]
    functions = {str(function).rpartition(".")[2] for function, *_ in frames}
    files = [str(file) for _, file, *_ in frames]
    return not functions & {*_RUNS_INPUT} and any(
        prompt in file for file in files for prompt in _PROMPTS
    )
