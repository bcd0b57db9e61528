"""Rules about requests to storage: many small ones, and stored chunks that many tasks read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.registry import MORE, Advice, Change, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.stack_samples.places import all_stacks, library_of
from dasfprof.analysis.stack_samples.spent import samples_of
from dasfprof.analysis.wording import Bytes, Count, Factor, Rate, Seconds, Share
from dasfprof.database.columns import Array
from dasfprof.database.keys import TUPLE

#: Thresholds of small requests: bytes, bytes per second of a request, and seconds per request.
_SMALL, _SLOW, _LATENCY = 1e6, 5e6, 0.005
#: Thresholds: how many requests, and the fraction of the threads' time that is waited for them.
_MANY, _WAITING = 20, 0.2
#: Threshold (fraction): the part of a function's time that is spent waiting for them.
_MOSTLY = 0.5
#: Bytes of a request that takes little more than its latency on object stores.
_LARGE = 8e6
#: Requests of a run in progress at a time, from which reading more in each task gains little.
_SIDE_BY_SIDE = 4.0
#: Thresholds: how many stored chunks, and the fraction of the threads' time that goes to reading
#: them again.
_FEWEST, _AGAIN = 4, 0.05


@dataclass(frozen=True)
class _Requests:
    """What task runs of a function read by requests."""

    count: int
    size: float
    #: Summed over requests, and those for which the runs' threads waited.
    seconds: float
    waiting: float


def _reads(run: RunFigures, rows: Array) -> _Requests:
    """Sum up what some task runs read; requests of unknown size are left out."""
    table = run.trace.storage
    keys = run.trace.tasks["key_id"].to_numpy()[rows]
    table = table[np.isin(table["key_id"], keys) & (table["unsized"] == 0) & (table["reads"] > 0)]
    sums = table[["reads", "read_size", "reading"]].astype(float).sum()
    return _Requests(
        int(sums["reads"]), sums["read_size"], sums["reading"], float(run.storage[rows].sum())
    )


@rule("small-requests", explains="io-bound dominant-function blocked-tasks")
def small_requests(run: RunFigures) -> Iterator[Finding]:
    """Find the function that waits longest for many small requests, which mostly take latency."""
    waited = run.functions.sum(run.storage)
    if not len(waited) or waited.max() / run.threads < _WAITING * run.wall:
        return
    code = int(waited.argmax())
    name = str(run.function_names[code])
    rows = run.rows_of(name)
    reads = _reads(run, rows)
    if (
        reads.count < max(_MANY, 2 * run.threads)
        or waited[code] < _MOSTLY * run.working[rows].sum()
    ):
        return
    size, each = reads.size / reads.count, reads.seconds / reads.count
    if not 0 < size < _SMALL or each < _LATENCY or size / each > _SLOW:
        return
    # No larger than leaves each thread two of them.
    wanted = float(2 ** round(np.log2(_LARGE / size)))
    times = max(min(wanted, np.floor(reads.count / (2 * run.threads))), 2.0)
    more = min(wanted, np.floor(len(rows) / (2 * run.threads)))
    at_a_time = reads.seconds / max(reads.waiting, 1e-9)
    zarr = _reads_zarr(run, name)
    in_tasks = ""
    if zarr and at_a_time < _SIDE_BY_SIDE and more >= 2:
        in_tasks = (
            "Read {more} times as much in each task of {function}: chunks= of several stored "
            "chunks where the array is opened (da.from_zarr, xarray.open_zarr), which Zarr then "
            "requests side by side. "
        )
    larger = (
        "Where the data are written, store chunks about {times} times as large, or put many into "
        "a shard (shards=)."
        if zarr
        else "Make requests about {times} times as large: larger objects, or block_size= and "
        "cache_type= of fsspec.open()."
    )
    yield Finding.of(
        "small-requests",
        "Tasks wait for many small requests to storage: {function} makes {requests} of {size}, "
        "which take {each} each (means).",
        "That is {rate} per request. Unless the storage is throttled, latency takes most of this "
        "time. The threads spend {waiting} of their time waiting for requests. While a task waits, "
        "{at_a_time} of its requests are in progress on average. See storage().",
        [
            f"{in_tasks}{larger}",
            Advice(
                "more-threads",
                "Or run more threads per worker.",
                changes=[Change.of_cluster(threads_per_worker=MORE)],
            ),
        ],
        function=name,
        requests=Count(reads.count),
        size=Bytes(size),
        each=Seconds(each),
        rate=Rate(size / each),
        waiting=Share(run.share(reads.waiting)),
        at_a_time=Factor(at_a_time),
        times=Factor(times),
        more=Factor(more) if in_tasks else None,
        costs=reads.waiting / run.threads,
        at_least="medium",
    )


def _reads_zarr(run: RunFigures, function: str) -> bool:
    """Return whether samples of a function are in Zarr."""
    stacks = all_stacks(run.trace)
    seen = np.unique(samples_of(run.trace, function)[0].stack)
    frames = (frame for number in seen[seen >= 0].tolist() for frame in stacks[number])
    return any(library_of(frame.file) == "zarr" for frame in frames)


@rule("chunk-mismatch", explains="small-requests io-bound dominant-function blocked-tasks")
def chunk_mismatch(run: RunFigures) -> Iterator[Finding]:
    """Find the layer whose tasks read the same stored chunks as others of the layer."""
    pairs = _read_items(run)
    if not len(pairs):
        return
    lost = run.storage + run.cpu + run.core_wait
    worst: tuple[float, int, pd.Series[int]] | None = None
    for layer in np.unique(pairs["layer"]).tolist():
        own = pairs[pairs["layer"] == layer]
        readers = own.groupby("item").size()
        readers = readers[readers <= own["key_id"].nunique() / 2]  # not what most of them need
        if len(readers) < _FEWEST or readers.median() < 2:
            continue
        again = 1.0 - len(readers) / readers.sum()
        rows = run.layers.codes == layer
        cost = again * float(lost[rows].sum()) / run.threads
        if worst is None or cost > worst[0]:
            worst = cost, layer, readers
    if worst is None or worst[0] < _AGAIN * run.wall:
        return
    cost, layer, readers = worst
    rows = np.flatnonzero(run.layers.codes == layer)
    name = str(run.function_names[run.functions.codes[rows[0]]])
    moved = _reads(run, rows).size
    tasks = len(np.unique(run.trace.tasks["key_id"].to_numpy()[rows]))
    passes = len(rows) / tasks * float(readers.mean())
    yield Finding.of(
        "chunk-mismatch",
        "Chunks do not match the stored chunks: {tasks:task} of {function} read {chunks} stored "
        "chunks {times} times each (the mean).",
        "{moved} were read. If each stored chunk were read once, it would be {once}. Only the "
        "first 16 objects or ranges of each task were compared. See storage().",
        "Choose chunks of {function} that are multiples of the stored ones along each axis: open "
        "the array without chunks= (da.from_zarr), or with chunks={{}} (xarray.open_zarr). To "
        "write, rechunk() to multiples of the chunks (or shards) of the array that is written.",
        function=name,
        tasks=Count(tasks),
        chunks=Count(len(readers)),
        times=Factor(float(readers.mean())),
        moved=Bytes(moved),
        once=Bytes(moved / passes),
        costs=cost,
        at_least="medium",
    )


def _read_items(run: RunFigures) -> pd.DataFrame:
    """Return what tasks of collections read: ``layer, key_id, item``, each once."""
    table, tasks = run.trace.storage, run.trace.tasks
    told = table[np.array([isinstance(each, str) and each != "" for each in table["items"]], bool)]
    layers = np.full(len(run.trace.keys), -1, dtype=np.int64)
    layers[tasks["key_id"].to_numpy()] = run.layers.codes
    keys = told["key_id"].to_numpy(dtype=np.int64)
    kinds = np.array([kind for kind, _ in run.trace.keys.heads], dtype=np.int8)
    pairs = pd.DataFrame(
        {"layer": layers[keys], "key_id": keys, "item": told["items"].astype(str).str.split()}
    )
    of_collections = kinds[run.trace.keys.head_ids[keys]] >= TUPLE
    pairs = pairs[of_collections & (pairs["layer"].to_numpy() >= 0)]
    return pairs.explode("item").drop_duplicates()
