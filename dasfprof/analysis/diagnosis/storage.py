"""Rules about storage: many small requests, and stored chunks or files that many tasks read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.cores import most_of, sampled_libraries
from dasfprof.analysis.diagnosis.registry import MORE, Advice, Change, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.stack_samples.places import fractions_by
from dasfprof.analysis.under_way.state import Stack
from dasfprof.analysis.wording import Bytes, Count, Factor, Rate, Seconds, Share
from dasfprof.database.columns import Array
from dasfprof.schema.tasks import COMPLETE, STORED_CHUNK

#: Thresholds of small requests: maximum bytes, maximum bytes per second, and minimum duration.
_SMALL, _SLOW, _LATENCY = 1e6, 5e6, 0.005
#: Thresholds: number of requests, and fraction of thread time in which tasks wait for requests.
_MANY, _WAITING = 20, 0.2
#: Threshold (fraction of a function's time): its tasks wait for requests.
_MOSTLY = 0.5
#: Bytes of a request to an object store that takes only a little longer than the latency.
_LARGE = 8e6
#: Maximum number of concurrent requests per task run. If there are more, larger reads gain little.
_SIDE_BY_SIDE = 4.0
#: Thresholds: number of stored chunks, and fraction of thread time for reading them repeatedly.
_FEWEST, _AGAIN = 2, 0.05
#: Thresholds of unused bytes: read bytes as a multiple of the used ones, and minimum difference.
_TIMES_USED, _UNUSED = 3.0, 1e7
#: Smallest and largest block size that is advised for files of fsspec.
_BLOCKS = 2**16, 2**22
#: Functions that read tables.
_READ_TABLES = {"read_csv", "read_table", "read_parquet"}
_ARRAYS = re.compile(r"/(?:h5py|zarr)/")


def _reads(run: RunFigures, rows: Array) -> tuple[int, float, float]:
    """Return the number, bytes and seconds of the task runs' reads that have a known size."""
    table = run.trace.storage
    keys = run.trace.tasks["key_id"].to_numpy()[rows]
    table = table[np.isin(table["key_id"], keys) & (table["unsized"] == 0) & (table["reads"] > 0)]
    count, size, seconds = table[["reads", "read_size", "reading"]].astype(float).sum()
    return int(count), size, seconds


def unused_reads(run: RunFigures, name: str) -> dict[str, Any] | None:
    """Return how much a function's tasks read and used, or None if they left little unused.

    The result is also None if the used bytes are unknown for most of the read bytes. The entry
    ``block_size`` is the block size to advise for files of fsspec.
    """
    table = run.trace.storage
    size, used = (table[column].to_numpy(dtype=float) for column in ("read_size", "used"))
    reads, keys = table["reads"].to_numpy(dtype=float), run.trace.tasks["key_id"].to_numpy()
    of_function = np.isin(table["key_id"].to_numpy(), keys[run.rows_of(name)])
    # Other functions may use bytes from the cache of a file that this function read. So bytes that
    # they used in addition to those that they read count as used by this function.
    known, others = of_function & (used >= 0), np.maximum(used - size, 0.0)[~of_function].sum()
    read, needed = size[known].sum(), used[known].sum() + others
    if read - needed < _UNUSED or read < _TIMES_USED * needed:
        return None
    if read < _MOSTLY * size[of_function & (reads > 0)].sum():
        return None
    exponent = round(np.log2(max(needed, 1.0) / max(np.count_nonzero(used[known]), 1)))
    return {
        "read": Bytes(read),
        "used": Bytes(needed),
        "requests": Count(reads[known].sum()),
        "each": Bytes(read / max(reads[known].sum(), 1.0)),
        "block_size": int(min(max(2.0**exponent, _BLOCKS[0]), _BLOCKS[1])),
    }


@rule("small-requests", explains="io-bound dominant-function blocked-tasks")
def small_requests(run: RunFigures) -> Iterator[Finding]:
    """Find the function that waits longest for many small requests, which are mostly latency."""
    waited = run.functions.sum(run.storage)
    if not len(waited) or waited.max() / run.threads < _WAITING * run.wall:
        return
    code = int(waited.argmax())
    name = str(run.function_names[code])
    rows = run.rows_of(name)
    (count, read, seconds), waiting = _reads(run, rows), float(waited[code])
    if count < max(_MANY, 2 * run.threads) or waiting < _MOSTLY * run.working[rows].sum():
        return
    size, each = read / count, seconds / count
    if not 0 < size < _SMALL or each < _LATENCY or size / each > _SLOW:
        return
    # Limit the factor so that there are still two requests per thread.
    wanted = float(2 ** round(np.log2(_LARGE / size)))
    times = max(min(wanted, np.floor(count / (2 * run.threads))), 2.0)
    more = min(wanted, np.floor(len(rows) / (2 * run.threads)))
    at_a_time = seconds / max(waiting, 1e-9)
    zarr = "zarr" in sampled_libraries(run, name)
    in_tasks = ""
    if zarr and at_a_time < _SIDE_BY_SIDE and more >= 2:
        in_tasks = (
            "Let each task of {function} read {more} times as much: when you open the array "
            "(da.from_zarr, xarray.open_zarr), pass a chunks= that covers several stored chunks. "
            "Zarr then requests these in parallel. "
        )
    larger = (
        "Store chunks about {times} times as large when you write the data, or put many into a "
        "shard (shards=)."
        if zarr
        else "Make requests about {times} times as large: use larger objects, or block_size= and "
        "cache_type= of fs.open()."
    )
    yield Finding.of(
        "Tasks wait for many small requests to storage: {function} makes {requests:request} of "
        "{size}, which take {each} each (means).",
        "That is {rate} per request. Unless the storage is throttled, latency takes most of this "
        "time. Threads spend {waiting} of their time waiting for requests. While a task waits, "
        "{at_a_time} of its requests are in progress on average. See storage().",
        [
            f"{in_tasks}{larger}",
            Advice(
                "more-threads",
                "Alternatively, run more threads per worker.",
                changes=[Change.of_cluster(threads_per_worker=MORE)],
            ),
        ],
        function=name,
        requests=Count(count),
        size=Bytes(size),
        each=Seconds(each),
        rate=Rate(size / each),
        waiting=Share(run.share(waiting)),
        at_a_time=Factor(at_a_time),
        times=Factor(times),
        more=Factor(more) if in_tasks else None,
        costs=waiting / run.threads,
        at_least="medium",
    )


@rule("chunk-mismatch", explains="small-requests io-bound dominant-function blocked-tasks")
def chunk_mismatch(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that read the same stored chunks, or use little of the stored chunks they read."""
    yield from list(_shared_chunks(run)) or _unused_parts(run)


def _shared_chunks(run: RunFigures) -> Iterator[Finding]:
    """Find the layer that loses most time by reading the same stored chunks several times."""
    pairs = _read_items(run)
    if not len(pairs):
        return
    pairs["alone"] = pairs.groupby(["layer", "key_id"])["item"].transform("size") == 1
    layers: list[tuple[float, Array, pd.Series[int]]] = []
    for layer, of_layer in pairs.groupby("layer"):
        by_item = of_layer.groupby("item")["alone"].agg(["size", "mean"])
        # Tasks may read a table in addition to their chunks. A table is not a chunk.
        is_chunk = (by_item["size"] <= of_layer["key_id"].nunique() / 2) | (by_item["mean"] > 0.5)
        is_chunk |= by_item.index.str.startswith(STORED_CHUNK)
        readers = by_item["size"][is_chunk]
        if len(readers) >= _FEWEST and readers.median() >= 2:
            rows = np.flatnonzero(run.layers.codes == layer)
            again = 1.0 - len(readers) / readers.sum()
            layers.append((again * float(run.lasted[rows].sum()) / run.threads, rows, readers))
    if not layers:
        return
    cost, rows, readers = max(layers, key=lambda candidate: candidate[0])
    if cost < _AGAIN * run.wall:
        return
    name = str(run.function_names[run.functions.codes[rows[0]]])
    moved = _reads(run, rows)[1]
    tasks = len(np.unique(run.trace.tasks["key_id"].to_numpy()[rows]))
    passes = len(rows) / tasks * float(readers.mean())
    once = run.task_column("duration")[rows] * (len(readers) / readers.sum())
    yield Finding.of(
        "Chunks do not match the stored chunks: {tasks:task} of {function} read {chunks} stored "
        "chunks {times} times each (the mean).",
        "{moved} were read. If each stored chunk were read only once, this would be {once}. Only "
        "the first 16 objects or ranges of each task were compared. See storage().",
        "Choose chunks for {function} that are multiples of the stored chunks along each axis: "
        "open the array without chunks= (dask.array), or with chunks={{}} (xarray). Before you "
        "write, call rechunk() with multiples of the target array's chunks (or shards).",
        function=name,
        tasks=Count(tasks),
        chunks=Count(len(readers)),
        times=Factor(float(readers.mean())),
        moved=Bytes(moved),
        once=Bytes(moved / passes),
        seconds=run.saved(cost, running=run.with_durations(rows, once)),
        at_least="medium",
    )


def _unused_parts(run: RunFigures) -> Iterator[Finding]:
    """Find the function that reads stored chunks of Zarr and uses only small parts of them."""
    rows = np.flatnonzero(run.storage > 0)
    if not len(rows):
        return
    name = most_of(run, rows)
    unused, inside = unused_reads(run, name), _time_in_reads(run, name)
    cost = inside * float(run.lasted[run.rows_of(name)].sum()) / run.threads
    if unused is None or cost < _AGAIN * run.wall or "zarr" not in sampled_libraries(run, name):
        return
    yield Finding.of(
        "Tasks read complete stored chunks and use little of them: {function} reads {read} from "
        "storage to select {used} of data.",
        "{requests:request} read {each} each (the mean). {function} spends {inside} of its time "
        "reading, as samples show. See storage().",
        "Select more from each stored chunk that a task of {function} reads: for example, compute "
        "many points or time steps together. If you read the data often, store a copy in "
        "chunks that are long along the axes that you select completely, with rechunk() and "
        "to_zarr().",
        function=name,
        inside=Share(inside),
        costs=cost * (1.0 - unused["used"] / unused["read"]),
        at_least="medium",
        **unused,
    )


@rule("repeated-reads", explains="io-bound dominant-function blocked-tasks stragglers")
def repeated_reads(run: RunFigures) -> Iterator[Finding]:
    """Find the function whose tasks read a complete file or dataset that other tasks have read."""
    table, (codes, names) = run.trace.storage, run.trace.keys.functions()
    items = table["items"].astype(object).tolist()
    pairs = [
        (str(names[codes[key]]), key, item)
        for key, text in zip(table["key_id"].astype(int).tolist(), items, strict=True)
        if isinstance(text, str) and COMPLETE in text
        for item in text.split()
        if item.startswith(COMPLETE)
    ]
    reads = pd.DataFrame(pairs, columns=["function", "key_id", "item"]).drop_duplicates()
    best = None
    for function, of_function in reads.groupby("function"):
        name, readers = str(function), of_function.groupby("item").size()
        rows, inside = run.rows_of(name), _time_in_reads(run, name)
        again = 1.0 - len(readers) / float(readers.sum())
        cost = again * inside * float(run.lasted[rows].sum()) / run.threads
        if cost >= _AGAIN * run.wall and (best is None or cost > best[0]):
            best = cost, name, rows, inside, again, readers
    if best is None:
        return
    cost, name, rows, inside, again, readers = best
    once = run.task_column("duration")[rows] * (1.0 - again * inside)
    yield Finding.of(
        "Tasks read the same data several times: tasks of {function} read {sources:source} "
        "completely, {times} times each (the mean).",
        "A source is a CSV file, a Parquet file, or a dataset of an HDF5 file. Samples show that "
        "{function} spends {inside} of its time on reading.",
        "Read each source in a single task and pass its result to the other tasks, or read it once "
        "per worker, with functools.cache. Otherwise, read only the rows and columns that each "
        "task of {function} needs.",
        function=name,
        sources=Count(len(readers)),
        times=Factor(float(readers.mean())),
        inside=Share(inside),
        seconds=run.saved(cost, running=run.with_durations(rows, once)),
        at_least="medium",
    )


def _time_in_reads(run: RunFigures, function: str) -> float:
    """Return the fraction of a function's time in reads of tables, HDF5 or Zarr (0 if unknown)."""

    def reads(stack: Stack) -> bool:
        return any(
            frame.function.rpartition(".")[2] in _READ_TABLES or _ARRAYS.search(frame.file)
            for frame in stack
        )

    return fractions_by(run.trace, function, reads)[True]


def _read_items(run: RunFigures) -> pd.DataFrame:
    """Return the stored objects, or parts of objects, that each task of a collection read.

    The columns are ``layer, key_id, item``, where ``item`` is the hash of the object or its part.
    """
    table, tasks = run.trace.storage, run.trace.tasks
    named = table[np.array([isinstance(each, str) and each != "" for each in table["items"]], bool)]
    layers = np.full(len(run.trace.keys), -1, dtype=np.int64)
    layers[tasks["key_id"].to_numpy()] = run.layers.codes
    keys = named["key_id"].to_numpy(dtype=np.int64)
    pairs = pd.DataFrame(
        {"layer": layers[keys], "key_id": keys, "item": named["items"].astype(str).str.split()}
    )
    pairs = pairs[run.trace.keys.are_tuples(keys) & (pairs["layer"].to_numpy() >= 0)]
    pairs = pairs.explode("item").drop_duplicates()
    return pairs[[not str(item).startswith(COMPLETE) for item in pairs["item"]]]
