"""Programs with two faults each: whether the first finding is about the fault that costs more.

``two_causes.py [--times 3] [NAME ...]`` runs each program without dasfprof, unchanged and with each
of its remedies in turn, and once under dasfprof. It prints the median time that each remedy saves,
and the first finding with its seconds and advice. `CAUSES` lists which finding is about which
fault. It also reports if a remedy changes the result.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dasfprof import TraceAnalyser

DIRECTORY = Path(__file__).with_suffix("")
#: By program, the remedies (arguments of the program) and the findings that advise them.
CAUSES = {
    "bag_of_items": {"partitions": "tasks-too-small", "together": "recomputation"},
    "bag_of_lines": {"partitions": "too-few-tasks", "together": "recomputation"},
    "blocks_in_loop": {"persist": "recomputation", "columns": "dominant-function"},
    "csv_files": {"parser": "row-wise", "tasks": "large-gathers"},
    "csv_in_blocks": {"blocks": "tasks-too-small", "columns": "row-wise"},
    "delayed_chain": {"tree": "serial-chain", "wrap": "slow-startup"},
    "delayed_in_loop": {"together": "sequential-submission", "scatter": "large-objects-in-graph"},
    "events_of_json": {"blocks": "too-few-tasks", "dates": "row-wise"},
    "futures_of_items": {"batches": "tasks-too-small", "together": "repeated-gathers"},
    "grid_search": {"dispatch": "sequential-submission", "columns": "dominant-function"},
    "image_filters": {"arrays": "row-wise", "chunks": "tasks-too-small"},
    "joblib_of_texts": {"processes": "gil-contention", "scatter": "large-objects-in-graph"},
    "kmeans": {"chunks": "tasks-too-small", "persist": "recomputation"},
    "many_partitions": {"partitions": "tasks-too-small", "columns": "row-wise"},
    "merge_of_hot_key": {"repartition": "data-skew", "columns": "row-wise"},
    "ml_predictions": {"chunks": "tasks-too-small", "together": "recomputation"},
    "models_and_requests": {"threads": "blocked-tasks", "once": "dominant-function"},
    "parquet_columns": {"together": "recomputation", "rows": "row-wise"},
    "products": {"chunks": "tasks-too-small", "persist": "recomputation"},
    "python_in_threads": {"chunks": "tasks-too-small", "processes": "gil-contention"},
    "scored_partitions": {"once": "dominant-function", "together": "recomputation"},
    "submit_in_loop": {"together": "sequential-submission", "scatter": "large-objects-in-graph"},
    "xarray_pixels": {"columns": "row-wise", "chunks": "tasks-too-small"},
    "zarr_by_year": {"chunks": "chunk-mismatch", "together": "sequential-submission"},
    "zarr_of_days": {"chunks": "tasks-too-small", "together": "recomputation"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the time that remedies save, and the first finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args(arguments)
    right = 0
    names = options.names or sorted(CAUSES)
    for name in names:
        remedies = ["", *CAUSES[name]]
        runs = [{each: run(name, each) for each in remedies} for _ in range(options.times)]
        seconds = {each: statistics.median(turn[each][0] for turn in runs) for each in remedies}
        gains = {each: seconds[""] - seconds[each] for each in CAUSES[name]}
        first = first_finding(name)
        most = max(gains, key=lambda each: gains[each])
        right += first.get("Rule") == CAUSES[name][most]
        saved = ", ".join(f"{each}: {gain:+.1f} s" for each, gain in gains.items())
        print(f"{name}: {seconds['']:.1f} s; {saved}")
        print(
            f"    {first['Rule']}, {first['Seconds at stake (s)']:.1f} s: {first['Suggestion']}"
            if first
            else "    no finding"
        )
        changed = {each for turn in runs for each in remedies if turn[each][1] != runs[0][""][1]}
        if changed:
            print(f"    other results with {', '.join(sorted(changed))}")
        sys.stdout.flush()
    print(f"{right} of {len(names)} first findings are about the cause that costs more")


def run(name: str, *remedies: str) -> tuple[float, str]:
    """Run a program, and return its duration and output."""
    begin = time.monotonic()
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(DIRECTORY / f"{name}.py"),
        *filter(None, remedies),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return time.monotonic() - begin, done.stdout


def first_finding(name: str) -> dict[str, object]:
    """Record a program, and return its first finding as a row of `diagnose`, or an empty dict."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "dasfprof", "run", "-d", directory]
        subprocess.run([*command, str(DIRECTORY / f"{name}.py")], capture_output=True, check=True)
        findings = TraceAnalyser(directory, progress=False).diagnose()
        return next(iter(findings.to_dict("records")), {})


if __name__ == "__main__":
    main()
