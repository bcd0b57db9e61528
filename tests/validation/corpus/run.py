"""Record programs of the corpus like ``dasfprof run``, and print their findings.

``run.py [--corpus-traces DIR] [--advised] [PROGRAM ...]`` runs the named programs, or all. The
trace and the output of each program are stored in a directory with its name.
"""

import argparse
import atexit
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pandas as pd
import psutil

from dasfprof import TraceAnalyser

PROGRAMS = Path(__file__).parent / "programs"
#: Programs from public questions; `cases.py` prints how well they are diagnosed.
CASES = Path(__file__).parent / "cases"
#: Programs without a fault.
HEALTHY = Path(__file__).parent / "healthy"
ADVISED = "--advised"
#: Threshold (fraction of the cores): if other programs used more, timings are not meaningful.
BUSY = 0.15
#: File next to a program's trace with the fraction of the cores that other programs used.
_OTHERS = "others.txt"
#: Time limit (s) of a program, long enough for a busy machine.
DEADLINE = 300.0


@dataclass(frozen=True)
class Recorded:
    """Program that has run under the profiler."""

    #: Name of the script, without ``.py``.
    name: str
    exit_code: int
    #: Duration, including the start of the cluster and the profiler's report.
    seconds: float
    #: Fraction of the machine's cores that other programs used meanwhile.
    busy_elsewhere: float
    #: Directory of the trace files and of ``printed.txt``.
    directory: Path

    @property
    def printed(self) -> str:
        return (self.directory / "printed.txt").read_text()

    @cached_property
    def analyser(self) -> TraceAnalyser:
        return TraceAnalyser(sorted(self.directory.glob("*.msgpack")), progress=False)

    @cached_property
    def findings(self) -> pd.DataFrame:
        return self.analyser.diagnose()


def programs(place: Path = PROGRAMS) -> list[str]:
    return sorted(path.stem for path in place.glob("*.py"))


def place_of(name: str) -> Path:
    others = (CASES, HEALTHY)
    return next((other for other in others if (other / f"{name}.py").exists()), PROGRAMS)


def record(name: str, directory: Path, *arguments: str) -> Recorded:
    """Run a program under the profiler. Its trace is in a subdirectory."""
    traces = directory / "".join([name, *arguments])
    traces.mkdir(parents=True, exist_ok=True)
    for old in traces.iterdir():
        old.unlink()
    order = {
        "script": str(place_of(name) / f"{name}.py"),
        "arguments": arguments,
        "directory": str(traces),
        "name": name,
        "deadline": DEADLINE,
    }
    runner = _warm_runner()
    assert runner.stdin is not None and runner.stdout is not None
    begin, used = time.monotonic(), _used_by_all()
    print(json.dumps(order), file=runner.stdin, flush=True)
    answer = json.loads(runner.stdout.readline())
    seconds = time.monotonic() - begin
    share = (_used_by_all() - used - answer["cpu"]) / seconds / (os.cpu_count() or 1)
    (traces / _OTHERS).write_text(f"{share:.3f}")
    return Recorded(name, answer["exit_code"], seconds, share, traces)


def recorded(name: str, directory: Path) -> Recorded:
    """Return a program that has run. Its exit code and duration are not known."""
    traces = directory / name
    share = float((traces / _OTHERS).read_text())
    return Recorded(name, 0, float("nan"), share, traces)


@cache
def _warm_runner() -> subprocess.Popen[str]:
    """Start the process that runs the programs. It ends with this process."""
    command = [sys.executable, str(Path(__file__).with_name("warm.py"))]
    runner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(runner.communicate)
    return runner


def _used_by_all() -> float:
    """Return the CPU seconds that processes of this machine, and other virtual machines, used."""
    times = psutil.cpu_times()
    stolen = getattr(times, "steal", 0.0)  # used by other virtual machines of the host
    return float(times.user + times.nice + times.system + stolen)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--corpus-traces", type=Path, default=Path("corpus-traces"), metavar="DIR")
    parser.add_argument(ADVISED, action="store_true", help="follow the advice of the findings")
    options = parser.parse_args(arguments)
    directory = options.corpus_traces.resolve()  # programs run in another directory
    for name in options.programs or programs():
        done = record(name, directory, *([ADVISED] if options.advised else []))
        print(
            f"\n=== {name}: exit code {done.exit_code}, {done.seconds:.1f} s, "
            f"{done.busy_elsewhere:.0%} of the cores used by others"
        )
        for row in done.findings.to_dict("records"):
            at_stake = f"{row['Seconds at stake (s)']:.2f} s"
            print(f"{row['Severity']:6} {at_stake:>8}  {row['Rule']}: {row['Finding']}")
            print(f"{'evidence:':>26} {row['Evidence']}")
            print(f"{'suggestion:':>26} {row['Suggestion']}", flush=True)


if __name__ == "__main__":
    main()
