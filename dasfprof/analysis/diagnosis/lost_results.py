"""Rules about workers that were lost, and about results that were computed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.attempts import WORKER_LOST
from dasfprof.analysis.model.given_up import begins_with, stimulus_texts
from dasfprof.analysis.model.open_runs import left_unasked
from dasfprof.analysis.model.worker_exits import exit_words
from dasfprof.database.columns import Array
from dasfprof.text import count_of, format_duration, format_share, format_size

#: The share of the threads' time in tasks that was spent on results that had been there before.
_AGAIN = 0.02
#: A process may have died of memory that had such a share of its limit when it was last sampled:
#: from there on Dask spills.
_MUCH_MEMORY = 0.6
#: The stimulus of a graph that a client submitted, as Dask's ids begin.
_SUBMITTED = ("update-graph",)


@rule(
    "lost-workers",
    symptoms=(
        "recomputation",
        "imbalance",
        "too-few-tasks",
        "serial-chain",
        "poor-placement",
    ),
)
def lost_workers(run: RunFigures) -> Iterator[Finding]:
    """Find workers that were lost with tasks on them."""
    attempts = run.attempts
    lost = attempts[(attempts["category"] == WORKER_LOST).to_numpy(dtype=bool)]
    if not len(lost):
        return
    lives, counts = np.unique(lost["life"].to_numpy(), return_counts=True)
    worst = int(lives[counts.argmax()])
    label = str(run.trace.workers["worker"].iloc[worst])
    number = len(lives)
    name = str(Counter(lost["function"].tolist()).most_common(1)[0][0])
    at = float(run.trace.workers["left"].iloc[worst]) - run.trace.begin
    when = f"{format_duration(at)} into the trace" if np.isfinite(at) else "at an unknown time"
    _, by_loss = _computed_again(run)
    again = float(run.slot_seconds[by_loss].sum())
    gone, threads = _missing(run)
    yield Finding(
        f"{count_of(number, 'worker')} left the cluster with {count_of(len(lost), 'task')} "
        f"on {'it' if number == 1 else 'them'}, most of {name}.",
        f"{label} left {when}, with {int(counts.max())} of them. "
        + _made_again(int(by_loss.sum()), again)
        + (
            f"For {format_duration(gone)} of thread time it was missed while others ran tasks. "
            if gone > 0
            else ""
        )
        + f"{_exit(run, worst)}{_memory(run, worst)}See processed_tasks() and process_summary().",
        _look_at(run, worst, name),
        seconds=(again + gone) / threads if threads > 0 else float("nan"),
        at_least="high",
        function=name,
        worker=label,
        start=at,
        stop=at,
    )


@rule(
    "recomputation",
    symptoms=(
        "tasks-too-small",
        "dominating-function",
        "blocked-tasks",
        "io-bound",
    ),
)
def recomputation(run: RunFigures) -> Iterator[Finding]:
    """Find results that were computed again, though they had been there before."""
    again, _ = _computed_again(run)
    seconds = run.slot_seconds
    lost = float(seconds[again].sum())
    if not lost > _AGAIN * seconds.sum():
        return
    by_function = np.bincount(run.functions.codes[again], weights=seconds[again])
    code = int(by_function.argmax())
    name = str(run.function_names[code])
    own = int(np.count_nonzero(again & (run.functions.codes == code)))
    yield Finding(
        f"Results are computed more than once: {count_of(int(again.sum()), 'task')}, "
        f"{format_duration(lost)} of thread time, most of it in {name}.",
        f"{count_of(own, 'task')} of {name} ran again after their results had been released; "
        f"{format_share(lost / float(seconds.sum()))} of the thread time of all tasks. See "
        'processed_tasks("function").',
        f"Keep what is used again: persist() the collection that {name} makes before it is used, "
        "or give all that needs it to one dask.compute().",
        seconds=lost / run.threads,
        function=name,
    )


def _computed_again(run: RunFigures) -> tuple[Array, Array]:
    """Return which task runs made a result again: as a client asked for it, or it had been lost.

    Where nothing tells what made a run necessary, the first, but not beside workers that were lost.
    """
    tasks = run.trace.tasks
    start = run.slots.times.start[: len(tasks)]
    again = run.succeeded & _later_runs(tasks["key_id"].to_numpy(), start, run.succeeded)
    lost = left_unasked(run.trace).any()
    if "graph" not in tasks:
        return again & ~lost, again & lost
    rows = np.flatnonzero(again)
    causes = stimulus_texts(run.trace, tasks["graph"].iloc[rows])
    asked = np.zeros(len(tasks), dtype=bool)
    asked[rows] = begins_with(causes, _SUBMITTED) | ((causes == "") & ~lost)
    return asked, again & ~asked & lost


def _later_runs(key_ids: Array, start: Array, counted: Array) -> Array:
    """Return which runs are not the first of the counted ones of their key."""
    rows = np.flatnonzero(counted)
    order = rows[np.lexsort((start[rows], key_ids[rows]))]
    later = np.zeros(len(key_ids), dtype=bool)
    later[order[1:]] = key_ids[order[1:]] == key_ids[order[:-1]]
    return later


def _missing(run: RunFigures) -> tuple[float, float]:
    """Return for how many thread-seconds lost workers were missing, while others ran tasks.

    That is until they were replaced, or the run ended; and the threads before the first was lost.
    """
    lives, workers = run.accounts.lives, run.workers.of_lives
    unasked, left = left_unasked(run.trace), run.trace.workers["left"].to_numpy(dtype=float)
    left = left - run.trace.begin
    missed, first = 0.0, np.inf
    for place, life in enumerate(lives.ids.tolist()):
        if not unasked[life]:
            continue
        later = (workers[lives.ids] == workers[life]) & (lives.begin >= left[life])
        until = min(run.begin + run.wall, float(lives.begin[later].min(initial=np.inf)))
        gone = run.busy_between(left[life : life + 1], np.array([until]))
        missed += float(lives.threads[place] * gone[0]) if until > left[life] else 0.0
        first = min(first, float(left[life]))
    there = (lives.begin < first) & (lives.end >= first)
    return missed, float(lives.threads[there].sum())


def _made_again(number: int, seconds: float) -> str:
    if not number:
        return ""
    return (
        f"Results were lost with it: {count_of(number, 'task')} ran again, for "
        f"{format_duration(seconds)} of thread time. "
    )


def _look_at(run: RunFigures, life: int, name: str) -> str:
    """Say what to do about a lost worker, by how much memory its process had."""
    share = float(run.memory_peaks[life] / run.memory_limits[life])
    if share < _MUCH_MEMORY:
        return (
            "Look at the log of its nanny, which gives the exit code or signal: a crash in a C "
            "library, the batch system, or a person ended it. Its memory was far from its limit "
            "when it was last sampled."
        )
    often = "often memory" if np.isnan(share) else "memory, as its process was near its limit"
    return (
        f"Look at what ended it: {often} (fewer threads, so that fewer tasks of {name} run at a "
        "time, a higher memory_limit, smaller chunks); else the batch system, or a crash in a "
        "library. The log of its nanny tells."
    )


def _exit(run: RunFigures, life: int) -> str:
    """Say how a worker's process ended, if that is known."""
    words = exit_words(run.trace, life)
    return f"It was {words}. " if words else ""


def _memory(run: RunFigures, life: int) -> str:
    """Say how much of its memory a worker had used at most, if that is known."""
    peak, limit = run.memory_peaks[life], run.memory_limits[life]
    if not np.isfinite(peak + limit):
        return ""
    return f"Its process had up to {format_size(peak)} of a limit of {format_size(limit)}. "
