"""The writer of a trace file sleeps while it has no rows."""

from __future__ import annotations

import time
from pathlib import Path

from clusters import wait_until

from dasfprof import FileDatabase, InstantEvent


def test_a_writer_sleeps_without_rows_and_writes_the_next_in_time(tmp_path: Path) -> None:
    database = FileDatabase(tmp_path / "t.msgpack", flush_interval=0.01)
    for number in range(1, 6):
        database.record(InstantEvent("event", timestamp=float(number)))
        reader = FileDatabase  # another, which does not have the writer write
        wait_until(
            lambda number=number, reader=reader: (
                sum(1 for _ in reader(tmp_path / "t.msgpack").get_traces()) == number
            )
        )
        wait_until(lambda: database.writer._asleep)
    before = database.writer._steps
    time.sleep(0.3)
    assert database.writer._asleep
    assert database.writer._steps == before
    database.close()
