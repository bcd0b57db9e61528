"""Run all benchmarks, print their tables, and write their figures as JSON.

``python benchmarks/run_all.py [--quick] [--dasf-core CHECKOUT] [-o DIRECTORY]``
"""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path

#: Benchmarks, with the arguments that `--quick` passes to them.
BENCHMARKS = {
    "bench_overhead": [
        *("--rounds", "1", "--workload", "small objects"),
        *("--variant", "dasfprof"),
    ],
    "bench_hooks": ["--rounds", "3"],
    "bench_event_loop": ["--rounds", "5"],
    "bench_own_events": ["--rounds", "2", "--events", "100000"],
    "bench_file_size": ["--rounds", "1", "--workload", "small objects", "--size", "small"],
    "bench_analysis": ["--rounds", "1", "--events", "120000"],
    "bench_explain": ["--rounds", "1", "--tasks", "20000"],
    "bench_predictions": ["--repeats", "1", "--pipelines", "gaps", "--scale", "0.5"],
    "bench_growth": ["--rounds", "1", "--events", "100000", "--parquet"],
    "bench_long_runs": ["--rounds", "1", "--events", "100000", "--runs", "100"],
    "bench_large": ["--events", "100000", "--files", "4", "--memory", "10MB"],
    "bench_reports": ["--rounds", "1", "--tasks", "20000"],
    "bench_decoding": ["--rounds", "3", "--events", "200000"],
    "bench_report": ["--rounds", "1", "--tasks", "10000"],
    "bench_export": ["--rounds", "1", "--tasks", "2000"],
    "bench_building": ["--rounds", "2"],
    "bench_estimate": ["--tasks", "10000"],
    "bench_commands": ["--rounds", "1", "--size", "small"],
    "bench_local": ["--rounds", "2", "--tasks", "1000"],
    "bench_nvtx": ["--rounds", "5"],
    "bench_sampler": ["--ticks", "20"],
    "bench_idle": ["--seconds", "5", "--days", "0.1"],
    "bench_scheduler": ["--workers", "20", "--tasks", "1000"],
    "bench_under_way": ["--seconds", "3", "--tasks", "5000"],
    "bench_sampling": ["--seconds", "1", "--rounds", "1", "--samples", "50000"],
    "bench_watch": ["--tasks", "100000"],
    "bench_stuck": ["--workers", "8", "--rounds", "1"],
    "bench_shipping": ["--workers", "50", "--seconds", "3", "--rounds", "1"],
    "bench_comparison": ["--rounds", "2", "--runs", "2", "--pairs", "2", "--gates", "2"],
    "bench_comparison_page": ["--rounds", "1", "--tasks", "10000"],
    "bench_soak": ["--minutes", "0.1", "--workers", "2"],
}
COMPARES_WITH_DASF = ("bench_overhead", "bench_own_events", "bench_analysis")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="use few rounds, to check that all benchmarks work"
    )
    parser.add_argument("--dasf-core", help="checkout of DASF to compare with")
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmark-results"))
    parser.add_argument("benchmark", nargs="*", help="names of benchmarks (default: all)")
    options = parser.parse_args()
    for name in options.benchmark or BENCHMARKS:
        arguments = list(BENCHMARKS[name]) if options.quick else []
        if options.dasf_core and name in COMPARES_WITH_DASF:
            arguments += ["--dasf-core", options.dasf_core]
        begin = time.monotonic()
        for result in importlib.import_module(name).main(arguments):
            result.save(options.output)
        print(f"({name}: {time.monotonic() - begin:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()
