"""Cost of recording an idle worker, and files of an idle cluster in a week.

The first table compares a recorded worker process with one that is not recorded, while both are
idle for some seconds: wake-ups of threads (voluntary context switches), CPU time, resident memory,
modules, and written bytes.

The second table is about a week of an idle cluster whose scheduler has the preload, with simulated
clocks: the written bytes, and which runs were kept. TracePlugin uses the real clock, so its bytes
are those of the minutes that the simulation takes.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from measure import Result

#: Seconds before the measurement begins. By then, a worker without tasks is idle.
IDLE_AFTER = 15.0


def _facts() -> dict[str, Any]:
    """Return what the worker's process has used so far. This function runs on the worker."""
    wakes: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        status = dict(
            line.split(":", 1) for line in (task / "status").read_text().splitlines() if ":" in line
        )
        wakes[task.name] = int(status["voluntary_ctxt_switches"])
    return {
        "wakes": dict(wakes),
        "cpu": time.process_time(),
        "resident": int(Path("/proc/self/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE"),
        "modules": len(sys.modules),
    }


def observe(recorded: bool, seconds: float) -> dict[str, float]:
    """Return figures of an idle worker."""
    from distributed import Client, LocalCluster

    import dasfprof

    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        before = next(iter(client.run(_facts).values()))
        context: Any = dasfprof.profile(client, directory=directory) if recorded else nullcontext()
        with context:
            time.sleep(IDLE_AFTER)
            written = _written(directory)
            first = next(iter(client.run(_facts).values()))
            time.sleep(seconds)
            last = next(iter(client.run(_facts).values()))
            written = {name: size - written[name] for name, size in _written(directory).items()}
            wakes = sum(
                count - first["wakes"].get(thread, 0) for thread, count in last["wakes"].items()
            )
    return {
        "wake-ups per second": wakes / seconds,
        "CPU, ms per second": 1e3 * (last["cpu"] - first["cpu"]) / seconds,
        "CPU to register, ms": 1e3 * (first["cpu"] - before["cpu"]),
        "resident, MB": last["resident"] / 1e6,
        "threads": len(last["wakes"]),
        "modules": last["modules"],
        **{f"{name}, bytes per minute": 60 * size / seconds for name, size in written.items()},
    }


#: Plugins that each write a separate file.
PLUGINS = ("TracePlugin", "ResourceMonitor", "SchedulerPlugin")


def _written(directory: str, run: str = "") -> dict[str, int]:
    """Return the bytes of a run's files by plugin."""
    paths = [path for path in Path(directory).iterdir() if path.name.startswith(run)]
    sizes = {path.name: path.stat().st_size for path in paths}
    return {
        plugin: sum(size for name, size in sizes.items() if f"-{plugin}-" in name)
        for plugin in PLUGINS
    }


#: Seconds by which each step advances the simulated clocks.
STEP = 10.0
DAY = 86400.0


class Clock:
    """Simulated clock, which advances only when `now` is set."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def week(days: float, keep_days: float, keep_size: int) -> Result:
    """Record an idle cluster of one worker for some days of simulated clocks."""
    from distributed import Client, LocalCluster

    from dasfprof import preload
    from dasfprof.database import find_runs
    from dasfprof.handles.rotation import Limits, Rotation
    from dasfprof.recording.plugins import resources
    from dasfprof.recording.probes import host, processes
    from dasfprof.recording.settings import make_settings
    from dasfprof.recording.under_way import scheduler as under_way

    monotonic, wall = Clock(time.monotonic()), Clock(time.time())
    written: dict[str, dict[str, int]] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        scheduler, (worker,) = cluster.scheduler, cluster.workers.values()

        async def begin() -> Any:
            # The sampler's thread must not sample by itself: `record_days` takes all samples.
            settings = make_settings(
                name=f"day{len(written)}-", directory=directory, sample_interval=1e6
            )
            settings = replace(settings, created=wall.now, removable=True)
            await preload._begin(scheduler, settings)
            written[settings.name] = {}
            return settings

        async def record_days() -> None:
            limits = Limits(run_length=DAY, keep_size=keep_size, keep_days=keep_days)
            rotation = Rotation(scheduler, limits, await begin(), begin, wall)
            for _ in range(int(days * DAY / STEP)):
                monotonic.now += STEP
                wall.now += STEP
                settings = rotation.settings
                monitor = worker.plugins[settings.plugin_name("WorkerProfiler")].parts[1]
                plugin = scheduler.plugins[settings.plugin_name("SchedulerPlugin")]
                monitor._sample()
                plugin._under_way._sample()
                monitor.database.commit()
                plugin.database.commit()
                await asyncio.sleep(0)
                if monotonic.now % 3600 < STEP:
                    written[settings.name] = _written(directory, settings.name)
                    await rotation.check()
            written[rotation.settings.name] = _written(directory, rotation.settings.name)

        with ExitStack() as patches:
            for module in (resources, host, processes, under_way):
                patches.enter_context(mock.patch.object(module, "monotonic", monotonic))
            for module in (host, processes):
                patches.enter_context(mock.patch.object(module, "time", wall))
            client.sync(record_days)
        kept_runs = {run.name for run in find_runs(Path(directory))}
    result = Result("A week of an idle cluster", ["run", *(f"{p}, bytes" for p in PLUGINS), "kept"])
    for name, sizes in written.items():
        cell = "yes" if name in kept_runs else "no"
        result.rows.append([name, *(f"{size:,}" for size in sizes.values()), cell])
    result.figures = {"written": written, "kept": sorted(kept_runs)}
    return result


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--days", type=float, default=7, help="days of the idle cluster")
    parser.add_argument("--keep-days", type=float, default=math.inf)
    parser.add_argument("--keep-size", type=int, default=10_000_000_000, help="bytes")
    options = parser.parse_args(arguments)
    plain, recorded = observe(False, options.seconds), observe(True, options.seconds)
    result = Result("An idle worker", ["figure", "not recorded", "recorded", "difference"])
    for what, value in plain.items():
        difference = recorded[what] - value
        result.rows.append([what, f"{value:.1f}", f"{recorded[what]:.1f}", f"{difference:+.1f}"])
    result.figures = {"none": plain, "dasfprof": recorded}
    results = [result, week(options.days, options.keep_days, options.keep_size)]
    for result in results:
        print(result.show(), flush=True)
    return results


if __name__ == "__main__":
    main()
