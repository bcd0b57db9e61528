"""Runs that end with work under way have the same tables in parts as in memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import wait_until
from large_requests import assert_same_answers, in_parts
from traces.hung import FIRST, SIGINT, ended_in

from dasfprof import Trace, TraceAnalyser
from dasfprof.analysis.run.run_end import find_run_end

PROGRAM = """
import sys, time
from distributed import Client, LocalCluster
import dasfprof

def fails(number):
    if number % 9 == 0:
        raise ValueError(number)
    time.sleep(0.003)
    return bytes(1000 * number)

def after(value):
    return value

if __name__ == "__main__":
    cluster = LocalCluster(2, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)
    with dasfprof.profile(client, name="open", directory=sys.argv[1]):
        done = client.map(fails, range(150))
        client.gather(done, errors="skip")
        total = client.submit(len, done[1:9])
        total.result()
        sleeping = client.map(time.sleep, [90.0 + number for number in range(7)])
        last = client.submit(after, sleeping[-1])
        time.sleep(2.5)
        print("under way", flush=True)
        sys.stdin.readline()
        client.close()
"""


def of_workers(directory: Path) -> Trace:
    """Read what the workers of a run have written, without the scheduler's file."""
    return Trace.from_database(
        [path for path in directory.iterdir() if "SchedulerPlugin" not in path.name]
    )


def run_until(how: str, directory: Path) -> None:
    """Run the program, and end it while it has work under way."""
    path = directory / "program.py"
    path.write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, str(path), str(directory / "traces")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "under way\n"
        wait_until(lambda: len(of_workers(directory / "traces").under_way) == 2)
        if how == "left":
            program.communicate("\n", timeout=240)
        else:
            os.killpg(program.pid, getattr(signal, how))


@pytest.mark.whole_program
@pytest.mark.parametrize("how", ["left", "SIGKILL", "SIGINT"])
def test_all_tables(how: str, tmp_path: Path) -> None:
    """For a program that was killed also where only the scheduler knew what waited."""
    run_until(how, tmp_path)
    whole, parts = TraceAnalyser(tmp_path / "traces"), in_parts(tmp_path / "traces", "50KB")
    assert find_run_end(whole.trace) is not None
    assert len(whole.trace.under_way) >= 2
    assert_same_answers(whole, parts)
    if how == "SIGKILL":
        for path in (tmp_path / "traces").glob("*SchedulerPlugin*"):
            path.unlink()
        whole, parts = TraceAnalyser(tmp_path / "traces"), in_parts(tmp_path / "traces", "50KB")
        assert len(whole.trace.under_way) == 2
        assert_same_answers(whole, parts)


@pytest.mark.parametrize("client_left", [19.002, 18.9])
def test_whose_errors_tell_of_sigint(client_left: float, tmp_path: Path) -> None:
    run = ended_in(SIGINT, 19.0, 19.001, client_left)
    others = [(f"g-{number}", number + 0.25, number + 0.75) for number in range(18)]
    run.ended += others
    run.runs += [
        {"key": key, "sent": start, "known": stop, "state": "memory", "why": "task-finished-1"}
        | FIRST
        for key, start, stop in others
    ]
    run.write(tmp_path)
    whole, parts = TraceAnalyser(tmp_path), in_parts(tmp_path, "1KB")
    end = find_run_end(whole.trace)
    assert end is not None
    assert end.interrupted
    # As text, in which what is unknown (NaN) is equal.
    assert repr(find_run_end(parts.in_memory)) == repr(end)
    assert_same_answers(whole, parts)
