"""Reading of traces in tests of recording, and comparison with an independent record."""

from collections.abc import Iterable
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from dask.utils import key_split

from dasfprof.database.reader import TraceFile

#: Tolerance (s) of times, which are exact except for adding and subtracting the delay.
NOISE = 2e-6


def trace_files(source: Any, plugin: str) -> list[TraceFile]:
    """Open a run's files of a plugin; `source` is a run, or a directory with one run."""
    paths = source.files() if hasattr(source, "files") else sorted(Path(source).glob("*.msgpack"))
    return [TraceFile(path) for path in paths if f"-{plugin}-" in path.name]


def facts(source: Any, plugin: str, name: str) -> list[dict[str, Any]]:
    """Return args and times of all events with a name. `address` is that of the writing worker."""
    rows = []
    for file in trace_files(source, plugin):
        batches = (batch.events() for batch in file.batches() if batch.name == name)
        for _, event in chain.from_iterable(sorted(each, key=itemgetter(0)) for each in batches):
            times = {"timestamp": event.timestamp, "duration": getattr(event, "duration", 0.0)}
            address = file.header.get("worker", {}).get("address")
            rows.append({**event.args, **times, "thread_id": event.thread_id, "address": address})
    return rows


def computed(source: Any) -> list[dict[str, Any]]:
    return facts(source, "TracePlugin", "Compute")


def delays(source: Any) -> dict[str, set[float]]:
    """Return Dask's corrections of each worker's clock by address."""
    known: dict[str, set[float]] = {}
    for row in facts(source, "TracePlugin", "Clock"):
        known.setdefault(row["address"], set()).add(row["scheduler_delay"])
    return known


def read(path: Path) -> TraceFile:
    """Read a file completely, so that damage is detected."""
    file = TraceFile(path)
    for _ in file.batches():
        pass
    return file


def assert_whole(source: Any) -> None:
    """Assert that all files of the run are closed and undamaged, and no events were dropped."""
    for path in source.files():
        file = read(path)
        assert file.end is not None, path
        assert not file.damage, path
        assert (file.errors, file.dropped) == (0, 0), path


def without_texts(keys: Iterable[Any]) -> set[str]:
    """Return keys without texts, as they are recorded for tasks of other clients."""
    return {key for key in keys if isinstance(key, str) and key.startswith("other-clients-")}


def assert_same_runs(source: Any, expected: list[dict[str, Any]], others: int = 0) -> None:
    """Assert that the trace has exactly these task runs, with names, times, sizes and workers.

    The expected task runs are those of `independent_record`, where None means unknown. In addition,
    the trace holds `others` task runs of other clients.
    """
    states = {"error": "erred"}
    hidden = without_texts(row["key"] for row in computed(source))
    assert len(hidden) == others
    recorded = [row for row in computed(source) if row["key"] not in hidden]
    by_run = {(row["key"], row["run_id"]): row for row in recorded}
    wanted = {(row["key"], row["run_id"]): row for row in expected}
    assert len(wanted) == len(expected)
    assert by_run.keys() == wanted.keys()
    assert len(recorded) == len(expected)
    clocks = delays(source)
    for run, want in wanted.items():
        row = by_run[run]
        assert row["name"] == key_split(row["key"])
        assert type(row["key"]) is type(want["key"])
        assert row["state"] == states.get(want["finish"], want["finish"])
        assert row["address"] == want["worker"]
        assert row["duration"] >= 0
        if want.get("nbytes") is not None:
            assert row["size"] == want["nbytes"]
        if want.get("thread") is not None and row["thread"] is not None:
            assert row["thread"] == want["thread"]
        if want["start"] is not None:
            assert abs(row["duration"] - (want["stop"] - want["start"])) < NOISE
            shifted = [row["timestamp"] + delay for delay in clocks[row["address"]]]
            assert min(abs(start - want["start"]) for start in shifted) < NOISE
        known = [row[name] for name in ("received", "ready", "executing") if row[name] is not None]
        known += [row["timestamp"], row["timestamp"] + row["duration"], row["done"]]
        assert known == sorted(known)


def frames_of(source: Any, plugin: str, row: dict[str, Any]) -> list[list[Any]]:
    """Return the frames of a row's stack, outermost first. Each part must be written once."""
    parts: dict[int, list[dict[str, Any]]] = {}
    for one in facts(source, plugin, "Stack"):
        if one["thread_id"] == row["thread_id"]:
            parts.setdefault(one["number"], []).append(one)
    frames: list[list[Any]] = []
    number = row["stack"]
    while number >= 0:
        (part,) = parts[number]
        frames[:0] = part["frames"]
        number = part["parent"]
    return frames
