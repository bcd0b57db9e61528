"""Transfers between workers, and data read from and written to storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.model.transfers import amounts, moved_outputs, succeeded_rows
from dasfprof.analysis.numeric.groups import Groups, GroupSums, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import integers, known_texts, text
from dasfprof.analysis.tables.questions import NO_PARTS, InParts, question
from dasfprof.database.columns import Array

#: Name that stands for local disks in the column of protocols.
_DISK = "disk"


@question(
    "Storage I/O by function",
    "balance",
    page="storage",
    expendable=("Unsized Calls", "Mean Write (MB)", "Task Runs"),
    needs="storage",
    in_parts=NO_PARTS,
)
def storage(run: Run) -> pd.DataFrame:
    """Sum up what task runs read from storage and wrote to it, by function.

    Returns
    -------
    DataFrame
        One row per function and storage, sorted by seconds, then by bytes, in descending order:

        - ``Function``
        - ``Storage``: fsspec's name of the protocol, such as s3, gs or https. For stores of Zarr 3,
          it may also be file, memory or zip. ``disk`` stands for disks of the workers' hosts
        - ``Task Runs``: number of task runs that read or wrote anything
        - ``Reads``: number of requests. Requests within another request do not count. NA for disks,
          like all columns except bytes and task runs
        - ``Read (MB)``: their bytes
        - ``Reading (s)``: their total time, including concurrent requests
        - ``Mean Read (MB)``: bytes per request
        - ``Writes``, ``Written (MB)``, ``Writing (s)``, ``Mean Write (MB)``: these figures for
          writing
        - ``Unsized Calls``: number of requests with unknown bytes, which are not in the columns
          above. These are failed requests, copies of directories, and requests in progress when
          their task run ended

    Notes
    -----
    Requests are those of files and file systems of fsspec, and of stores of Zarr 3 (local, fsspec,
    obstore, Icechunk, your own), in any thread or event loop that works for a task. Only
    transferred bytes count, so a file in fsspec's own cache adds nothing. A task is *Waiting for
    storage* while any of its requests is in progress and no thread computes for it.

    Metadata requests of fsspec (listing, sizes), and requests of coroutine tasks and of threads
    that a task starts, are not recorded. Nor are requests of libraries without hooks: file systems
    of Arrow, HDF5 and netCDF on local files, GDAL, and obstore without Zarr. For these libraries,
    `hot_lines` shows the line, and `processes_resource_usage` the bytes of the process.

    For disks, the kernel counts bytes that come from a block device or will be written to one.
    Reading a file from the page cache adds nothing. A written file counts even if it is removed at
    once. The kernel's counters are read after task runs of at least 1 ms. They may include the
    bytes of shorter task runs on the same thread in the previous 0.1 s.
    """
    rows, (codes, names) = run.storage, run.keys.functions()
    counts = rows[["reads", "writes", "unsized", "read_size", "write_size"]].astype(float)
    rows = rows[(counts > 0).any(axis=1).to_numpy(dtype=bool)]
    keys = rows["key_id"].to_numpy(dtype=np.int64)
    function = [str(names[code]) for code in codes[keys].tolist()]
    protocol = known_texts(rows["protocol"])
    codes, pairs = pd.factorize(pd.Series(list(zip(function, protocol, strict=True)), dtype=object))
    groups = Groups(codes, len(pairs))
    on_disk = np.array([pair[1] == _DISK for pair in pairs], dtype=bool)

    def total(name: str, *, of_calls: bool = True) -> Array:
        sums = groups.sum(rows[name].to_numpy(dtype=float))
        return np.where(on_disk & of_calls, np.nan, sums)

    read, written = (total(name, of_calls=False) for name in ("read_size", "write_size"))
    seconds = total("reading") + total("writing")
    reads, writes = total("reads"), total("writes")
    table = pd.DataFrame(
        {
            "Function": known_texts(pd.Series([pair[0] for pair in pairs], dtype=object)),
            "Storage": known_texts(pd.Series([pair[1] for pair in pairs], dtype=object)),
            "Task Runs": groups.sizes,
            "Reads": integers(reads),
            "Read (MB)": read / 1e6,
            "Reading (s)": total("reading"),
            "Mean Read (MB)": ratio(read, reads) / 1e6,
            "Writes": integers(writes),
            "Written (MB)": written / 1e6,
            "Writing (s)": total("writing"),
            "Mean Write (MB)": ratio(written, writes) / 1e6,
            "Unsized Calls": integers(total("unsized")),
        }
    )
    order = np.lexsort((-(read + written), -np.nan_to_num(seconds)))
    return table.take(order).reset_index(drop=True)


By = Literal["worker", "function"]
_ENDS = ["From Host", "From Worker", "To Host", "To Worker"]


def _pair_sums(run: Run, by: By = "worker") -> GroupSums:
    """Return the sums of messages in a time window by pair of workers."""
    workers, table = run.named, run.transfers
    places, count = list(workers.places), max(len(workers), 1)
    sources = table["source"].cat
    codes = sources.codes.to_numpy(dtype=np.int64) * count + workers.numbers(table)
    pairs, distinct = pd.factorize(codes)
    known = zip(run.workers["address"], workers.of_lives.tolist(), strict=True)
    place_of = {address: places[number] for address, number in known}
    # The address of a worker without a recorded label is shown as its label.
    starts = [place_of.get(address, ("", address)) for address in [*sources.categories, ""]]
    names = [(*starts[pair // count], *places[pair % count]) for pair in distinct.tolist()]
    succeeded = succeeded_rows(table)
    size, seconds = amounts(table, succeeded)
    summed = {
        "size": size,
        "seconds": seconds,
        "failed": (~succeeded).astype(float),
        "keys": table["keys"].to_numpy(dtype=float) * succeeded,
        "network": table["network"].to_numpy(dtype=float),
        "deserialize": table["deserialize"].to_numpy(dtype=float),
    }
    return GroupSums.by_name(names, Groups(pairs, len(distinct)), summed)


def _of_pairs(_: Run, parts: Sequence[GroupSums], by: By = "worker") -> pd.DataFrame:
    """Return the table of transfers by pair, from the sums of all time windows."""
    sums = GroupSums.merged(parts)
    names = np.array(sums.names, dtype=object).reshape(-1, len(_ENDS))
    columns = {
        **{label: text(names[:, index]) for index, label in enumerate(_ENDS)},
        "Transfers": sums.rows,
        "Keys": sums.sum("keys").astype(np.int64),
        "Size (MB)": sums.sum("size") / 1e6,
        "Time (s)": sums.sum("seconds"),
        "Bandwidth (MB/s)": ratio(sums.sum("size"), sums.sum("seconds")) / 1e6,
        "Network (s)": sums.sum("network"),
        "Deserialize (s)": sums.sum("deserialize"),
        "Failed": sums.sum("failed").astype(np.int64),
    }
    return _by_size(pd.DataFrame(columns))


@question(
    "Transfers between workers", "balance", in_parts=InParts(_pair_sums, _of_pairs, by=("worker",))
)
def transfers(run: Run, by: By = "worker") -> pd.DataFrame:
    """Sum up the transfers between workers.

    Parameters
    ----------
    by
        ``"worker"`` for pairs of workers, or ``"function"`` that produced the transferred results.
        P2P shuffles are in neither of them.

    Returns
    -------
    DataFrame
        By worker, one row per pair, sorted by bytes in descending order:

        - ``From Host``, ``From Worker``, ``To Host``, ``To Worker``
        - ``Transfers`` (number of messages), ``Keys``, ``Size (MB)``
        - ``Time (s)``: total over messages, including concurrent ones
        - ``Bandwidth (MB/s)``: size divided by time
        - ``Network (s)``: including serialization by the sender
        - ``Deserialize (s)``
        - ``Failed``: messages without data (busy, missing, failed). Their time does not count

        By function, one row each, sorted by bytes in descending order. The time of a
        message is divided among its keys by size:

        - ``Function``
        - ``Keys Moved``, and ``Moves`` (of one key to one worker)
        - ``Size (MB)``, ``Share of Size (%)``, ``Time (s)``, ``Bandwidth (MB/s)``
        - ``Serialize (s)``: the part of the time that serialized results, if this took at least 1
          ms of CPU or 20 ms. NA if not recorded
        - ``Deserialize (s)``: the part of the time that deserialized results
        - ``Moved Again (MB)``: size of all moves after the first move of each key
    """
    if by == "function":
        return _by_function(run, *run.keys.functions())
    return _of_pairs(run, [_pair_sums(run)])


def _by_function(run: Run, codes: Array, names: list[str]) -> pd.DataFrame:
    moved = moved_outputs(run, codes, len(names))
    table = pd.DataFrame(
        {
            "Function": text(names),
            "Keys Moved": moved.keys,
            "Moves": moved.moves,
            "Size (MB)": moved.size / 1e6,
            "Share of Size (%)": ratio(moved.size, moved.total) * 100,
            "Time (s)": moved.seconds,
            "Bandwidth (MB/s)": ratio(moved.size, moved.seconds) / 1e6,
            "Serialize (s)": moved.serialising,
            "Deserialize (s)": moved.deserialising,
            "Moved Again (MB)": moved.again / 1e6,
        }
    )
    return _by_size(table.take(np.flatnonzero(moved.moves)))


def _by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table sorted by size in descending order, then by names."""
    named = [table[label].to_numpy(dtype=str) for label in table if table[label].dtype == object]
    order = np.lexsort([*reversed(named), -table["Size (MB)"].to_numpy()])
    return table.take(order).reset_index(drop=True)
