"""Rules about lost workers, and about results that were computed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import NEGLIGIBLE, Change, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.attempts import CANCELLED, WORKER_LOST
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.departures import departures_of
from dasfprof.analysis.model.memory_kills import Reason, memory_kills
from dasfprof.analysis.model.steps import NO_LINES, has_lines, line_groups, line_words
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run.run_end import (
    RESTARTED,
    begins_with,
    cancelled_runs,
    left_unasked,
    stimulus_texts,
)
from dasfprof.analysis.run.task_runs import RELEASED
from dasfprof.analysis.run.worker_exits import Departure, Why
from dasfprof.analysis.stack_samples.calls import MAKES_CHUNKS, time_inside
from dasfprof.analysis.under_way.causes import causes_of_run
from dasfprof.analysis.under_way.primitives import HOLDER_DIED
from dasfprof.analysis.under_way.processes import advice, clause, suspicion
from dasfprof.analysis.wording import Bytes, Count, Figures, Seconds, Share
from dasfprof.database.columns import Array
from dasfprof.database.ends import End
from dasfprof.text import elide

#: Losses are regular if there are at least `_EVEN` gaps between them, and the fraction `_MOSTLY` of
#: the gaps differs from the median gap by at most the factor `_NEAR`. If there are at most `_FEW`
#: gaps, this holds for all of them.
_EVEN, _FEW, _MOSTLY, _NEAR = 2, 4, 0.75, 1.25


def find_rhythm(run: RunFigures, departures: Mapping[int, Departure]) -> Figures | None:
    """Return figures about workers that were lost at regular intervals, or None.

    `departures` contains the exit of each lost worker instance.
    """
    # An exit with a known reason needs no other explanation.
    lives = [life for life, departure in departures.items() if departure.why is Why.UNKNOWN]
    gaps = np.diff(np.sort(run.trace.workers["left"].to_numpy(dtype=float)[lives]))
    if len(gaps) < _EVEN or not gaps.min() > 0:
        return None
    middle = np.median(gaps)
    even = (gaps >= middle / _NEAR) & (gaps <= middle * _NEAR)
    if even.mean() < (_MOSTLY if len(gaps) > _FEW else 1.0):
        return None
    shares = [departures[life].memory / departures[life].limit for life in lives]
    most = lives[int(np.argmax(np.nan_to_num(shares)))]
    memory, limit = departures[most].memory, departures[most].limit
    return Figures(
        workers=Count(len(lives)),
        shortest=Seconds(gaps[even].min()),
        longest=Seconds(gaps[even].max()),
        others=Count(np.count_nonzero(~even)),
        memory=Bytes(memory),
        limit=Bytes(limit),
    )


def rhythm_in_words(rhythm: Figures | None) -> str:
    """Return a sentence about workers that were lost at regular intervals, or ""."""
    if rhythm is None:
        return ""
    known = np.isfinite(rhythm.memory + rhythm.limit)
    memory = (
        (f", and at most {rhythm.memory} of {rhythm.limit} of memory were in use") if known else ""
    )
    but = f", with {rhythm.others:exception}" if rhythm.others else ""
    return (
        f"{rhythm.workers:worker} were lost at regular intervals of {rhythm.shortest} to "
        f"{rhythm.longest}{but}{memory}. This suggests a liveness probe, a time limit or a script. "
    )


#: Threshold (fraction of the task time): results that were computed again.
_AGAIN = 0.02
#: Threshold (seconds): a task that takes longer does more than return its input.
_RETURNING = 0.002
#: Maximum number of named tasks of a lost worker, and of named source lines.
_MOST_NAMED = 3
#: Functions that select chunks. The chunks have other indices in their layers than before.
_SELECTS = {"getitem", "blocks", "partitions", "take", "head", "tail", "concatenate", "stack"}
#: Prefix of the stimulus ids that Dask gives to graphs that a client submitted.
_SUBMITTED = ("update-graph",)


@rule(
    "lost-workers", causes="recomputation load-imbalance too-few-tasks serial-chain poor-placement"
)
def lost_workers(run: RunFigures) -> Iterator[Finding]:
    """Find workers that were lost while they had unfinished tasks."""
    attempts = run.attempts
    lost = attempts[(attempts["category"] == WORKER_LOST).to_numpy(dtype=bool)]
    if not len(lost):
        return
    lives, counts = np.unique(lost["life"].to_numpy(), return_counts=True)
    labels = run.trace.workers["worker"].to_numpy(dtype=object)
    if {str(labels[life]) for life in lives} <= {
        c.worker for c in causes_of_run(run.trace) if c.kind == HOLDER_DIED
    }:
        return  # Another finding reports this loss: tasks wait for a lock that such a worker held.
    departures = departures_of(run.trace)
    whys = [each.why for each in departures.values()]
    first = {Why.AGE} & set(whys) or set(Why) - {Why.UNKNOWN}
    named = np.array([why in first for why in whys])
    of_them = np.where(named, counts, 0) if named.any() else counts
    place = int(of_them.argmax())
    worst = int(lives[place])
    at = float(run.trace.left[worst])
    _, by_loss = _computed_again(run)
    again = float(run.slot_seconds[by_loss].sum())
    gone, threads = _missing(run)
    ended, longest = departures[worst], _there_longest(run, lost)
    function = str(Counter(longest["function"].tolist()).most_common(1)[0][0])
    on_worst = longest[(longest["life"] == worst).to_numpy(dtype=bool)]
    kills = (kill for kill in memory_kills(run.trace) if kill.life == worst and kill.suspect)
    kill = next(kills, None)
    function = function if kill is None else str(kill.suspect)
    alone, there = len(lives) == 1, [run.text_of_key(int(key)) for key in on_worst["key_id"]]
    rhythm, how = find_rhythm(run, departures), clause(list(departures.values()))
    when = "{left} after the start of the trace" if np.isfinite(at) else "at an unknown time"
    yield Finding.of(
        "{workers:worker} left the cluster with {tasks:task} unfinished, most of them {most_of}"
        f"{', {clause}' if how else ''}.",
        f"{{worker}} left {when} with {{tasks_of_worker}} of these tasks. "
        f"{'It was {exit}. ' if ended.words else ''}"
        f"{'{known}. ' if ended.evidence else ''}"
        + (
            f"Results were lost with {'it' if alone else 'them'}: {{ran_again:task}} had to run "
            "again, which took {again} of thread time. "
            if by_loss.any()
            else ""
        )
        + (
            f"The threads of the lost worker{'' if alone else 's'} were missing for {{missed}} of "
            "thread time while the others ran tasks. "
            if gone > 0
            else ""
        )
        + f"{{suspicion}}{'Tasks that may have been running on it: {_named}. ' if there else ''}"
        f"{rhythm_in_words(rhythm)}See processed_tasks() and process_summary().",
        "{advice}",
        function=function,
        most_of=str(Counter(lost["function"].tolist()).most_common(1)[0][0]),
        clause=how,
        why=ended.why.value,
        ages=ended.ages and tuple(map(Seconds, ended.ages)),
        of_age=Count(whys.count(Why.AGE)),
        longest=there[:_MOST_NAMED],
        _named=", ".join(there[:_MOST_NAMED]),
        rhythm=rhythm,
        advice=advice(ended, function, fills=kill is not None and kill.reason is Reason.RESULTS),
        suspicion="" if kill is None else suspicion(kill),
        worker=str(run.trace.workers["worker"].iloc[worst]),
        workers=Count(len(lives)),
        tasks=Count(len(lost)),
        tasks_of_worker=Count(counts[place]),
        left=Seconds(at),
        ran_again=Count(by_loss.sum()),
        again=Seconds(again),
        missed=Seconds(gone),
        exit=ended.words,
        known=f"{ended.evidence[:1].upper()}{ended.evidence[1:]}" if ended.evidence else "",
        memory=Bytes(ended.memory),
        limit=Bytes(ended.limit),
        blames_memory=ended.why is Why.MEMORY,
        costs=(again + gone) / threads if threads > 0 else float("nan"),
        at_least="high",
        start=at,
        stop=at,
    )


def _there_longest(run: RunFigures, lost: pd.DataFrame) -> pd.DataFrame:
    """Return the lost tasks that may have been running when their worker was lost."""
    lost = lost.sort_values("start", kind="stable", ignore_index=True)
    threads = run.trace.workers["nthreads"].fillna(1).clip(lower=1).to_numpy()
    seen = lost["run"].notna()
    # If no task was seen in progress, the worker may have been running the tasks that were assigned
    # to it first, one per thread.
    first = lost.groupby("life").cumcount() < threads[lost["life"].to_numpy()]
    return lost[seen | (first & ~seen.groupby(lost["life"]).transform("any"))]


@rule("cancelled-tasks")
def cancelled_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find unfinished tasks that a client cancelled or released, or that a restart cancelled."""
    yield from _restarted(run)
    if run.end is not None and run.end.how is End.LEFT:
        return
    attempts = run.attempts
    released = attempts[(attempts["status"] == RELEASED).to_numpy(dtype=bool)]
    released = released[~released["key_id"].isin(run.restarted_keys).to_numpy(dtype=bool)]
    if not len(released):
        return
    name, number = Counter(released["function"].tolist()).most_common(1)[0]
    yield Finding.of(
        "The client cancelled {tasks:task} before they finished, or released their futures. "
        "{tasks_of_function} of them are tasks of {function}.",
        "These tasks had run for {ran} in total. See processed_tasks().",
        "Keep the futures in a variable until you use their results, unless you meant to cancel "
        "this work.",
        function=str(name),
        tasks=Count(len(released)),
        tasks_of_function=Count(number),
        ran=Seconds(released["run"].fillna(0.0).sum()),
        severity="low",
    )


def _restarted(run: RunFigures) -> Iterator[Finding]:
    """Find restarts of workers by a client, and the tasks that the restarts cancelled."""
    changes, attempts = run.trace.cluster_changes, run.attempts
    restarts = changes[(changes["action"] == "restart").to_numpy(dtype=bool)].to_dict("records")
    taken = attempts[attempts["key_id"].isin(run.restarted_keys).to_numpy(dtype=bool)]
    taken = taken[(taken["category"] == CANCELLED).to_numpy(dtype=bool)]
    taken = taken.drop_duplicates("key_id", keep="last")
    # The outcomes of task runs on workers that had not yet received the restart.
    runs = run.trace.task_runs
    states = runs["state"].astype(object).to_numpy()[cancelled_runs(run.trace, runs, RESTARTED)]
    sent = len(taken) + int(np.isin(states, ("memory", "erred")).sum())
    tasks = sent + int(sum(max(restart["number"] or 0, 0) for restart in restarts))
    if not tasks:
        return
    at = run.trace.seconds_at(float(restarts[0]["time"])) if restarts else float("nan")
    who = [restart["who"] for restart in restarts if isinstance(restart["who"], str)]
    ran = float(taken["run"].fillna(0.0).sum())
    when = "The restart was {at} after the start of the trace. "
    seen = "They were seen running for {ran} in total. "
    yield Finding.of(
        "{who} restarted the workers, which cancelled {tasks:unfinished task}.",
        f"{when if restarts else ''}{{sent}} of the tasks had been assigned to a worker. "
        f"{seen if ran > 0 else ''}See cluster_changes() and processed_tasks().",
        "Cancel unwanted work with cancel(), or by deleting its futures. client.restart() also "
        "discards the tasks and results of every other client.",
        tasks=Count(tasks),
        sent=Count(sent),
        ran=Seconds(ran),
        who=elide(who[0], 24) if who else "A client",
        restarts=Count(len(restarts)),
        at=Seconds(at) if restarts else None,
        at_least="low",
        at_most="medium",
        start=at,
        stop=at,
    )


@rule("recomputation", causes="tasks-too-small dominant-function blocked-tasks io-bound")
def recomputation(run: RunFigures) -> Iterator[Finding]:
    """Find results that were computed again although they had been computed before."""
    again, _ = _computed_again(run)
    inside, lines = _computed_inside(run, ~again)
    seconds = run.slot_seconds
    repeated = np.where(again, seconds, inside)
    lost = float(repeated.sum())
    if not lost > _AGAIN * seconds.sum():
        return
    by_function = np.bincount(run.functions.codes, weights=repeated)
    rows = np.flatnonzero(repeated > 0)
    once = run.with_durations(rows, run.task_column("duration")[rows] - repeated[rows])
    code = int(by_function.argmax())
    function = str(run.function_names[code])
    of_function = (repeated > 0) & (run.functions.codes == code)
    fused = bool(inside[of_function].sum() > seconds[of_function & again].sum())
    built = lines if fused else _built(run, np.where(of_function & again, seconds, 0.0))
    what = "the collection that is built at {_lines}"
    unknown = ""
    if not built:
        what = "the collection whose tasks are named {function}"
        unknown = (
            " The line that built it was not recorded. Dask names fused tasks after their last "
            "function."
        )
    how = (
        "{tasks_of_function:task} repeated the work of {function}, because Dask fused it into "
        "each of them (as stack samples show)"
        if fused
        else "{tasks_of_function:task} of {function} ran again after their results had been "
        "released"
    )
    handling, part = _handling(run, repeated, again), np.nan_to_num(ratio(repeated, seconds))
    around = "Dask needs {handling} for the graphs of these tasks and for handling them. "
    yield Finding.of(
        "Results are computed more than once: {tasks:task}, {lost} of thread time, most of it in "
        "the function {function}.",
        f"{how}. This is {{share}} of the thread time of all tasks. "
        f"{around if handling >= NEGLIGIBLE else ''}See "
        'processed_tasks("function").',
        f"Call persist() on {what} before you use it several times, or pass everything that "
        f"needs it to one dask.compute().{unknown}",
        function=function,
        tasks=Count((repeated > 0).sum()),
        tasks_of_function=Count(of_function.sum()),
        lost=Seconds(lost),
        share=Share(lost / seconds.sum()),
        fused=fused,
        built=built,
        _lines=" and ".join(built),
        handling=Seconds(handling) if handling >= NEGLIGIBLE else None,
        seconds=run.saved(run.path_seconds_of(part), running=once) + handling,
        settings=[Change({"persist": function}, function=function)],
    )


def _handling(run: RunFigures, repeated: Array, again: Array) -> float:
    """Return the seconds of task handling and graph preparation that repeated work caused.

    `repeated` contains the seconds of repeated work in each task run. `again` is a mask of the task
    runs that consist only of repeated work.
    """
    path, (waits, rows) = run.path_segments, run.waits_for_graphs
    known = path.rows < len(again)
    known &= ~np.isin(path.kind, (SegmentKind.CLIENT, SegmentKind.COMPUTE))
    # If a task run is not completely repeated work, its handling is needed anyway.
    handling = float(path.length[known][again[path.rows[known]]].sum())
    if "graph" not in run.trace.tasks:
        return handling
    of_tasks = rows < len(again)
    codes, graphs_of_tasks = pd.factorize(run.trace.tasks["graph"])
    graphs = Groups(codes, len(graphs_of_tasks))
    # The wait for each graph is multiplied by the fraction of the graph that is repeated work.
    share = np.nan_to_num(ratio(graphs.sum(repeated), graphs.sum(run.slot_seconds)))
    # The last item is for tasks whose graph is unknown.
    of_graphs = np.append(share, 0.0)[graphs.codes[rows[of_tasks]]]
    return handling + float((waits[of_tasks] * of_graphs).sum())


def _computed_inside(run: RunFigures, first: Array) -> tuple[Array, list[str]]:
    """Return the seconds that each task run spent on fused layers that had been computed before.

    `first` is a mask of the task runs that did not recompute a result. Only these are examined. The
    second value is a list. It contains the line that built the layers with most of these seconds,
    or it is empty.
    """
    layers, tasks, keys = run.trace.fused_layers, run.trace.tasks, run.trace.keys
    seconds, key_ids = np.zeros(len(tasks)), tasks["key_id"].to_numpy()
    # Dask may fuse the same layer into tasks of several other layers. Indices of chunks are not
    # compared across a layer that selects chunks.
    roots = {
        layer: next((n for n in inner if layers.functions.get(n) in _SELECTS), inner[-1])
        for layer, inner in layers.shared.items()
        if layers.others[layer].isdisjoint(_SELECTS)
    }
    if not roots:
        return seconds, []
    of_row = layers.of_keys[key_ids]
    rows = np.flatnonzero(
        run.succeeded & first & np.isin(of_row, np.array([*roots], dtype=np.uint64))
    )
    rows = rows[np.argsort(run.slots.times.start[rows], kind="stable")]
    root = np.array([roots[layer] for layer in of_row[rows].tolist()], dtype=np.uint64)
    # A key without an index belongs to the only chunk, since Dask fused all layers that lead to it.
    indices = keys.tails_of(key_ids[rows])
    indices[~keys.are_tuples(key_ids[rows])] = 0
    # Two tasks whose keys have equal indices compute the same chunk of the fused layer.
    chunks = np.column_stack([root, indices])
    repeats = Groups(np.unique(chunks, axis=0, return_inverse=True)[1].ravel(), len(rows))
    rows = rows[repeats.places(np.arange(len(rows))) > 0]
    by_line: dict[str, float] = {}
    for layer in np.unique(of_row[rows]).tolist():
        layer_rows = rows[of_row[rows] == layer]
        inner = layers.shared[layer]
        calls = {layers.functions.get(each, "") for each in inner}
        if layer in layers.only_shared:
            calls |= MAKES_CHUNKS
        for code in np.unique(run.functions.codes[layer_rows]).tolist():
            named = layer_rows[run.functions.codes[layer_rows] == code]
            share = time_inside(
                run.trace, str(run.function_names[code]), calls, layers.others[layer]
            )
            seconds[named] = share * run.slot_seconds[named]
        line = layers.lines.get(inner[0], "")
        by_line[line] = by_line.get(line, 0.0) + float(seconds[layer_rows].sum())
    line = max(by_line, key=lambda each: by_line[each], default="")
    return seconds, [line_words(run.trace, line)] if line else []


def _built(run: RunFigures, seconds: Array) -> list[str]:
    """Return the lines that built the tasks with the most seconds, or [] if unknown."""
    if not has_lines(run.trace):
        return []
    codes, names = line_groups(run.trace.tasks)
    by_line = np.bincount(codes, weights=seconds, minlength=len(names))
    known = [at for at in np.argsort(-by_line, kind="stable").tolist() if by_line[at] > 0]
    lines = [names[at] for at in known if names[at] not in NO_LINES]
    return [line_words(run.trace, line) for line in lines[:_MOST_NAMED]]


def _computed_again(run: RunFigures) -> tuple[Array, Array]:
    """Return masks of task runs that recomputed a result: for a client, and after a lost worker."""
    tasks = run.trace.tasks
    start = run.slots.times.start[: len(tasks)]
    keys = np.where(run.succeeded, tasks["key_id"].to_numpy(), -1)
    again = Groups(keys, len(run.trace.keys)).places(start) > 0
    again &= ~_returns_its_input(run)
    lost = left_unasked(run.trace).any()
    if "graph" not in tasks or not again.any():
        return again & ~lost, again & lost
    rows = np.flatnonzero(again)
    causes = stimulus_texts(run.trace, tasks["graph"].iloc[rows])
    asked = np.zeros(len(tasks), dtype=bool)
    # If the stimulus is unknown, a task run counts as requested by a client, unless workers were
    # lost.
    asked[rows] = begins_with(causes, _SUBMITTED) | ((causes == "") & ~lost)
    clients = tasks["client"].cat.codes.to_numpy()
    # If two clients each request a result once, the second task run does not count, because clients
    # do not know each other's results.
    pairs = pd.factorize(keys * (int(clients.max()) + 2) + clients + 1)[0]
    by_client = Groups(np.where(keys < 0, -1, pairs), len(tasks)).places(start) > 0
    return asked & by_client, again & ~asked & lost


def _returns_its_input(run: RunFigures) -> Array:
    """Return a mask of task runs that return their only input.

    The graphs of persisted dataframes contain such tasks, and Dask runs them in each computation.
    """
    tasks, (counts, _) = run.trace.tasks, run.trace.task_dependencies
    size, inputs, duration = (
        tasks[name].to_numpy(dtype=float) for name in ("size", "input_size", "duration")
    )
    # Dataframes grow by some bytes when they are used.
    return (counts == 1) & (np.abs(size - inputs) <= 0.01 * size) & (duration < _RETURNING)


def _missing(run: RunFigures) -> tuple[float, float]:
    """Return the thread-seconds that were missing because workers were lost, and a thread count.

    The thread count is the number of threads before the first worker was lost.
    """
    lives, workers = run.accounts.lives, run.workers.of_lives
    unasked, left = left_unasked(run.trace), run.trace.left
    missed, first = 0.0, np.inf
    for place, life in enumerate(lives.ids.tolist()):
        if not unasked[life]:
            continue
        # A worker is missing until it is replaced or the run ends, but only while other workers run
        # tasks.
        later = (workers[lives.ids] == workers[life]) & (lives.begin >= left[life])
        until = min(run.begin + run.wall, float(lives.begin[later].min(initial=np.inf)))
        gone = run.integrate(run.concurrency[1] > 0, left[life : life + 1], np.array([until]))
        missed += float(lives.threads[place] * gone[0]) if until > left[life] else 0.0
        first = min(first, float(left[life]))
    there = (lives.begin < first) & (lives.end >= first)
    return missed, float(lives.threads[there].sum())
