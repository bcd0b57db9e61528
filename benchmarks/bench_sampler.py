"""CPU time per tick of a worker's resource sampler, in total and by probe.

The GPU probe uses the real pynvml with the tests' stand-in for the driver, which has some devices.
The time that a real driver takes is not included. The worker is idle, so that only the sampler is
measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

from distributed import LocalCluster
from measure import Result, percentile
from native import build, run_apart

from dasfprof.recording.plugins.resources import ResourceMonitor
from dasfprof.recording.settings import make_settings

INTERVAL = 0.1

DEVICE = """device
uuid GPU-{number:08x}-0000-0000-0000-000000000000
name Stand-in
bus 0:{number:x}:0
utilization 50
memory_utilization 20
memory_used 1000000000
memory_total 16000000000
power 70000
sm_clock 1410
memory_clock 1215
temperature 60
pcie_tx_count 1000
pcie_rx_count 1000
processes 1 1000 2 2000
"""


async def measure_here(ticks: int, seconds: float) -> dict[str, list[float]]:
    """Return the CPU seconds of each tick, in total and by probe."""
    settings = make_settings(name="sampler", directory=tempfile.mkdtemp(), sample_interval=3600)
    async with LocalCluster(
        n_workers=1,
        processes=False,
        asynchronous=True,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    ) as cluster:
        monitor = ResourceMonitor(settings)
        monitor.setup(cluster.workers[0])
        await asyncio.sleep(1.5)  # the first tick opens the driver

        def sample() -> dict[str, list[float]]:
            costs: dict[str, list[float]] = {"tick": []}
            for _ in range(ticks):
                time.sleep(seconds)
                begin = time.thread_time()
                for probe in monitor._probes:
                    start = time.thread_time()
                    monitor._source.rows.extend(probe.sample(True))
                    costs.setdefault(type(probe).__name__, []).append(time.thread_time() - start)
                costs["tick"].append(time.thread_time() - begin)
            return costs

        costs = await asyncio.to_thread(sample)
        await monitor.teardown(cluster.workers[0])
    return costs


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=300)
    parser.add_argument("--here", action="store_true", help="measure in this process, print JSON")
    options = parser.parse_args(arguments)
    if options.here:
        print(json.dumps(asyncio.run(measure_here(options.ticks, INTERVAL))))
        return []
    result = Result(
        "Sampler", ["probe", "us per tick: mean (median, 95 %)", "of one core at 100 ms"]
    )
    with tempfile.TemporaryDirectory() as directory:
        driver = build("nvml.c", Path(directory) / "libnvidia-ml.so.1")
        for count in (0, 1, 8) if driver else (0,):
            script = Path(directory) / f"{count}.txt"
            script.write_text("".join(DEVICE.format(number=number) for number in range(count)))
            environment = {"LD_LIBRARY_PATH": directory, "DASFPROF_TEST_NVML": str(script)}
            child = ["--here", "--ticks", str(options.ticks)]
            costs = run_apart(__file__, *child, **environment if count else {})
            _add(result, count, costs)
    print(result.show(), flush=True)
    return [result]


def _add(result: Result, count: int, costs: dict[str, list[float]]) -> None:
    where = f"{count} GPUs" if count != 1 else "1 GPU"
    for name, seconds in costs.items():
        mean = statistics.mean(seconds)
        result.rows.append(
            [
                f"{where}: {name}",
                f"{mean * 1e6:.0f} ({statistics.median(seconds) * 1e6:.0f}, "
                f"{percentile(seconds, 0.95) * 1e6:.0f})",
                f"{mean / INTERVAL:.2%}",
            ]
        )
        result.figures[f"{where}: {name}"] = seconds


if __name__ == "__main__":
    main(sys.argv[1:])
