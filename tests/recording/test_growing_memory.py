"""Memory that a program leaves in workers' processes is reported, and only then."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import client_of
from distributed import Client, wait
from unrefuted import unrefuted

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.model.memory_growth import growth_by_runs

pytestmark = pytest.mark.whole_program

client = client_of(2, 1, memory_limit=0)

MB = 1_000_000
ROUNDS, TASKS = 12, 6
KEPT: list[Any] = []


def leak(number: int) -> int:
    KEPT.append(np.ones(3 * MB // 8))
    time.sleep(0.02)
    return number


def churn(number: int) -> int:
    time.sleep(0.02 + 0 * float(np.ones(30 * MB // 8).sum()))
    return number


def keep(number: int) -> Any:
    time.sleep(0.02)
    return np.ones(3 * MB // 8)


def recorded(client: Client, directory: Path, function: Any) -> TraceAnalyser:
    """Record consecutive computations, and hold the futures of `keep`."""
    with dasfprof.profile(client, directory=directory) as run:
        held = []
        for _ in range(ROUNDS):
            futures = client.map(function, range(TASKS), pure=False)
            wait(futures)
            held.append(futures if function is keep else None)
            del futures
            time.sleep(0.7)  # for resource samples at 10 Hz
    return TraceAnalyser(run.files(), progress=False)


def rising(analyser: TraceAnalyser) -> dict[str, Any]:
    table = analyser.memory_growth()
    table = table[table["Verdict"].str.startswith("Rises") & (table["Each (MB)"] > 1)]
    return dict(zip(table["Memory"], table["Each (MB)"], strict=True))


def growths(analyser: TraceAnalyser, directory: Path) -> list[dict[str, Any]]:
    return unrefuted(analyser, directory).query("Rule == 'memory-growth'").to_dict("records")


def test_a_leak_is_found_with_its_bytes(client: Client, tmp_path: Path) -> None:
    analyser = recorded(client, tmp_path, leak)
    rises = rising(analyser)
    unmanaged = "unmanaged: what processes have beyond results"
    assert set(rises) == {"processes of workers", unmanaged}
    assert rises[unmanaged] == pytest.approx(3 * TASKS, rel=0.1)
    (finding,) = growths(analyser, tmp_path)
    assert finding["Function"] == "leak"
    (by_run,) = growth_by_runs(analyser.run)
    assert by_run.drift.each == pytest.approx(3e6, rel=0.1)
    assert by_run.drift.least <= by_run.drift.each <= by_run.drift.most


def test_memory_that_is_given_back_does_not_grow(client: Client, tmp_path: Path) -> None:
    analyser = recorded(client, tmp_path, churn)
    own = dasfprof.recording.probes.process.resident_memory()
    assert rising(analyser) == {}
    assert growths(analyser, tmp_path) == []
    # This process contains the scheduler and the client.
    trace = analyser.trace
    for table in (trace.scheduler_states, trace.clients_under_way):
        assert len(table) > 0
        assert table["memory"].iloc[-1] == pytest.approx(own, rel=0.3)
    scheduler = trace.workers[trace.workers["kind"] == "scheduler"]
    assert set(trace.clients_under_way["pid"]) == set(scheduler["pid"])


def test_results_that_are_held_are_no_leak(client: Client, tmp_path: Path) -> None:
    analyser = recorded(client, tmp_path, keep)
    rises = rising(analyser)
    assert set(rises) == {"processes of workers", "results in memory", "results of keep"}
    assert rises["results of keep"] == pytest.approx(3 * TASKS, rel=1e-3)
    (finding,) = growths(analyser, tmp_path)
    assert "Results of earlier computations stay" in finding["Finding"]
    assert "A client requested them" in finding["Evidence"]
    assert "through futures that were created at test_growing_memory.py" in finding["Evidence"]
