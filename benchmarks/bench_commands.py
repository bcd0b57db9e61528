"""CPU time of commands and imports in new processes, from ``os.wait4``.

The commands read the trace that ``dasfprof demo`` records. The time that importing ``dasfprof``
adds to importing ``distributed`` is taken from ``python -X importtime``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import Result, interleave, spread

STATEMENTS = {
    "import dasfprof": "import distributed, dasfprof",
    "import dasfprof.recording": "import distributed, dasfprof.recording",
}


def milliseconds(statement: str) -> float:
    """Return the milliseconds that modules imported after distributed take."""
    command = [sys.executable, "-X", "importtime", "-c", statement]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    entries = [line.removeprefix("import time:").split("|") for line in lines[1:]]
    names = [name.strip() for _, _, name in entries]
    after = len(names) - 1 - names[::-1].index("distributed")
    return sum(int(micros) for micros, _, _ in entries[after + 1 :]) / 1000


def cpu_seconds(command: list[str]) -> float:
    """Run a command and return the CPU seconds of its process.

    Raises
    ------
    RuntimeError
        If the command fails.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def commands(rounds: int, size: str) -> Result:
    """Measure the commands on the trace of a demo of the given size."""
    result = Result("Commands", ["command", "CPU s (quartiles)"])
    program = [sys.executable, "-m", "dasfprof"]
    with tempfile.TemporaryDirectory() as directory:
        demo = [*program, "demo", "--size", size, "--directory", directory]
        subprocess.run(demo, stdout=subprocess.DEVNULL, check=True)
        report = str(Path(directory, "report.html"))
        variants = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "import dasfprof.TraceAnalyser": [
                *(sys.executable, "-c", "from dasfprof import TraceAnalyser")
            ],
            "dasfprof --help": [*program, "--help"],
            "dasfprof analyse": [*program, "analyse", directory],
            "dasfprof report": [*program, "report", directory, "-o", report],
        }
        runs = {name: partial(cpu_seconds, command) for name, command in variants.items()}
        for name, seconds in interleave(runs, rounds).items():
            result.rows.append([name, "{:.2f} ({:.2f} to {:.2f})".format(*spread(seconds))])
            result.figures[name] = seconds
    return result


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", default="medium", help="size of the demo")
    options = parser.parse_args(arguments)
    imports = Result("Import", ["statement", "ms more than distributed (quartiles)"])
    for name, statement in STATEMENTS.items():
        values = [milliseconds(statement) for _ in range(options.rounds)]
        imports.rows.append([name, "{:.1f} ({:.1f} to {:.1f})".format(*spread(values))])
        imports.figures[name] = values
    results = [imports, commands(options.rounds, options.size)]
    for result in results:
        print(result.show(), flush=True)
    return results


if __name__ == "__main__":
    main()
