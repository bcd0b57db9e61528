"""Tasks of a process that have NVTX ranges, and reasons for missing ranges."""

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from stand_ins import NvtxLog

SETUP = """
import json, sys
import distributed.worker
from concurrent.futures import ProcessPoolExecutor
from distributed import Client, LocalCluster
import dask
import dasfprof

original = distributed.worker._run_task_simple
told = {}

def wrapped():
    return distributed.worker._run_task_simple is not original

def profile(client):
    return dasfprof.profile(client, directory=sys.argv[1], enable_nvtx=True)

def cluster(n_workers=2, **options):
    return LocalCluster(processes=False, n_workers=n_workers, threads_per_worker=1,
                        dashboard_address=None, **options)
"""


def run_program(
    program: str, log: NvtxLog, directory: Any, **environment: str | None
) -> tuple[dict[str, Any], Counter[str]]:
    """Run a program with the stand-in for Nsight, and return its output and ranges by name."""
    log.clear()
    variables = {**os.environ, **log.environment, **environment}
    end = "\nif __name__ == '__main__':\n    main()\n    print(json.dumps(told))\n"
    run = subprocess.run(
        [sys.executable, "-c", SETUP + program + end, str(directory)],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "dasfprof could not" not in run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    return told, Counter(span.message for span in log.ranges())


def test_only_the_profiled_cluster_of_a_process_is_annotated(
    nvtx_log: NvtxLog, tmp_path: Any
) -> None:
    program = """
def main():
    with cluster() as one, cluster() as two, Client(one) as client, Client(two) as other:
        with profile(client):
            assert client.submit(lambda: 1, key="seen-1").result() == 1
            assert other.submit(lambda: 2, key="unseen-1").result() == 2
            with profile(other):
                assert other.submit(lambda: 3, key="seen-2").result() == 3
            assert other.submit(lambda: 4, key="unseen-2").result() == 4
            assert client.submit(lambda: 5, key="seen-3").result() == 5
        told["after"] = wrapped()
"""
    told, ranges = run_program(program, nvtx_log, tmp_path)
    assert told == {"after": False}
    assert ranges == {"seen": 3}


def test_pools_of_processes_run_as_before_and_have_no_ranges(
    nvtx_log: NvtxLog, tmp_path: Any
) -> None:
    program = """
def double(i):
    return 2 * i

def main():
    with ProcessPoolExecutor(1) as pool:
        # One worker: each closes the pool when it closes, and two at a time would fail.
        one = cluster(1, executor={"pool": pool})
        with one, Client(one) as client, profile(client):
            with dask.annotate(executor="pool"):
                told["pool"] = client.submit(pow, 2, 5, key="pool-1").result()
            told["thread"] = client.submit(pow, 2, 4, key="thread-1").result()
"""
    told, ranges = run_program(program, nvtx_log, tmp_path)
    assert told == {"pool": 32, "thread": 16}
    assert ranges == {"thread": 1}


@pytest.mark.whole_program
@pytest.mark.parametrize(
    ("environment", "before", "reason"),
    [
        ({"NVTX_INJECTION64_PATH": None}, "", "no tool"),
        ({"NVTX_DISABLE": "1"}, "", "turned off"),
        ({}, "sys.modules['nvtx'] = None", "no nvtx"),
        ({}, "del distributed.worker._run_task_simple", "no hook"),
    ],
)
def test_why_there_are_no_ranges(
    nvtx_log: NvtxLog, tmp_path: Any, environment: dict[str, str | None], before: str, reason: str
) -> None:
    program = f"""
def main():
    with cluster() as one, Client(one) as client:
        dasfprof.profile(client, directory=sys.argv[1])  # imports what it needs
        {before}
        with profile(client) as run:
            pass
        events = run.database().get_traces()
        told["reasons"] = [event.args["availability"] for event in events if event.name == "NVTX"]
"""
    told, ranges = run_program(program, nvtx_log, tmp_path, **environment)
    assert told == {"reasons": [reason] * 2}
    assert ranges == {}
