"""Rules and forecasts use the memory thresholds of the recorded workers, also where one is off."""

from __future__ import annotations

import math

import dask
import numpy as np
import psutil
import pytest
from clusters import wait_until
from distributed import Client, LocalCluster, get_worker, wait

import dasfprof
from dasfprof.analysis.run.memory_thresholds import MemoryThresholds, memory_thresholds

#: Nothing spills or is killed, and a worker pauses late.
CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.97,
    "distributed.worker.memory.terminate": False,
}


def fill(share: float) -> np.ndarray:
    """Return as many bytes as the worker's process lacks to a share of its limit."""
    limit = get_worker().memory_manager.memory_limit
    return np.ones(int(share * limit - psutil.Process().memory_info().rss), dtype=np.uint8)


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> dasfprof.TraceAnalyser:
    directory = tmp_path_factory.mktemp("thresholds")
    with (
        dask.config.set(CONFIG),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="400MB", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=directory, sample_interval=0.05) as run,
    ):
        filled = client.submit(fill, 0.9)
        wait(filled)

        def is_sampled() -> bool:
            run.flush()
            memory = run.analyser().trace.samples["memory"]
            return bool((memory > 0.88 * 400e6).any())

        wait_until(is_sampled)
    return run.analyser()


def test_thresholds_are_those_of_the_recorded_workers(analyser: dasfprof.TraceAnalyser) -> None:
    assert memory_thresholds(analyser.trace) == MemoryThresholds(
        target=math.inf, spill=math.inf, pause=0.97, terminate=math.inf
    )


def test_a_finding_names_the_recorded_thresholds(analyser: dasfprof.TraceAnalyser) -> None:
    findings = analyser.diagnose()
    pressure = findings[findings["Rule"] == "paused-workers"]
    assert "Dask pauses them at 97 %, and kills them never" in pressure["Evidence"].iloc[0]


def test_a_worker_that_never_spills_is_not_predicted_to_spill(
    analyser: dasfprof.TraceAnalyser,
) -> None:
    forecast = analyser.memory_forecast(workers=[1])
    assert forecast["Spilled at Most (MB)"].iloc[0] == 0
    assert "spill" not in forecast["Verdict"].iloc[0]


def test_a_share_near_the_limit_is_lower_where_dask_kills_sooner() -> None:
    assert MemoryThresholds(terminate=0.475).near(0.8) == pytest.approx(0.4)
    assert MemoryThresholds(terminate=math.inf).near(0.8) == 0.8
