"""How often the cause of a hang is named first: ``hung_rates.py --runs 10``.

Runs each program of `hung_programs` ten times and diagnoses it in four ways: live, from the trace
and with ``dasfprof stuck``, and after Ctrl-C (every second run) or SIGKILL, from the trace. For
healthy programs, it counts the diagnoses that report a hang.
"""

import argparse
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hung_programs

#: Seconds after which a program is diagnosed.
AFTER = 15.0
#: Rules of findings that a healthy run must not have.
SEVERE = ("unfinished-run", "killed-worker-errors", "lost-workers")
#: Programs that cancel or abandon work on purpose.
GIVEN_UP = ("forgotten", "cancelled", "abandoned")


#: Prints the findings of traces.
DIAGNOSE = """
import sys
from dasfprof import TraceAnalyser
print(TraceAnalyser(sys.argv[1], progress=False).diagnose().to_json(orient="records"))
"""


def run_json(*arguments: str) -> Any:
    """Run Python with arguments, and return the JSON that it prints, or None if it fails."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def stuck(address: str) -> Any:
    return run_json("-m", "dasfprof", "stuck", address, "--json", "--limit", "5")


def findings(traces: Path) -> list[dict[str, Any]]:
    return list(run_json("-c", DIAGNOSE, str(traces)))


def is_named_first(name: str, traces: Path) -> bool:
    first = [f"{finding['Finding']} {finding['Evidence']}" for finding in findings(traces)[:1]]
    says = hung_programs.PLANTS[name].says
    return any(re.search(says, text, re.DOTALL) for text in first)


#: Program, way of diagnosis, and whether the diagnosis was right.
Seen = Counter[tuple[str, str, bool]]


def observe(name: str, number: int) -> Seen:
    """Run a program, and return the outcome of each way of diagnosis."""
    seen: Seen = Counter()
    with tempfile.TemporaryDirectory() as directory:
        traces = Path(directory, "traces")
        process = subprocess.Popen(
            [sys.executable, hung_programs.__file__, name, str(traces)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            if not select.select([process.stdout], [], [], 300)[0]:
                return seen
            address = process.stdout.readline().split()[-1]
            if name in hung_programs.HEALTHY:
                observe_healthy(name, process, address, traces, seen)
                return seen
            time.sleep(AFTER)
            seen[name, "live", is_named_first(name, traces)] += 1
            document = stuck(address)
            kinds = [cause["kind"] for cause in document["causes"]] if document else []
            seen[name, "stuck", kinds[:1] == [hung_programs.PLANTS[name].kinds[0]]] += 1
            if number % 2:
                os.killpg(process.pid, signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
            else:
                process.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            end = "Ctrl-C" if number % 2 else "SIGKILL"
            seen[name, end, is_named_first(name, traces)] += 1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return seen


def observe_healthy(
    name: str, process: subprocess.Popen[str], address: str, traces: Path, seen: Seen
) -> None:
    while process.poll() is None:
        severe = [finding for finding in findings(traces) if finding["Rule"] in SEVERE]
        seen[name, "live", all(finding["Severity"] != "high" for finding in severe)] += 1
        document = stuck(address)
        if document is not None and process.poll() is None:
            sure = [cause for cause in document["causes"] if cause["certainty"] != "possible"]
            seen[name, "stuck", not sure] += 1
    rules = {finding["Rule"] for finding in findings(traces)}
    seen[name, "ended", rules.isdisjoint(SEVERE)] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [name for name in hung_programs.PLANTS if name not in GIVEN_UP]
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--at-a-time", type=int, default=2)
    parser.add_argument("programs", nargs="*", default=[*names, *hung_programs.HEALTHY])
    options = parser.parse_args()
    total: Seen = Counter()
    with ThreadPoolExecutor(options.at_a_time) as pool:
        for name in options.programs:
            for seen in pool.map(observe, [name] * options.runs, range(options.runs)):
                total.update(seen)
            ways = dict.fromkeys(way for other, way, _ in total if other == name)
            right = {way: total[name, way, True] for way in ways}
            looks = {way: total[name, way, False] + right[way] for way in ways}
            cells = ", ".join(f"{way} {right[way]} of {looks[way]}" for way in ways)
            print(f"{name:14} {cells}", flush=True)


if __name__ == "__main__":
    main()
