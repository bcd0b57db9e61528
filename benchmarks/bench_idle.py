"""What a worker that is recorded costs while it has nothing to do, beyond one that is not.

A cluster of one worker process, which does nothing for some seconds: how often its threads wake
(voluntary context switches), the CPU that they take, resident memory, and modules.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from measure import Result


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
            time.sleep(2)
            first = next(iter(client.run(_facts).values()))
            time.sleep(seconds)
            last = next(iter(client.run(_facts).values()))
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
    }


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(arguments)
    plain, recorded = observe(False, options.seconds), observe(True, options.seconds)
    result = Result("An idle worker", ["", "not recorded", "recorded", "beyond"])
    for what, value in plain.items():
        more = recorded[what] - value
        result.rows.append([what, f"{value:.1f}", f"{recorded[what]:.1f}", f"{more:+.1f}"])
    result.figures = {"none": plain, "dasfprof": recorded}
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
