"""What a worker that is recorded costs while it has nothing to do, beyond one that is not.

A cluster of one worker process, which does nothing for some seconds: how often its threads wake
(voluntary context switches), the CPU that they take, resident memory, modules, and the bytes that
are written.

Then a week of an idle cluster whose scheduler has the preload, by simulated clocks: the bytes that
are written, and which of the runs are kept. What TracePlugin writes follows the real clock, and is
that of the minutes which the simulation takes.
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

#: Seconds after which a worker without any change is idle, and some more.
IDLE_AFTER = 15.0


def _facts() -> dict[str, Any]:
    """Return what the worker's process has used so far; called on the worker."""
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
        "wakes a second": wakes / seconds,
        "CPU, ms a second": 1e3 * (last["cpu"] - first["cpu"]) / seconds,
        "CPU to register, ms": 1e3 * (first["cpu"] - before["cpu"]),
        "resident, MB": last["resident"] / 1e6,
        "threads": len(last["wakes"]),
        "modules": last["modules"],
        **{f"{name}, bytes a minute": 60 * size / seconds for name, size in written.items()},
    }


#: Plugins that each write a separate file.
PLUGINS = ("TracePlugin", "ResourceMonitor", "SchedulerPlugin")


def _written(directory: str, run: str = "") -> dict[str, int]:
    """Return the bytes of a run's files, by the plugin that writes them."""
    paths = [path for path in Path(directory).iterdir() if path.name.startswith(run)]
    sizes = {path.name: path.stat().st_size for path in paths}
    return {
        plugin: sum(size for name, size in sizes.items() if f"-{plugin}-" in name)
        for plugin in PLUGINS
    }


#: Seconds by which the simulated clocks advance.
STEP = 10.0
DAY = 86400.0


class Clock:
    """Seconds that advance when they are told to."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def week(days: float, keep_days: float, keep_size: int) -> Result:
    """Record an idle cluster of one worker for some days, by simulated clocks."""
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
            # The sampler's thread and the snapshots are called by the simulated clock alone.
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
        kept = {run.name for run in find_runs(Path(directory))}
    result = Result("A week of an idle cluster", ["run", *(f"{p}, bytes" for p in PLUGINS), "kept"])
    for name, sizes in written.items():
        is_kept = "yes" if name in kept else "no"
        result.rows.append([name, *(f"{size:,}" for size in sizes.values()), is_kept])
    result.figures = {"written": written, "kept": sorted(kept)}
    return result


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--days", type=float, default=7, help="of the idle cluster")
    parser.add_argument("--keep-days", type=float, default=math.inf)
    parser.add_argument("--keep-size", type=int, default=10_000_000_000, help="bytes")
    options = parser.parse_args(arguments)
    plain, recorded = observe(False, options.seconds), observe(True, options.seconds)
    result = Result("An idle worker", ["", "not recorded", "recorded", "beyond"])
    for what, value in plain.items():
        more = recorded[what] - value
        result.rows.append([what, f"{value:.1f}", f"{recorded[what]:.1f}", f"{more:+.1f}"])
    result.figures = {"none": plain, "dasfprof": recorded}
    results = [result, week(options.days, options.keep_days, options.keep_size)]
    for result in results:
        print(result.show(), flush=True)
    return results


if __name__ == "__main__":
    main()
