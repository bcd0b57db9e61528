"""Files of long runs come home in segments, by the scheduler and by a storage, and are one run."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
from clusters import new_client
from distributed import wait

import dasfprof
from dasfprof.database.multi import was_received

pytestmark = pytest.mark.whole_program


@pytest.mark.parametrize("ship", ["none", "scheduler", "storage"])
def test_segments_come_home(tmp_path: Path, ship: str) -> None:
    directory = f"file://{tmp_path}" if ship == "storage" else str(tmp_path)
    options = {"directory": directory, "ship": ship, "segment_size": "4kB", "commit_threshold": 20}
    keys = []
    with new_client(n_workers=2, threads_per_worker=1) as client:
        with dasfprof.profile(client, max_pending=1000, **options) as run:
            for first in range(0, 400, 100):
                futures = client.map(operator.neg, range(first, first + 100))
                wait(futures)
                keys += [future.key for future in futures]
                run.flush()
        if ship == "scheduler":
            received = {path.name for path in tmp_path.iterdir() if was_received(path)}
            assert sum("segment" in name and "TracePlugin" in name for name in received) >= 2
        trace = run.analyser().trace
    names = [path.name for path in run.files()]
    assert sum("segment" in name for name in names) > 4
    assert sorted(trace.keys.keys(trace.tasks["key_id"].to_numpy())) == sorted(keys)
    assert trace.workers["closed"].dropna().tolist() == [True, True]
    assert not [note for note in trace.notes if note.kind in ("segment-missing", "not-closed")]
