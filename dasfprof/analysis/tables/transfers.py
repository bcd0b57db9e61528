"""What was moved between workers: how much, how fast, of which function, and how often."""

from __future__ import annotations

from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.model.transfers import moved_keys
from dasfprof.analysis.model.workers import NamedWorkers
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.numeric.intervals import INTERVAL, Intervals
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

By = Literal["worker", "host", "function", "step", "time"]


def transfers(trace: Trace, by: By = "worker", interval: float | None = None) -> pd.DataFrame:
    """Sum up transfers; see `TraceAnalyser`."""
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(By))}.")
    if interval is not None and by != "time":
        raise InvalidArgumentError(f"interval={interval!r} is for by='time', not for by={by!r}.")
    if by == "function":
        return _by_output(trace, "Function", *trace.keys.functions())
    if by == "step":
        return _by_output(trace, "Step", *_steps_of_keys(trace))
    if by == "time":
        return _over_time(trace, interval)
    return _by_pair(trace, by)


def _by_pair(trace: Trace, by: By) -> pd.DataFrame:
    table, workers = trace.transfers, NamedWorkers(trace)
    hosts, labels, source = _sources(trace, workers)
    target = workers.numbers(table)
    if by == "host":
        codes, hosts = pd.factorize(hosts)
        source, target = codes[source], codes[target]
    pairs, distinct = pd.factorize(source * max(len(hosts), 1) + target)
    groups = Groups(pairs, len(distinct))
    from_, to = np.divmod(distinct.astype(np.int64), max(len(hosts), 1))
    named = {"From Host": hosts[from_], "From Worker": labels[from_] if by == "worker" else None}
    named |= {"To Host": hosts[to], "To Worker": labels[to] if by == "worker" else None}
    columns = {label: text(names) for label, names in named.items() if names is not None}
    return _by_size(pd.DataFrame({**columns, **_sums(table, groups)}))


def _sums(table: pd.DataFrame, groups: Groups) -> dict[str, Any]:
    succeeded = _succeeded(table)
    size, seconds = _amounts(table, succeeded)
    return {
        "Transfers": groups.sizes,
        "Keys": groups.sum(table["keys"].to_numpy(dtype=float) * succeeded).astype(np.int64),
        "Size (MB)": groups.sum(size) / 1e6,
        "Time (s)": groups.sum(seconds),
        "Bandwidth (MB/s)": ratio(groups.sum(size), groups.sum(seconds)) / 1e6,
        "Network (s)": groups.sum(table["network"].to_numpy(dtype=float)),
        "Deserialize (s)": groups.sum(table["deserialize"].to_numpy(dtype=float)),
        "Failed": groups.sum((~succeeded).astype(float)).astype(np.int64),
    }


def _succeeded(table: pd.DataFrame) -> Array:
    """Tell which transfers brought something; where no state is told they are taken to."""
    state = table["state"]
    succeeded: Array = (state.isna() | (state == "success")).to_numpy(dtype=bool)
    return succeeded


def _amounts(table: pd.DataFrame, succeeded: Array) -> tuple[Array, Array]:
    """Give the bytes and the seconds of the transfers that succeeded, 0 of the others."""
    size, seconds = table["size"].to_numpy(dtype=float), table["duration"].to_numpy(dtype=float)
    return (
        np.where(succeeded & np.isfinite(size), size, 0.0),
        np.where(succeeded & np.isfinite(seconds), np.maximum(seconds, 0.0), 0.0),
    )


def _sources(trace: Trace, workers: NamedWorkers) -> tuple[Array, Array, Array]:
    """Give all hosts and labels, those of unknown senders too, and the number of each sender."""
    hosts, labels = list(workers.hosts), list(workers.labels)
    known = {
        address: number
        for address, number in zip(trace.workers["address"], workers.of_lives, strict=True)
        if address is not None
    }
    column = trace.transfers["source"]
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


def _steps_of_keys(trace: Trace) -> tuple[Array, list[str]]:
    """Number the step of the last run of each key."""
    of_runs, names = step_groups(trace.tasks)
    codes = np.full(len(trace.keys), len(names) - 1, dtype=np.int64)
    codes[trace.tasks["key_id"].to_numpy()] = of_runs
    return codes, names


def _by_output(trace: Trace, label: str, codes: Array, names: list[str]) -> pd.DataFrame:
    succeeded = _succeeded(trace.transfers)
    moves = moved_keys(trace, np.flatnonzero(succeeded))
    groups = Groups(codes[moves.key_id], len(names))
    first, again = moves.first, moves.to_the_same
    repeated = Groups(moves.key_id, len(trace.keys)).sizes > 1
    total = moves.size.sum()
    table = pd.DataFrame(
        {
            label: text(np.array(names, dtype=object)),
            "Keys Moved": groups.sum(first.astype(float)).astype(np.int64),
            "Moves": groups.sizes,
            "Size (MB)": groups.sum(moves.size) / 1e6,
            "Share of Size (%)": ratio(groups.sum(moves.size), np.full(len(names), total)) * 100,
            "Time (s)": groups.sum(moves.seconds),
            "Bandwidth (MB/s)": ratio(groups.sum(moves.size), groups.sum(moves.seconds)) / 1e6,
            "Keys Moved More than Once": groups.sum(
                (first & repeated[moves.key_id]).astype(float)
            ).astype(np.int64),
            "Moved Again (MB)": groups.sum(moves.size * ~first) / 1e6,
            "Moved Again to the Same Worker (MB)": groups.sum(moves.size * again) / 1e6,
        }
    )
    return _by_size(table.take(np.flatnonzero(groups.sizes)))


def _over_time(trace: Trace, interval: float | None) -> pd.DataFrame:
    table = trace.transfers
    intervals = Intervals.of_span(trace.begin, trace.end, interval)
    start = table["start"].to_numpy()
    timed = np.isfinite(start)
    size, seconds = _amounts(table, _succeeded(table))
    start, size, seconds = start[timed], size[timed], seconds[timed]
    moved = intervals.spread(start, seconds, size)
    spent = intervals.spread(start, seconds, seconds)
    return pd.DataFrame(
        {
            INTERVAL: intervals.starts(),
            "Transfers": np.bincount(intervals.places(start), minlength=intervals.count),
            "Size (MB)": moved / 1e6,
            "Time (s)": spent,
            "Bandwidth (MB/s)": ratio(moved, spent) / 1e6,
            "Throughput (MB/s)": moved / 1e6 / intervals.seconds,
        }
    )


def _by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Sort by size, the largest first; equal ones by their names."""
    named = [table[label].to_numpy(dtype=str) for label in table if table[label].dtype == object]
    order = np.lexsort([*reversed(named), -table["Size (MB)"].to_numpy()])
    return table.take(order).reset_index(drop=True)
