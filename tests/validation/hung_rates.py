"""How often the cause of a hung program is named first: ``hung_rates.py --runs 10``.

Runs each program of `hung_programs` so often and looks at it in four ways: live, by the trace and
by ``dasfprof stuck``; after Ctrl-C (each second run) or SIGKILL, by the trace. Of healthy programs
it counts the looks at which they are said to hang.
"""

from __future__ import annotations

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

#: Seconds until a program is looked at.
AFTER = 15.0
#: Findings of no healthy run.
GRAVE = ("unfinished-run", "killed-worker-errors", "lost-workers")
#: Programs that leave work behind on purpose.
GIVEN_UP = ("forgotten", "cancelled", "abandoned")


#: Prints the findings of traces.
DIAGNOSE = """
import sys
from dasfprof import TraceAnalyser
print(TraceAnalyser(sys.argv[1], progress=False).diagnose().to_json(orient="records"))
"""


def asked(*arguments: str) -> Any:
    """Run Python with arguments for something that writes JSON; return None if it fails."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def stuck(address: str) -> Any:
    return asked("-m", "dasfprof", "stuck", address, "--json", "--limit", "5")


def findings(traces: Path) -> list[dict[str, Any]]:
    return list(asked("-c", DIAGNOSE, str(traces)))


def is_named_first(name: str, traces: Path) -> bool:
    first = [f"{one['Finding']} {one['Evidence']}" for one in findings(traces)[:1]]
    says = hung_programs.PLANTS[name].says
    return any(re.search(says, text, re.DOTALL) for text in first)


#: Programs, ways in which they were looked at, and whether what was said is right.
Seen = Counter[tuple[str, str, bool]]


def observe(name: str, number: int) -> Seen:
    """Run one program, and return in which ways it was looked at with which outcome."""
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
            told = stuck(address)
            kinds = [cause["kind"] for cause in told["causes"]] if told else []
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
        grave = [one for one in findings(traces) if one["Rule"] in GRAVE]
        seen[name, "live", all(one["Severity"] != "high" for one in grave)] += 1
        told = stuck(address)
        if told is not None and process.poll() is None:
            sure = [cause for cause in told["causes"] if cause["certainty"] != "possible"]
            seen[name, "stuck", not sure] += 1
    rules = {one["Rule"] for one in findings(traces)}
    seen[name, "ended", rules.isdisjoint(GRAVE)] += 1


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
            told = ", ".join(f"{way} {right[way]} of {looks[way]}" for way in ways)
            print(f"{name:14} {told}", flush=True)


if __name__ == "__main__":
    main()
