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
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.wording import Bytes, Count, Figures, Seconds, Share, Words
from dasfprof.database.columns import Array

#: The share of the threads' time in tasks that was spent on results that had been there before.
_AGAIN = 0.02
#: A process may have died of memory that had such a share of its limit when it was last sampled:
#: from there on Dask spills.
_MUCH_MEMORY = 0.6
#: The stimulus of a graph that a client submitted, as Dask's ids begin.
_SUBMITTED = ("update-graph",)


@rule("lost-workers")
def lost_workers(run: RunFigures) -> Iterator[Finding]:
    """Find workers that were lost with tasks on them."""
    attempts = run.attempts
    lost = attempts[(attempts["category"] == WORKER_LOST).to_numpy(dtype=bool)]
    if not len(lost):
        return
    lives, counts = np.unique(lost["life"].to_numpy(), return_counts=True)
    worst = int(lives[counts.argmax()])
    at = float(run.trace.workers["left"].iloc[worst]) - run.trace.begin
    _, by_loss = _computed_again(run)
    again = float(run.slot_seconds[by_loss].sum())
    gone, threads = _missing(run)
    share = float(ratio(run.memory_peaks, run.memory_limits)[worst])
    yield Finding.of(
        _say_lost_workers,
        function=str(Counter(lost["function"].tolist()).most_common(1)[0][0]),
        worker=str(run.trace.workers["worker"].iloc[worst]),
        workers=Count(len(lives)),
        tasks=Count(len(lost)),
        tasks_of_worker=Count(counts.max()),
        left=Seconds(at),
        ran_again=Count(by_loss.sum()),
        again=Seconds(again),
        missed=Seconds(gone),
        exit=exit_words(run.trace, worst),
        memory=Bytes(run.memory_peaks[worst]),
        limit=Bytes(run.memory_limits[worst]),
        blames_memory=not share < _MUCH_MEMORY,
        seconds=(again + gone) / threads if threads > 0 else float("nan"),
        at_least="high",
        start=at,
        stop=at,
    )


def _say_lost_workers(f: Figures) -> Words:
    when = f"{f.left} into the trace" if np.isfinite(f.left) else "at an unknown time"
    again = (
        f"Results were lost with it: {f.ran_again:task} ran again, for {f.again} of thread time. "
    )
    missed = f"For {f.missed} of thread time it was missed while others ran tasks. "
    memory = f"Its process had up to {f.memory} of a limit of {f.limit}. "
    return (
        f"{f.workers:worker} left the cluster with {f.tasks:task} on "
        f"{'it' if f.workers == 1 else 'them'}, most of {f.function}.",
        f"{f.worker} left {when}, with {f.tasks_of_worker} of them. "
        + (again if f.ran_again else "")
        + (missed if f.missed > 0 else "")
        + (f"It was {f.exit}. " if f.exit else "")
        + (memory if np.isfinite(f.memory + f.limit) else "")
        + "See processed_tasks() and process_summary().",
        _look_at(f),
    )


@rule("recomputation")
def recomputation(run: RunFigures) -> Iterator[Finding]:
    """Find results that were computed again, though they had been there before."""
    again, _ = _computed_again(run)
    seconds = run.slot_seconds
    lost = float(seconds[again].sum())
    if not lost > _AGAIN * seconds.sum():
        return
    by_function = np.bincount(run.functions.codes[again], weights=seconds[again])
    code = int(by_function.argmax())
    yield Finding.of(
        _say_recomputation,
        function=str(run.function_names[code]),
        tasks=Count(again.sum()),
        tasks_of_function=Count(np.count_nonzero(again & (run.functions.codes == code))),
        lost=Seconds(lost),
        share=Share(lost / seconds.sum()),
        seconds=lost / run.threads,
    )


def _say_recomputation(f: Figures) -> Words:
    return (
        f"Results are computed more than once: {f.tasks:task}, {f.lost} of thread time, most of it "
        f"in {f.function}.",
        f"{f.tasks_of_function:task} of {f.function} ran again after their results had been "
        f"released; {f.share} of the thread time of all tasks. See "
        'processed_tasks("function").',
        f"Keep what is used again: persist() the collection that {f.function} makes before it is "
        "used, or give all that needs it to one dask.compute().",
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


def _look_at(f: Figures) -> str:
    """Say what to do about a lost worker, by how much memory its process had."""
    if not f.blames_memory:
        return (
            "Look at the log of its nanny, which gives the exit code or signal: a crash in a C "
            "library, the batch system, or a person ended it. Its memory was far from its limit "
            "when it was last sampled."
        )
    known = np.isfinite(f.memory + f.limit)
    often = "memory, as its process was near its limit" if known else "often memory"
    return (
        f"Look at what ended it: {often} (fewer threads, so that fewer tasks of {f.function} run "
        "at a time, a higher memory_limit, smaller chunks); else the batch system, or a crash in a "
        "library. The log of its nanny tells."
    )
