"""Small run with all kinds of exported data, and reading of its export."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opened_pages import BEGIN, EVENTS, LOAD, compute, of_worker
from traces import write_trace

from dasfprof import CompleteEvent, InstantEvent, TraceAnalyser, export
from dasfprof.schema.events import Event


def at_scheduler(event: str, time: float, **args: Any) -> InstantEvent:
    """Return an event of the scheduler; the time is relative to `BEGIN`."""
    return InstantEvent(event, BEGIN + time, process_id="head", thread_id="scheduler", args=args)


def transfer(start: float, seconds: float, worker: int, *keys: Any) -> CompleteEvent:
    """Return a "Transfer" event; times are relative to `BEGIN`."""
    args = {"source": "tcp://node:1", "keys": list(keys), "size": 2_000_000, "state": "success"}
    args |= {"network": seconds / 2, "deserialize": 0.0}
    return CompleteEvent("Transfer", BEGIN + start, seconds, **of_worker(worker, args))


def call(start: float, seconds: float, method: str, state: str = "success") -> CompleteEvent:
    """Return an "Actor Call" event of worker 1's actor; times are relative to `BEGIN`."""
    args = {"key": "Counter-5", "method": method, "state": state}
    return CompleteEvent("Actor Call", BEGIN + start, seconds, **of_worker(1, args))


#: Events in addition to those of the report's tests: parallel transfers, actor calls and
#: coroutines, a key that runs twice, a graph, and a worker that joins and leaves.
MORE_EVENTS = (
    *EVENTS,
    transfer(3.2, 0.5, 0, (LOAD, 1)),
    transfer(3.3, 0.6, 0, (LOAD, 1), ("nobody", 1)),
    call(4.0, 0.5, "add"),
    call(4.25, 0.5, "get", "failed"),
    compute("co-1", 5.0, 1.0, 1, thread=None),
    compute("co-2", 5.5, 1.0, 1, thread=None),
    compute("again-1", 7.0, 0.1, 1, run_id=1),
    compute("uses-1", 7.2, 0.1, 1, dependencies=["again-1"]),
    compute("again-1", 7.4, 0.1, 1, run_id=2),
    compute("uses-2", 7.6, 0.1, 1, dependencies=["again-1"]),
    at_scheduler("Graph", 0.5, client="Client-1", tasks=6, wanted=2, stimulus="update-graph-1"),
    at_scheduler("Worker Added", 0.25, worker="tcp://node:9", name="late", host="node", nthreads=1),
    at_scheduler("Worker Removed", 9.0, worker="tcp://node:9", reason="retired"),
)


def analyser_of(directory: Path, events: Sequence[Event] = MORE_EVENTS) -> TraceAnalyser:
    path = directory / "mine-TracePlugin-node-0.msgpack"
    return TraceAnalyser(write_trace(path, *events), progress=False)


class ChromeTrace:
    """Exported Chrome trace, read with the standard library alone."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
        self.document = json.loads(text)
        self.events: list[dict[str, Any]] = self.document["traceEvents"]
        self.processes, self.tracks = {}, {}
        for event in self.events:
            if event["name"] == "process_name":
                self.processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                self.tracks[event["pid"], event["tid"]] = event["args"]["name"]

    @classmethod
    def of(cls, analyser: TraceAnalyser, path: Path) -> ChromeTrace:
        return cls(export(analyser, path, to="perfetto", title="my run"))

    def of_kind(self, phase: str, kind: str) -> list[dict[str, Any]]:
        return [
            event
            for event in self.events
            if event["ph"] == phase and kind in event.get("cat", "").split(",")
        ]

    def track(self, event: dict[str, Any]) -> str:
        return self.tracks[event["pid"], event["tid"]]

    def holder(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the slice that contains an end of an arrow, as viewers do."""
        found = [
            slice_
            for slice_ in self.events
            if slice_["ph"] == "X"
            and (slice_["pid"], slice_["tid"]) == (event["pid"], event["tid"])
            and slice_["ts"] <= event["ts"] < slice_["ts"] + slice_["dur"]
        ]
        assert len(found) == 1, (event, found)
        return found[0]

    def arrows(self, kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the source and target slices of each arrow."""
        ends = {event["id"]: event for event in self.of_kind("f", kind)}
        begins = self.of_kind("s", kind)
        assert len(begins) == len(ends) == len({event["id"] for event in begins})
        assert all(ends[event["id"]]["bp"] == "e" for event in begins)
        return [(self.holder(event), self.holder(ends[event["id"]])) for event in begins]
