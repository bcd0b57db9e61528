"""Estimates for 20 programs compared with their runs: tasks, bytes of layers, and peak memory.

The programs are those of ``tests/analysis/estimated_programs.py``. They run on a cluster of two
workers with two threads. The scheduler provides the true values: it counts tasks and adds up the
results on its workers. CPU time and memory of an estimate for a graph of ``--tasks`` tasks are also
measured.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import process_time
from typing import Any

from distributed import Client, LocalCluster
from measure import Result

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("tests", "tests/analysis")]

from estimated_programs import REPORTED, SANE, labelled  # noqa: E402
from test_estimate import Oracle, run  # noqa: E402

import dasfprof  # noqa: E402

COLUMNS = [
    "program",
    "tasks, estimated and run",
    "layers within 10 %",
    "estimated peak, MB",
    "measured peak, MB",
    "warnings",
]
#: Minimum size (bytes) of compared layers: each result has about 100 bytes of other data.
MINIMUM_SIZE = 20_000
SANE_HERE = ("mean", "rechunked", "matrix_product", "centred", "assigned")
SANE_HERE += ("grouped", "looked_up", "bag", "delayed")


def layers_of(estimate: Any, oracle: Oracle) -> tuple[int, int]:
    """Return how many estimated layer sizes are within 10 %, and how many are compared."""
    measured: Counter[Any] = Counter()
    for key, size in oracle.sizes.items():
        measured[key[0] if isinstance(key, tuple) else None] += size
    known = estimate.layers.dropna(subset=["Layer", "Bytes"])
    pairs = [
        (size, measured[layer]) for layer, size in zip(known["Layer"], known["Bytes"], strict=True)
    ]
    pairs = [pair for pair in pairs if max(pair) > MINIMUM_SIZE]
    return sum(abs(size - actual) <= 0.1 * actual for size, actual in pairs), len(pairs)


def programs(result: Result) -> None:
    """Estimate and run all programs."""
    chosen = {name: SANE[name] for name in SANE_HERE} | {"labelled": labelled} | REPORTED
    totals: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(
            n_workers=2, threads_per_worker=2, memory_limit=0, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        for name, program in chosen.items():
            collection = program(Path(directory))
            estimate = dasfprof.estimate(collection)
            oracle = run(client, collection)
            right, compared = layers_of(estimate, oracle)
            peak = estimate.peak_bytes
            is_inside = peak is not None and peak[0] <= oracle.peak <= peak[1]
            totals += Counter(
                tasks=estimate.tasks == len(oracle.sizes),
                right=right,
                compared=compared,
                peaks=peak is not None,
                inside=is_inside,
            )
            bounds = "unknown" if peak is None else " to ".join(f"{x / 1e6:.2f}" for x in peak)
            result.rows.append(
                [
                    name,
                    f"{estimate.tasks}, {len(oracle.sizes)}",
                    f"{right} of {compared}",
                    bounds,
                    f"{oracle.peak / 1e6:.2f}"
                    + ("" if is_inside or peak is None else " (outside)"),
                    "; ".join(estimate.warnings["Finding"]),
                ]
            )
    result.rows.append(
        [
            "in all",
            f"equal in {totals['tasks']} of {len(chosen)}",
            f"{totals['right']} of {totals['compared']}",
            f"known in {totals['peaks']}",
            f"inside in {totals['inside']}",
            "",
        ]
    )
    result.figures["programs"] = dict(totals)


def many_tasks(count: int) -> None:
    """Estimate a graph of many tasks, and print this process's CPU seconds and peak memory."""
    from dasfprof.handles.estimation.assumed_cluster import assumed_cluster
    from dasfprof.handles.estimation.estimate import estimate_graph

    half = count // 2
    graph: dict[Any, Any] = {("load", n): (abs, n) for n in range(half)}
    graph |= {("inc", n): (abs, ("load", n)) for n in range(half)}
    begin = process_time()
    keys = [("inc", n) for n in range(half)]
    estimate = estimate_graph(graph, keys, [graph], assumed_cluster(4, None))
    assert estimate.tasks == 2 * half
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(process_time() - begin, memory)


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000, help="tasks of the large graph")
    parser.add_argument("--large-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.large_only:
        many_tasks(options.tasks)
        return []
    result = Result("Estimates and runs", COLUMNS)
    programs(result)
    command = [sys.executable, __file__, "--large-only", f"--tasks={options.tasks}"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, memory = map(float, output.split())
    result.rows.append(
        [f"{options.tasks:,} tasks", f"{seconds:.1f} s of CPU", "", "", f"{memory / 1e6:,.0f}", ""]
    )
    result.figures["large"] = {"tasks": options.tasks, "seconds": seconds, "bytes": memory}
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
