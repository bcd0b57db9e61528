"""The hooks proposed to distributed: the patches apply, and the recorder uses what they add."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import distributed
import pytest
from dask_processes import PATHS

from dasfprof import TraceAnalyser

UPSTREAM = Path(__file__).parents[2] / "docs" / "upstream"
PATCHES = sorted(UPSTREAM.glob("*.patch"))

(APPLY_TO,) = re.findall(
    r"distributed (\d+\.\d+\.\d+), as installed", (UPSTREAM / "index.md").read_text("utf-8")
)

pytestmark = [
    pytest.mark.whole_program,
    pytest.mark.skipif(
        distributed.__version__ != APPLY_TO,
        reason=f"the patches are for distributed {APPLY_TO}, not {distributed.__version__}",
    ),
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
]


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed distributed with all patches, to be imported in its place."""
    place = tmp_path_factory.mktemp("patched")
    source = Path(distributed.__file__).parent
    shutil.copytree(source, place / "distributed", ignore=shutil.ignore_patterns("__pycache__"))
    assert len(PATCHES) >= 2
    for patch in PATCHES:
        # An installed distributed has no tests.
        done = subprocess.run(
            ["git", "apply", "--exclude=*/tests/*", "--verbose", str(patch)],
            cwd=place,
            capture_output=True,
            text=True,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(place.parent)},
        )
        assert done.returncode == 0, done.stderr
    return place


PROGRAM = """
    import json, os, signal, sys, time
    import distributed
    from dasfprof.recording.cluster import worker_exits
    from distributed import Client, LocalCluster
    import dasfprof

    def wrapped(dask_worker):
        return hasattr(dask_worker._finalize_metrics, "_dasfprof_patch")

    def listed(dask_worker):
        return len(dask_worker._outcome_plugins)

    async def nobody_is_asked(*_):
        raise AssertionError("a nanny was asked")

    def busy(x):
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        return x

    def fail(x):
        raise ValueError("on purpose")

    if __name__ == "__main__":
        worker_exits.WorkerExits._ask = nobody_is_asked
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            with Client(cluster) as client:
                first, second = client.nthreads()
                run = dasfprof.register_default_profiler(client, directory="traces")
                told = {"file": distributed.__file__}
                told["wrapped"] = [*client.run(wrapped).values()]
                told["listed"] = [*client.run(listed).values()]
                left = client.map(busy, range(5), workers=[first], key="left")
                right = client.map(busy, range(5), workers=[second], key="right")
                total = client.submit(sum, left, workers=[second], key="total")
                assert total.result() == 10
                client.gather(right)
                wrong = client.submit(fail, 1, workers=[second], key="wrong")
                assert wrong.exception() is not None
                pid = client.run(os.getpid)[first]
                os.kill(pid, signal.SIGKILL)
                while client.nthreads().get(first) or len(client.nthreads()) < 2:
                    time.sleep(0.05)
                run.stop()
                told["after"] = [*client.run(listed).values()]
                told["first"] = first
        print(json.dumps(told))
"""


def test_the_recorder_uses_the_hooks(patched: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("\n".join(line[4:] for line in PROGRAM.splitlines()), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(patched), PATHS])},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert Path(told["file"]).is_relative_to(patched)
    assert told["wrapped"] == [False, False]  # nothing is replaced
    assert told["listed"] == [1, 1]  # the run's plugin alone has the method
    assert told["after"] == [0, 0]

    analyser = TraceAnalyser(tmp_path / "traces", progress=False)
    tasks = analyser.trace.tasks
    # The killed worker's last runs may not have been written.
    counts = tasks["function"].value_counts()
    assert (counts["right"], counts["total"], counts["wrong"]) == (5, 1, 1)
    counted = tasks[tasks["function"].isin(["right"]).to_numpy()]
    assert (counted["cpu"] >= 0.05).all()  # what metering alone tells
    assert set(tasks["state"]) == {"memory", "erred"}
    assert len(analyser.trace.transfers) >= 1
    assert (analyser.trace.transfers["network"] >= 0).all()
    lives = analyser.trace.workers
    (code,) = lives.loc[(lives["address"] == told["first"]).to_numpy(), "exit_code"]
    assert code == -9
