"""What was moved: between workers, and from and to storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.model.transfers import amounts, moved_outputs, succeeded_rows
from dasfprof.analysis.numeric.groups import Groups, GroupSums, ratio
from dasfprof.analysis.numeric.intervals import Intervals
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import NamedWorkers
from dasfprof.analysis.tables.columns import INTERVAL, known_texts, text, whole
from dasfprof.analysis.tables.questions import NO_PARTS, InParts, question
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

# --- What functions read from storage and wrote to it ---------------------------------------------

#: What the protocol of local disks is called.
_DISK = "disk"


@question(
    "What functions read from storage and wrote to it",
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
        A row a function and store, those with most seconds first, then those with most bytes:

        - ``Function``; ``Storage``: the protocol, as a file system of fsspec calls itself (s3, gs,
          https, ...); of stores of Zarr 3 also file, memory, zip, ...; disk: the disks of the
          workers' hosts
        - ``Task Runs`` that moved anything
        - ``Reads``, ``Read (MB)``, ``Reading (s)``: requests, the outermost of those within one
          another, their bytes, and the seconds of all, those side by side as well; ``Mean Read
          (MB)``: bytes of a request; NA of disks, but for the bytes
        - ``Writes``, ``Written (MB)``, ``Writing (s)``, ``Mean Write (MB)``
        - ``Unsized Calls``: whose bytes are unknown, and not among these: failed ones, copies of
          directories, and those that were in progress when their task run ended

    Notes
    -----
    Requests are those of files and file systems of fsspec and of stores of Zarr 3 (local, fsspec,
    obstore, Icechunk, your own), in whichever thread or event loop they run for a task. Bytes are
    those that came or went: a file that fsspec has in its own cache counts nothing. While any
    request of a task is in progress, and no thread computes for it, it is *Waiting for storage*.

    Left out are metadata requests of fsspec (listing, sizes), coroutine tasks, threads that a task
    starts by itself, and libraries that offer no place to count in: file systems of Arrow, HDF5
    and netCDF on local files, GDAL, and obstore without Zarr. Of these, `hot_lines` has the line,
    and `processes_resource_usage` the bytes that the process moved.

    Of disks the kernel counts what came from a block device or will be written to one: a file that
    is in its cache is read for nothing, and one that is written counts even if it is removed at
    once. It is asked after runs of a millisecond or more; what shorter ones moved in the 0.1 s
    before such a run, on its thread, may count as its own.
    """
    rows, (codes, names) = run.storage, run.keys.functions()
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
            "Reads": whole(reads),
            "Read (MB)": read / 1e6,
            "Reading (s)": total("reading"),
            "Mean Read (MB)": ratio(read, reads) / 1e6,
            "Writes": whole(writes),
            "Written (MB)": written / 1e6,
            "Writing (s)": total("writing"),
            "Mean Write (MB)": ratio(written, writes) / 1e6,
            "Unsized Calls": whole(total("unsized")),
        }
    )
    order = np.lexsort((-(read + written), -np.nan_to_num(seconds)))
    return table.take(order).reset_index(drop=True)


# --- What was moved between workers: how much, how fast, of which function, and how often ---------

By = Literal["worker", "host", "function", "step", "time", "shuffle"]
_ENDS = ["From Host", "From Worker", "To Host", "To Worker"]


def _pair_sums(run: Run, by: By = "worker") -> GroupSums:
    """Sum up messages by pair of workers or hosts."""
    workers = run.named
    if by == "shuffle":
        table = run.shuffle_messages
        hosts, labels, target = _others(run, workers, table["target"])
        source = workers.numbers(table)
    else:
        table = run.transfers
        hosts, labels, source = _others(run, workers, table["source"])
        target = workers.numbers(table)
    if by == "host":
        codes, hosts = pd.factorize(hosts)
        source, target = codes[source], codes[target]
    pairs, distinct = pd.factorize(source * max(len(hosts), 1) + target)
    from_, to = np.divmod(distinct.astype(np.int64), max(len(hosts), 1))
    ends = [hosts[from_], labels[from_], hosts[to], labels[to]]
    if by == "host":
        ends = ends[::2]
    names = list(zip(*(end.tolist() for end in ends), strict=True))
    succeeded = succeeded_rows(table)
    size, seconds = amounts(table, succeeded)
    summed = {"size": size, "seconds": seconds, "failed": (~succeeded).astype(float)}
    if by != "shuffle":
        summed["keys"] = table["keys"].to_numpy(dtype=float) * succeeded
        summed["network"] = table["network"].to_numpy(dtype=float)
        summed["deserialize"] = table["deserialize"].to_numpy(dtype=float)
    return GroupSums.of(names, Groups(pairs, len(distinct)), summed)


def _of_pairs(parts: Sequence[GroupSums], by: By) -> pd.DataFrame:
    """Make the table of the sums of all parts."""
    sums = GroupSums.merged(parts)
    labels = ["From Host", "To Host"] if by == "host" else _ENDS
    names = np.array(sums.names, dtype=object).reshape(-1, len(labels))
    counts = {"Messages" if by == "shuffle" else "Transfers": sums.rows}
    times = {}
    if by != "shuffle":
        counts["Keys"] = sums.sum("keys").astype(np.int64)
        times = {"Network (s)": sums.sum("network"), "Deserialize (s)": sums.sum("deserialize")}
    columns = {
        **{label: text(names[:, place]) for place, label in enumerate(labels)},
        **counts,
        "Size (MB)": sums.sum("size") / 1e6,
        "Time (s)": sums.sum("seconds"),
        "Bandwidth (MB/s)": ratio(sums.sum("size"), sums.sum("seconds")) / 1e6,
        **times,
        "Failed": sums.sum("failed").astype(np.int64),
    }
    return _by_size(pd.DataFrame(columns))


def _time_sums(run: Run, interval: float | None) -> tuple[Array, Array, Array]:
    """Return the transfers that began in each interval, and bytes and seconds spread over all."""
    table = run.transfers
    intervals = Intervals.of_span(run.begin, run.end, interval)
    start = table["start"].to_numpy()
    timed = np.isfinite(start)
    size, seconds = amounts(table, succeeded_rows(table))
    start, size, seconds = start[timed], size[timed], seconds[timed]
    return (
        np.bincount(intervals.places(start), minlength=intervals.count),
        intervals.spread(start, seconds, size),
        intervals.spread(start, seconds, seconds),
    )


def _over_time(
    run: Run, parts: Sequence[tuple[Array, Array, Array]], interval: float | None
) -> pd.DataFrame:
    intervals = Intervals.of_span(run.begin, run.end, interval)
    began, moved, spent = (np.sum(found, axis=0) for found in zip(*parts, strict=True))
    return pd.DataFrame(
        {
            INTERVAL: intervals.starts(),
            "Transfers": began,
            "Size (MB)": moved / 1e6,
            "Time (s)": spent,
            "Bandwidth (MB/s)": ratio(moved, spent) / 1e6,
            "Throughput (MB/s)": moved / 1e6 / intervals.seconds,
        }
    )


def _check_interval(by: By, interval: float | None) -> None:
    if interval is not None and by != "time":
        raise InvalidArgumentError(f"interval={interval!r} is for by='time', not for by={by!r}.")


def _of_part(run: Run, by: By = "worker", *, interval: float | None = None) -> Any:
    _check_interval(by, interval)
    return _time_sums(run, interval) if by == "time" else _pair_sums(run, by)


def _combined(
    run: Run, parts: Sequence[Any], by: By = "worker", *, interval: float | None = None
) -> pd.DataFrame:
    return _over_time(run, parts, interval) if by == "time" else _of_pairs(parts, by)


@question(
    "What was moved between workers",
    "balance",
    in_parts=InParts(_of_part, _combined, by=("worker", "host", "time", "shuffle")),
)
def transfers(run: Run, by: By = "worker", *, interval: float | None = None) -> pd.DataFrame:
    """Sum up what was moved between workers.

    Parameters
    ----------
    by
        ``"worker"`` or ``"host"`` (pairs of them), ``"function"`` or ``"step"`` (whose outputs
        were moved), ``"time"``; ``"shuffle"``: what P2P shuffles moved, which is in none of the
        others.
    interval
        By time, seconds; None chooses a length that gives 60 intervals at most.

    Returns
    -------
    DataFrame
        By pair a row each, the most bytes first: ``From Host``, ``From Worker``, ``To Host``,
        ``To Worker``, ``Transfers`` (messages), ``Keys``, ``Size (MB)``, ``Time (s)`` (summed
        over messages, side by side ones too), ``Bandwidth (MB/s)`` (size by time), ``Network
        (s)`` (with the sender's serialising), ``Deserialize (s)``, ``Failed`` (messages that
        brought nothing: busy, missing, failed; their time does not count).

        By function or step, the most bytes first: ``Function`` or ``Step``, ``Keys Moved``,
        ``Moves`` (of a key to a worker), ``Size (MB)``, ``Share of Size (%)``, ``Time (s)``,
        ``Bandwidth (MB/s)``; within the time ``Serialize (s)``, of results of which that took a
        millisecond of CPU or 20 ms (NA: not recorded), and ``Deserialize (s)``; ``Keys Moved More
        than Once``, ``Moved Again (MB)`` (beyond each key's first move), ``Moved Again to the Same
        Worker (MB)``. A message is shared out to its keys by their sizes.

        By time: ``Time Interval (seconds from begin)``, ``Transfers`` (that began),
        ``Size (MB)``, ``Time (s)``, ``Bandwidth (MB/s)``, and ``Throughput (MB/s)`` (size by
        the interval). A message counts evenly over its time.

        By shuffle, a row each pair, the most bytes first: ``From Host``, ``From Worker``, ``To
        Host``, ``To Worker``, ``Messages``, ``Size (MB)``, ``Time (s)`` (until the receiver had
        split them up and handed them to its disk or memory), ``Bandwidth (MB/s)``, ``Failed``.
        None of shuffles whose messages were not recorded; `Trace.notes` tell of them.
    """
    _check_interval(by, interval)
    if by == "function":
        return _by_output(run, "Function", *run.keys.functions())
    if by == "step":
        of_runs, names = step_groups(run.tasks)
        codes = np.full(len(run.keys), len(names) - 1, dtype=np.int64)
        codes[run.tasks["key_id"].to_numpy()] = of_runs  # of the last run of each key
        return _by_output(run, "Step", codes, names)
    if by == "time":
        return _over_time(run, [_time_sums(run, interval)], interval)
    return _of_pairs([_pair_sums(run, by)], by)


def _others(run: Run, workers: NamedWorkers, column: pd.Series[Any]) -> tuple[Array, Array, Array]:
    """Return all hosts and labels, those of unknown workers too, and the number of each address."""
    hosts, labels = list(workers.hosts), list(workers.labels)
    known = {
        address: number
        for address, number in zip(run.workers["address"], workers.of_lives, strict=True)
        if address is not None
    }
    numbers = []
    for address in [*column.cat.categories, ""]:
        if address not in known:
            known[address] = len(hosts)
            hosts.append(_host(address))
            labels.append(address)
        numbers.append(known[address])
    codes = np.array(numbers, dtype=np.int64)[column.cat.codes.to_numpy()]
    return np.array(hosts, dtype=object), np.array(labels, dtype=object), codes


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address


def _by_output(run: Run, label: str, codes: Array, names: list[str]) -> pd.DataFrame:
    moved = moved_outputs(run, codes, len(names))
    table = pd.DataFrame(
        {
            label: text(names),
            "Keys Moved": moved.keys,
            "Moves": moved.moves,
            "Size (MB)": moved.size / 1e6,
            "Share of Size (%)": ratio(moved.size, np.full(len(names), moved.total)) * 100,
            "Time (s)": moved.seconds,
            "Bandwidth (MB/s)": ratio(moved.size, moved.seconds) / 1e6,
            "Serialize (s)": moved.serialising,
            "Deserialize (s)": moved.deserialising,
            "Keys Moved More than Once": moved.keys_moved_again,
            "Moved Again (MB)": moved.again / 1e6,
            "Moved Again to the Same Worker (MB)": moved.again_to_the_same / 1e6,
        }
    )
    return _by_size(table.take(np.flatnonzero(moved.moves)))


def _by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Sort by size, the largest first; equal ones by their names."""
    named = [table[label].to_numpy(dtype=str) for label in table if table[label].dtype == object]
    order = np.lexsort([*reversed(named), -table["Size (MB)"].to_numpy()])
    return table.take(order).reset_index(drop=True)
