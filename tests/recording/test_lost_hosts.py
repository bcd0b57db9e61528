"""Hosts with different names, boots, disks and clocks: lost files, and aligned clocks."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dask_processes import PATHS, Processes
from distributed import Client
from recorded_facts import computed

import dasfprof
from dasfprof.analysis.run.task_runs import clock_offsets, recorded_times

pytestmark = pytest.mark.whole_program

#: Gives a program a host name, a boot id, and an empty disk at a path.
HOST = """
hostname "$0"
echo "$0" > "$1/$0.boot"
mount --bind "$1/$0.boot" /proc/sys/kernel/random/boot_id
mount -t tmpfs none "$1/traces"
shift
exec "$@"
"""
#: Tolerance (s) for rounding.
TICK = 1e-5
#: Clock offset (s) of a host.
WRONG = 3.0


class Hosts(Processes):
    """Processes on simulated hosts."""

    def start(self, *arguments: str, host: str, wrong: float = 0.0) -> Any:
        """Start Python on a host whose clock has an offset, in this process alone."""
        site = self.directory / f"site-{host}"
        site.mkdir(exist_ok=True)
        clock = f"import time\nright = time.time\ntime.time = lambda: right() + {wrong}\n"
        (site / "sitecustomize.py").write_text(clock if wrong else "")
        apart = ("unshare", "--mount", "--uts", "sh", "-ec", HOST, host, str(self.directory))
        return super().start(*arguments, apart=apart, path=os.pathsep.join([str(site), PATHS]))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    (tmp_path / "traces").mkdir()
    hosts = Hosts(tmp_path)
    if hosts.start("-c", "", host="probe").wait(60):
        pytest.skip("this user may not have names and disks of its own")
    yield hosts
    hosts.end()


def work(i: int) -> int:
    time.sleep(0.005)
    return i


def run_all(client: Client, name: str, count: int = 300) -> None:
    futures = client.map(work, range(count), key=[f"{name}-{i}" for i in range(count)])
    assert client.gather(futures) == list(range(count))


def test_a_scheduler_that_is_restarted_begins_another_run(hosts: Hosts, tmp_path: Path) -> None:
    """Files that the client received before are complete, and workers of both runs do not mix."""
    scheduler, worker = hosts.scheduler(host="head"), hosts.worker(host="one")
    with hosts.client() as client:
        client.wait_for_workers(1)
        first = dasfprof.register_default_profiler(client, "first", directory=tmp_path / "traces")
        run_all(client, "early")
        first.flush()
        scheduler.kill()
        scheduler.wait()
        worker.kill()
    hosts.scheduler_file.unlink()
    hosts.scheduler(host="head")
    hosts.worker(host="one")
    with hosts.client() as client:
        client.wait_for_workers(1)
        with dasfprof.profile(client, "second", directory=tmp_path / "traces") as second:
            run_all(client, "late")
    keys = [{row["key"] for row in computed(run)} for run in (first, second)]
    assert keys == [{f"{name}-{i}" for i in range(300)} for name in ("early", "late")]


def test_a_clock_that_is_wrong_is_aligned(hosts: Hosts, tmp_path: Path) -> None:
    """The error is at most half the time of the fastest messages, as with a right clock."""
    hosts.scheduler(host="head")
    hosts.worker(host="right")
    hosts.worker(host="wrong", wrong=WRONG)
    with hosts.client() as client:
        client.wait_for_workers(2)
        with dasfprof.profile(client, directory=tmp_path / "traces") as run:
            run_all(client, "load")
        trace = run.analyser(progress=False).trace
    offset_of = dict(zip(trace.workers["host"], clock_offsets(trace), strict=True))
    assert offset_of["head"] == 0
    for host, truth in (("right", 0.0), ("wrong", WRONG)):
        runs = trace.tasks[(trace.tasks["host"] == host).to_numpy()]
        out = (runs["received"] - runs["stolen"].fillna(runs["sent"])).min()
        back = (runs["known"] - runs["done"]).min()
        assert 0 < (out + back) / 2 < 0.5
        assert abs(offset_of[host] - truth) <= (out + back) / 2
    # No task ran before its assignment, or ended after the scheduler knew.
    times = recorded_times(trace)
    of_wrong = (trace.tasks["host"] == "wrong").to_numpy()
    assert of_wrong.any()
    assert (times["received"] >= times["sent"] - TICK)[of_wrong].all()
    assert (times["done"] <= times["known"] + TICK)[of_wrong].all()
