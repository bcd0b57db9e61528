"""A run's key figures count what ran, where no worker's file tells of it as well."""

from __future__ import annotations

from pathlib import Path

from traces import Plan, T, filled

from dasfprof.report.run_summary import summarise


def test_runs_that_died_with_their_worker_s_file_are_counted(tmp_path: Path) -> None:
    # Ten more ended on the second worker, whose file ends before.
    unseen = [
        {
            "key": f"solve-{number}",
            "timestamp": T + 4.0,
            "duration": 0.5,
            "start": T + 4.1,
            "stop": T + 4.4,
            "run_id": 100 + number,
            "worker": "tcp://10.0.0.1:4001",
            "state": "memory",
            "waiting": T,
        }
        for number in range(10)
    ]
    trace = Plan(filled(["load"], 1.0), unseen=unseen, killed=[1]).write(tmp_path).run
    facts = summarise(trace)

    assert (facts["tasks"], facts["unseen"], facts["functions"]) == (26, 10, 2)
