"""Records the programs of the corpus, each as ``dasfprof run`` does, and prints their findings.

``run.py [--corpus-traces DIR] [--advised] [PROGRAM ...]`` runs those named, or
all. Each leaves its trace, and what it printed, in a directory of its name.
"""

from __future__ import annotations

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
#: Programs of threads that people began in public; `cases.py` prints what is said of them.
CASES = Path(__file__).parent / "cases"
#: Programs without a fault.
HEALTHY = Path(__file__).parent / "healthy"
ADVISED = "--advised"
#: A share of the cores. Where other programs used more, timings tell nothing of this run.
BUSY = 0.15
#: The file beside a program's trace that has the share of the cores which others used.
_OTHERS = "others.txt"
#: Seconds; a busy machine is no failure.
DEADLINE = 300.0


@dataclass(frozen=True)
class Recorded:
    """A program that has run under the profiler."""

    #: The script's, without ``.py``.
    name: str
    exit_code: int
    #: From its start to its end, with those of the cluster and the profiler's report.
    seconds: float
    #: The share of the machine's cores that other programs used meanwhile.
    busy_elsewhere: float
    #: That of the trace files, and of ``printed.txt``.
    directory: Path

    @property
    def printed(self) -> str:
        """What it printed."""
        return (self.directory / "printed.txt").read_text()

    @cached_property
    def analyser(self) -> TraceAnalyser:
        """The analyser of its trace."""
        return TraceAnalyser(sorted(self.directory.glob("*.msgpack")), progress=False)

    @cached_property
    def findings(self) -> pd.DataFrame:
        """The diagnosis of its trace."""
        return self.analyser.diagnose()


def programs(place: Path = PROGRAMS) -> list[str]:
    """List the programs by name."""
    return sorted(path.stem for path in place.glob("*.py"))


def place_of(name: str) -> Path:
    """Return where a program is."""
    places = (CASES, HEALTHY)
    return next((place for place in places if (place / f"{name}.py").exists()), PROGRAMS)


def record(name: str, directory: Path, *arguments: str) -> Recorded:
    """Run a program under the profiler; its trace is in a directory of its own below this one."""
    traces = directory / "".join([name, *arguments])
    traces.mkdir(parents=True, exist_ok=True)
    for old in traces.iterdir():
        old.unlink()
    asked = {
        "script": str(place_of(name) / f"{name}.py"),
        "arguments": arguments,
        "directory": str(traces),
        "name": name,
        "deadline": DEADLINE,
    }
    runner = _warm_runner()
    assert runner.stdin is not None and runner.stdout is not None
    begin, used = time.monotonic(), _used_by_all()
    print(json.dumps(asked), file=runner.stdin, flush=True)
    answer = json.loads(runner.stdout.readline())
    seconds = time.monotonic() - begin
    share = (_used_by_all() - used - answer["cpu"]) / seconds / (os.cpu_count() or 1)
    (traces / _OTHERS).write_text(f"{share:.3f}")
    return Recorded(name, answer["exit_code"], seconds, share, traces)


def recorded(name: str, directory: Path) -> Recorded:
    """Return a program that has run; how it ended, and how long it took, nobody kept."""
    traces = directory / name
    share = float((traces / _OTHERS).read_text())
    return Recorded(name, 0, float("nan"), share, traces)


@cache
def _warm_runner() -> subprocess.Popen[str]:
    """Start what runs the programs; it ends with its input, and so with this process."""
    command = [sys.executable, str(Path(__file__).with_name("warm.py"))]
    runner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(runner.communicate)
    return runner


def _used_by_all() -> float:
    """CPU seconds that all processes of this machine have used, or that its host has not given."""
    times = psutil.cpu_times()
    stolen = getattr(times, "steal", 0.0)  # by other virtual machines of the host
    return float(times.user + times.nice + times.system + stolen)


def main(arguments: Sequence[str] | None = None) -> None:
    """Record programs and print what is said of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--corpus-traces", type=Path, default=Path("corpus-traces"), metavar="DIR")
    parser.add_argument(ADVISED, action="store_true", help="do what the findings advise")
    options = parser.parse_args(arguments)
    directory = options.corpus_traces.resolve()  # programs run in a directory of their own
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
