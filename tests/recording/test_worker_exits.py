"""How a worker's process ended is read from what its nanny logged."""

from __future__ import annotations

from dasfprof.recording.cluster.worker_exits import exit_in

#: As `Server.get_logs` gives them, the newest first.
LOGS = [
    "10:11:50,799 - distributed.nanny - INFO - Worker process 30 was killed by signal 15",
    "2026-11-22 10:11:50,772 - distributed.nanny - INFO - Worker process 20 exited with status 3",
    "2026-11-22 10:11:39,205 - distributed.nanny.memory - WARNING - Worker tcp://127.0.0.1:4000 "
    "(pid=30) exceeded 95% memory budget. Restarting...",
    "2026-11-22 10:11:39,203 - distributed.nanny - INFO - Worker process 3 was killed by signal 11",
]


def test_signals_and_statuses() -> None:
    assert exit_in(LOGS, 3) == (-11, None)
    assert exit_in(LOGS, 20) == (3, None)
    assert exit_in(LOGS, 30) == (-15, "exceeded 95% memory budget. Restarting...")
    assert exit_in(LOGS, 4) is None
    assert exit_in([], 3) is None
