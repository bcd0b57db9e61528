"""DASF's own profiler writes its files into the directory of a run, before and while it goes on."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import msgpack
from clusters import new_client
from distributed.diagnostics.plugin import WorkerPlugin

import dasfprof


class AsDasf(WorkerPlugin):
    """Writes a file in DASF's format: for each task 8 bytes of length and a msgpack map."""

    name = "r-TracePlugin"

    def __init__(self, path: Path) -> None:
        self.path = path

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if finish == "memory":
            write_dasf(self.path, key)


def write_dasf(path: Path, key: str) -> None:
    args = {"key": key, "state": "memory", "size": 8, "tasks": 1}
    fields = {"name": "Managed Memory", "timestamp": time.monotonic(), "phase": "I", "args": args}
    packed = msgpack.packb({**fields, "scope": "g", "process_id": "h", "thread_id": "worker-h-0"})
    with path.open("ab") as file:
        file.write(struct.pack(">Q", len(packed)) + packed)


def test_a_run_is_read_beside_files_of_dasf(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    write_dasf(there / "traces-1a2b3c4d.msgpack", "before-1")
    (there / "empty-TracePlugin-h.msgpack").touch()  # DASF makes the file before it writes
    with new_client(n_workers=1, threads_per_worker=1, processes=False) as client:
        client.register_plugin(AsDasf(there / "r-TracePlugin-h.msgpack"))
        with dasfprof.profile(client, name="r", add_time_suffix=False, directory=there) as run:
            assert client.submit(abs, -1, key="abs-1").result() == 1
            assert "4 files" in repr(run)
            collected = run.collect(here)
    assert (there / "r-TracePlugin-h.msgpack").stat().st_size > 0
    for files in (run.files(), collected):
        plugins = sorted(path.name.split("-")[1] for path in files)
        assert plugins == ["ResourceMonitor", "SchedulerPlugin", "StepRecorder", "TracePlugin"]
    assert "stopped, 4 files" in repr(run)
    assert run.analyser().trace.keys.texts(run.analyser().trace.tasks["key_id"]).tolist() == [
        "abs-1"
    ]
