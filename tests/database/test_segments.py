"""Files of long runs: readers treat segments as one file, and windows read only what they need."""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import trace_by_format
from pandas.testing import assert_frame_equal
from traces import row

from dasfprof import FileDatabase, TraceAnalyser, open_run
from dasfprof.database import find_runs
from dasfprof.database.writer import Source
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.tasks import COMPUTE

BEGIN = 1.79e9
LABEL = "worker-node-0"
#: Bytes of a segment: a few blocks, which are all similar.
SMALL = 1500
HEADER = {
    "plugin": "TracePlugin",
    "run": "week",
    "host": "node",
    "run_uuid": "5e6" * 10,
    "worker": {"id": LABEL, "name": 0, "address": "tcp://0", "label": LABEL, "nthreads": 1},
}


def compute(number: int) -> tuple[Any, ...]:
    """Return a task run of 1.5 s that starts at second `number`."""
    values = {"key": ("f", number), "name": "f", "run_id": number, "state": "memory", "size": 8}
    return row(COMPUTE, timestamp=BEGIN + number, duration=1.5, **values)


def write(directory: Path, segment_size: int, count: int = 2000, lost: int = 0) -> list[Path]:
    """Write task runs in blocks of one hundred, with more dropped events each; return the files."""
    database = FileDatabase(
        directory / "week-TracePlugin-node-0.msgpack",
        flush_interval=3600,
        new=True,
        header=HEADER,
        segment_size=segment_size,
    )
    source = Source.from_schema(COMPUTE, {"process_id": "node", "thread_id": LABEL})
    database.writer.add_source(source)
    for first in range(0, count, 100):
        source.rows.extend(map(compute, range(first, first + 100)))
        if lost:
            database.writer.losses.add("too fast", lost)
        database.commit()
    database.close()
    return database.paths


def starts(source: Any) -> list[float]:
    """Return the starts of the task runs of a source, in seconds after the first one."""
    tasks = TraceAnalyser(source, progress=False).trace.tasks
    return [float(start) - BEGIN for start in tasks["start"]]


def notes(source: Any, kind: str) -> list[str]:
    """Return the texts of the data notes of a kind."""
    trace = TraceAnalyser(source, progress=False).trace
    return [note.text for note in trace.notes if note.kind == kind]


def test_segments_are_one_worker_and_one_run(tmp_path: Path) -> None:
    (one,), many = write(tmp_path / "one", 0), write(tmp_path / "many", SMALL)
    assert len(many) > 3
    assert many[1].name == "week-TracePlugin-node-0.segment0002.msgpack"
    assert [len(run.files) for run in find_runs(tmp_path / "many")] == [len(many)]

    whole = TraceAnalyser(one, progress=False).trace
    trace = TraceAnalyser(tmp_path / "many", progress=False).trace
    assert_frame_equal(trace.tasks, whole.tasks)
    assert trace.workers["closed"].tolist() == [True]
    assert trace.recording == whole.recording
    assert [note.kind for note in trace.notes] == [note.kind for note in whole.notes]

    # Each segment is a valid file.
    assert [start for path in many for start in times_of(path)] == [
        BEGIN + number for number in range(2000)
    ]
    first, *_ = contents = [trace_by_format.read(path.read_bytes()) for path in many]
    assert [each.frames[0].get("segment") for each in contents] == [None, *range(2, len(many) + 1)]
    *_, index, end = first.frames
    assert (index["kind"], end["kind"], end["continues"]) == ("index", "end", True)
    assert many[0].read_bytes()[end["index"] :].startswith(trace_by_format.MARKER)
    assert [block[1:] for block in index["blocks"][:2]] == [
        ["Compute", BEGIN, BEGIN + 100.5],
        ["Compute", BEGIN + 100, BEGIN + 200.5],
    ]


def times_of(path: Path) -> list[float]:
    """Return the starts of a file's events with the reader written from FORMAT.md alone."""
    contents = trace_by_format.read(path.read_bytes())
    assert not contents.damaged
    return [fields["timestamp"] for _, _, _, fields, _ in contents.events]


@pytest.mark.parametrize("segment_size", [0, SMALL])
@pytest.mark.parametrize(("begin", "end"), [(500.2, 700.0), (-5.0, 3.0), (1999, 1e9), (9e3, 1e4)])
def test_a_window_has_what_overlaps_it(
    tmp_path: Path, segment_size: int, begin: float, end: float
) -> None:
    write(tmp_path, segment_size)
    window = open_run(tmp_path, between=(BEGIN + begin, BEGIN + end))
    expected = [float(n) for n in range(2000) if n <= end and n + 1.5 >= begin]
    assert starts(window) == expected


def test_other_blocks_are_not_read(tmp_path: Path) -> None:
    _, second, *_ = write(tmp_path, SMALL)
    data = bytearray(second.read_bytes())
    data[-600:-550] = bytes(50)
    second.write_bytes(bytes(data))
    assert notes(tmp_path, "damaged-file")
    assert not notes(open_run(tmp_path, between=(BEGIN, BEGIN + 10)), "damaged-file")


def test_a_window_says_what_it_cuts(tmp_path: Path) -> None:
    write(tmp_path, 0)
    times = [datetime.fromtimestamp(BEGIN + at, timezone.utc) for at in (100.25, 200.75)]
    trace = TraceAnalyser(open_run(tmp_path, between=times), progress=False).trace
    (note,) = [note.text for note in trace.notes if note.kind == "window"]
    # The task runs of seconds 99 and 100 started before. Those of 199 and 200 end at 200.5 and
    # 201.5.
    assert "2 task runs began before it, 1 ended after it" in note
    assert (trace.begin, trace.end) == (BEGIN + 99, BEGIN + 201.5)
    as_texts = [time.strftime("%Y-%m-%d %H:%M:%S.%f") for time in times]
    assert starts(open_run(tmp_path, between=as_texts)) == starts(open_run(tmp_path, between=times))


@pytest.mark.parametrize("between", [(2.0, 1.0), (1.0,), ("yesterday", "today"), "ab", (None, 1)])
def test_a_window_that_is_none(tmp_path: Path, between: Sequence[Any]) -> None:
    write(tmp_path, 0, 100)
    with pytest.raises(InvalidArgumentError, match="between="):
        open_run(tmp_path, between=between)


def test_missing_segments_are_named_and_the_rest_is_used(tmp_path: Path) -> None:
    files = write(tmp_path, SMALL)
    of_files = [len(times_of(path)) for path in files]
    files[1].unlink()
    files[-1].unlink()
    middle, last = notes(tmp_path, "segment-missing")
    assert "segment 2 is missing" in middle
    assert f"segment {len(files)} and its successors are missing" in last
    assert len(starts(tmp_path)) == sum(of_files) - of_files[1] - of_files[-1]
    assert TraceAnalyser(tmp_path, progress=False).trace.workers["closed"].tolist() == [False]


def test_losses_are_counted_in_the_segment_in_which_they_were(tmp_path: Path) -> None:
    paths = write(tmp_path, segment_size=1, count=400, lost=3)
    assert len(paths) > 2
    files = [FileDatabase(path).trace_file() for path in paths]
    for file in files:
        list(file.batches())
    assert sum(file.dropped for file in files) == 12
