"""Tables of a `Trace` without files, for thousands of random examples with arbitrary times."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from dasfprof.analysis import Trace
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.analysis.trace.gaps import Surroundings
from dasfprof.analysis.trace.keys import KeyCollector, KeyTable, split_keys
from dasfprof.analysis.trace.reader import TraceReader, UserEvents
from dasfprof.database.ends import End
from traces.events import T

TASK_TIMES = ("scheduler_waiting", "queued", "stolen", "sent", "received", "ready", "executing")
TASK_TIMES += ("seceded", "start", "done", "known")
_NUMBERS = ("duration", "cpu", "run_queue", "deserialize", "disk_read", "size")
_NUMBERS += ("wanted", "collecting", "storage")


def key_table(keys: Sequence[Any]) -> KeyTable:
    """Return a table of distinct keys in their order."""
    collector = KeyCollector()
    collector.add(split_keys(keys))
    return collector.finish()[0]


def _categorical(values: Sequence[Any]) -> pd.Categorical:
    distinct = [value for value in dict.fromkeys(values) if value is not None]
    codes = [-1 if value is None else distinct.index(value) for value in values]
    return make_categorical(np.array(codes, dtype=np.int32), distinct)


def made_trace(
    tasks: Sequence[dict[str, Any]],
    *,
    workers: Sequence[dict[str, Any]] = ({},),
    graphs: Sequence[float] = (),
    samples: Sequence[dict[str, Any]] = (),
    transfers: Sequence[dict[str, Any]] = (),
    scheduler_only: Sequence[dict[str, Any]] = (),
    actor_calls: Sequence[dict[str, Any]] = (),
    worker_functions: Sequence[dict[str, Any]] = (),
    scheduler: bool = True,
) -> Run:
    """Return a trace. Times are seconds from its start.

    Parameters
    ----------
    tasks, scheduler_only
        ``key, worker_id, state, cause, end_cause, dependencies`` (key texts) and times; of the
        latter ``lost, reason`` as well.
    workers
        ``nthreads, boot_id, joined, left, first_seen, last_seen``; the scheduler is added to them.
    samples
        ``worker_id, time, state`` of managed memory.
    transfers, actor_calls, worker_functions
        ``worker_id, start, duration``.
    scheduler
        Whether there is a scheduler's file.
    """
    texts = [run["key"] for run in (*tasks, *scheduler_only)]
    texts += [key for run in tasks for key in run.get("dependencies", ())]
    keys = list(dict.fromkeys(texts))
    stimuli: list[str] = []
    for run in (*tasks, *scheduler_only):
        stimuli += [run.get("cause") or "", run.get("end_cause") or ""]
    stimuli = list(dict.fromkeys(stimuli))
    dependencies = [[keys.index(key) for key in run.get("dependencies", ())] for run in tasks]
    times = [run.get(name, np.nan) for run in tasks for name in ("start", "done")]
    nothing = vars(Trace.from_reader(TraceReader([], progress=False)))
    spans = {"worker_id": int, "start": T, "duration": float}
    made: dict[str, Any] = {
        "tasks": _task_table(tasks, keys, stimuli, scheduler),
        "scheduler_only": _task_table(scheduler_only, keys, stimuli, True).assign(
            lost=np.array([run.get("lost", False) for run in scheduler_only], dtype=bool),
            reason=[run.get("reason", "no file") for run in scheduler_only],
            scheduler_start=[T + run.get("start", np.nan) for run in scheduler_only],
            scheduler_stop=[T + run.get("stop", np.nan) for run in scheduler_only],
        ),
        "transfers": _table(transfers, spans),
        "shuffle_messages": _table([], spans).assign(
            target=_categorical([]), size=0.0, state=_categorical([])
        ),
        "actor_calls": _table(actor_calls, spans),
        "worker_functions": _table(worker_functions, spans),
        "knows_serialising": False,
        "knows_releases": False,
        "managed_memory": _table(samples, {"worker_id": int, "time": T}).assign(
            state=_categorical([sample["state"] for sample in samples])
        ),
        "workers": _worker_table(workers),
        "graphs": pd.DataFrame({"time": T + np.array(graphs, dtype=float)}),
        "events": UserEvents().table(),
        "keys": key_table(keys),
        "stimuli": key_table(stimuli),
        "begin": T,
        "end": T + max([time for time in times if np.isfinite(time)], default=0.0),
        "notes": (),
        "task_dependencies": (
            np.array([len(ids) for ids in dependencies], dtype=np.int64),
            np.array([key for ids in dependencies for key in ids], dtype=np.int64),
        ),
        "recording": End.CLOSED,
        "surroundings": Surroundings(),
        "transfer_keys": (np.zeros(len(transfers), dtype=np.int64), np.empty(0, dtype=np.int64)),
    }
    for name, table in made.items():
        if isinstance(table, pd.DataFrame) and name != "events":
            made[name] = _completed(table, nothing[name])
    return Run.from_trace(Trace(**{**nothing, **made}))


def _completed(table: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Return a table with all columns of a reader's table; missing columns are empty."""
    missing = {name: like[name].dtype for name in like if name not in table}
    unknown = like[[*missing]].reindex(range(len(table)))
    unknown = unknown.astype({n: dtype for n, dtype in missing.items() if dtype.kind not in "iub"})
    return table.join(unknown.fillna({n: -1 for n, dtype in missing.items() if dtype.kind in "iu"}))


def _table(rows: Sequence[dict[str, Any]], columns: dict[str, Any]) -> pd.DataFrame:
    table = {}
    for name, kind in columns.items():
        values = np.array([row[name] for row in rows], dtype=kind if kind is int else float)
        table[name] = values + kind if isinstance(kind, float) else values
    return pd.DataFrame(table)


def _task_table(
    runs: Sequence[dict[str, Any]], keys: list[str], stimuli: list[str], scheduler: bool
) -> pd.DataFrame:
    ids = [run.get("worker_id", 0) for run in runs]
    states = [run.get("state", "memory") for run in runs]
    table: dict[str, Any] = {
        "key_id": np.array([keys.index(run["key"]) for run in runs], dtype=np.int64),
        "run_id": np.array([run.get("run_id", row) for row, run in enumerate(runs)], dtype=int),
        "worker_id": np.array(ids, dtype=np.int32),
        "host": _categorical([f"host{number}" for number in ids]),
        "worker": _categorical([f"worker{number}" for number in ids]),
        "function": _categorical([run["key"].rpartition("-")[0] for run in runs]),
        "state": _categorical(states),
        "source": _categorical([run.get("source", "worker") for run in runs]),
    }
    for name in TASK_TIMES:
        table[name] = T + np.array([run.get(name, np.nan) for run in runs], dtype=float)
    for name in _NUMBERS:
        table[name] = np.array([run.get(name, np.nan) for run in runs], dtype=float)
    table["duration"] = np.nan_to_num(table["duration"])
    if scheduler:
        table["scheduler_state"] = _categorical(
            [run.get("scheduler_state", state) for run, state in zip(runs, states, strict=True)]
        )
        for name in ("cause", "end_cause"):
            table[name] = np.array([stimuli.index(run.get(name) or "") for run in runs], dtype=int)
    else:
        for name in ("scheduler_waiting", "queued", "stolen", "sent", "known"):
            del table[name]
    return pd.DataFrame(table)


def _worker_table(workers: Sequence[dict[str, Any]]) -> pd.DataFrame:
    rows = [*workers, {"kind": "scheduler", "nthreads": None, "boot_id": "scheduler's"}]

    def times(name: str) -> Any:
        return T + np.array([row.get(name, np.nan) for row in rows], dtype=float)

    return pd.DataFrame(
        {
            "host": [row.get("host", f"host{number}") for number, row in enumerate(rows)],
            "worker": [row.get("worker", f"worker{number}") for number, row in enumerate(rows)],
            "kind": [row.get("kind", "worker") for row in rows],
            "nthreads": pd.array([row.get("nthreads", 1) for row in rows], dtype="Int64"),
            "boot_id": pd.Series([row.get("boot_id") for row in rows], dtype=object),
            "address": pd.Series([row.get("address") for row in rows], dtype=object),
            "exit_code": np.array([row.get("exit_code", np.nan) for row in rows], dtype=float),
            "exit_reason": pd.Series([row.get("exit_reason") for row in rows], dtype=object),
            "silent": np.full(len(rows), np.nan),
            "last_error": pd.Series([None] * len(rows), dtype=object),
            "last_error_time": np.full(len(rows), np.nan),
            "joined": times("joined"),
            "left": times("left"),
            "first_seen": times("first_seen"),
            "last_seen": times("last_seen"),
        }
    ).rename_axis(index="worker_id")


SECONDS = st.one_of(st.just(np.nan), st.floats(0, 1e5, allow_subnormal=False))


@st.composite
def any_run(draw: st.DrawFn) -> dict[str, Any]:
    """Return a run with arbitrary times, in any order, some of them unknown."""
    run = {name: draw(SECONDS) for name in TASK_TIMES}
    states = st.sampled_from(["memory", "erred", "released", "processing"])
    return {
        **run,
        "key": f"{draw(st.sampled_from('fg'))}-1",
        "start": draw(st.floats(0, 1e5, allow_subnormal=False)),
        "duration": draw(st.floats(0, 1e4, allow_subnormal=False)),
        "worker_id": draw(st.integers(0, 1)),
        "state": draw(states),
        "scheduler_state": draw(states),
        "cause": draw(st.sampled_from(["", "task-finished-1", "update-graph-1"])),
        "end_cause": draw(st.sampled_from(["", "task-finished-1", "task-finished-2"])),
        "dependencies": draw(st.sampled_from([[], ["f-1"], ["f-1", "g-1"]])),
        "source": draw(st.sampled_from(["worker", "scheduler"])),
        "wanted": draw(st.sampled_from([0, 1, np.nan])),
    }


ANY_RUNS = st.lists(any_run(), min_size=1, max_size=6)
