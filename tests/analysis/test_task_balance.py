"""The table of tasks in memory, compared with tables by hand."""

from pathlib import Path
from typing import Any

from traces import Plugin, managed, record, row

from dasfprof import TraceAnalyser
from dasfprof.analysis.tables import imbalance
from dasfprof.schema.resources import MANAGED_MEMORY
from dasfprof.schema.tasks import WORKER_REMOVED

INTERVAL = "Time Interval (seconds from begin)"
W0, W1 = "worker-c096-0", "worker-c096-1"


def test_a_second_is_a_second_in_floating_point(tmp_path: Path) -> None:
    assert 128.2 - 127.2 < 1
    events = [managed(127.2, W0, 2), managed(128.2, W0, 3)]
    balance = TraceAnalyser(record(tmp_path / "run", events)).per_worker_task_balance()
    assert balance[W0].tolist() == [2.0, 3.0]


def test_a_worker_that_left_holds_nothing_until_it_is_back(tmp_path: Path) -> None:
    def life(address: str, counts: dict[float, int], name: int = 0) -> None:
        plugin = Plugin(tmp_path / "run", "ResourceMonitor", name=name, address=address)
        rows = [row(MANAGED_MEMORY, timestamp=1.7e9 + t, tasks=n) for t, n in counts.items()]
        plugin.write((MANAGED_MEMORY, rows))

    life("tcp://10.0.0.1:4001", {0.0: 5})
    life("tcp://10.0.0.1:4002", {3.5: 2, 6.0: 3})  # the nanny restarted it with the same name
    life("tcp://10.0.0.1:4003", {0.0: 1, 5.0: 4}, name=1)
    # Two workers leave at the end of the run, and their results count in the table.
    removed = [
        row(WORKER_REMOVED, timestamp=1.7e9 + at, worker=f"tcp://10.0.0.1:400{n}", reason="close")
        for n, at in ((1, 1.5), (2, 6.25), (3, 6.25))
    ]
    Plugin(tmp_path / "run", "SchedulerPlugin").write((WORKER_REMOVED, removed))
    balance = TraceAnalyser(tmp_path / "run").per_worker_task_balance()
    assert balance["worker-node1-0"].tolist() == [5, 0, 0, 2, 2, 2, 3]
    assert balance["worker-node1-1"].tolist() == [1, 1, 1, 1, 1, 4, 4]


def test_times_far_apart_do_not_fill_the_memory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(imbalance, "MAX_CELLS", 10)
    events = [managed(0.0, W0, 1), managed(4.5, W0, 2), managed(1e11, W0, 3)]
    balance = TraceAnalyser(record(tmp_path / "run", events)).per_worker_task_balance()
    assert balance[INTERVAL].tolist() == [0, 4, 10**11]
    assert balance[W0].tolist() == [1.0, 2.0, 3.0]
