"""Hosts with names, boots, disks and clocks of their own: what is lost, and what is aligned."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import independent_record as record
import pytest
from clusters import is_written
from dask_processes import PATHS, Processes
from distributed import Client
from recorded_facts import computed
from refuters import refute

import dasfprof
from dasfprof.analysis.run.times import clock_errors, clock_offsets, recorded_times

pytestmark = pytest.mark.whole_program

#: Where `refuters` is, which workers import with this module.
TESTS = str(Path(__file__).parents[1])

#: Gives a program a host's name and boot, and an empty disk at a path.
HOST = """
hostname "$0"
echo "$0" > "$1/$0.boot"
mount --bind "$1/$0.boot" /proc/sys/kernel/random/boot_id
mount -t tmpfs none "$1/traces"
shift
exec "$@"
"""
#: Seconds that rounding may take.
TICK = 1e-5
#: Seconds by which the clock of a host is wrong.
WRONG = 3.0


class Hosts(Processes):
    """Processes on hosts of their own, as far as a kernel can have several."""

    def start_on(self, host: str, *arguments: str, wrong: float = 0.0) -> subprocess.Popen[bytes]:
        """Start Python on a host whose clock is wrong by so many seconds, in this process alone."""
        site = self.directory / f"site-{host}"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(
            textwrap.dedent(f"""
                import time
                right = time.time
                time.time = lambda: right() + {wrong}
            """)
            if wrong
            else ""
        )
        apart = ("unshare", "--mount", "--uts", "sh", "-ec", HOST, host, str(self.directory))
        process = subprocess.Popen(
            [*apart, sys.executable, *arguments],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), PATHS, TESTS])},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.running.append(process)
        return process

    def scheduler_on(self, host: str) -> subprocess.Popen[bytes]:
        self.scheduler_file.unlink(missing_ok=True)
        arguments = ("-m", "distributed.cli.dask_scheduler", *self._common, "--port=0")
        process = self.start_on(host, *arguments)
        record.wait_until(partial(is_written, self.scheduler_file))
        return process

    def worker_on(self, host: str, wrong: float = 0.0) -> subprocess.Popen[bytes]:
        options = ("--nthreads", "1", "--no-nanny", "--name", host)
        arguments = ("-m", "distributed.cli.dask_worker", *self._common, *options)
        return self.start_on(host, *arguments, wrong=wrong)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    (tmp_path / "traces").mkdir()
    hosts = Hosts(tmp_path)
    if hosts.start_on("probe", "-c", "").wait(60):
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
    """What reached the client before is whole; workers of the old one do not mix with the new."""
    scheduler = hosts.scheduler_on("head")
    worker = hosts.worker_on("one")
    with hosts.client() as client:
        client.wait_for_workers(1)
        first = dasfprof.register_default_profiler(client, "first", directory=tmp_path / "traces")
        run_all(client, "early")
        first.flush()
        scheduler.kill()
        scheduler.wait()
        worker.kill()
    hosts.scheduler_on("head")
    hosts.worker_on("one")
    with hosts.client() as client:
        client.wait_for_workers(1)
        record.install(client)
        with dasfprof.profile(client, "second", directory=tmp_path / "traces") as second:
            run_all(client, "late")
    keys = [{row["key"] for row in computed(run)} for run in (first, second)]
    assert keys == [{f"{name}-{i}" for i in range(300)} for name in ("early", "late")]


def test_a_clock_that_is_wrong_is_aligned(hosts: Hosts, tmp_path: Path) -> None:
    """To the error that the analysis states, which a host with a right clock has as well."""
    hosts.scheduler_on("head")
    hosts.worker_on("right")
    hosts.worker_on("wrong", wrong=WRONG)
    with hosts.client() as client:
        client.wait_for_workers(2)
        with dasfprof.profile(client, directory=tmp_path / "traces") as run:
            run_all(client, "load")
        trace = run.analyser(progress=False).trace
    workers = trace.workers
    assert set(workers["host"]) >= {"head", "right", "wrong"}
    found = {
        host: (offset, error)
        for host, offset, error in zip(
            workers["host"], clock_offsets(trace), clock_errors(trace), strict=True
        )
    }
    assert found["head"] == (0, 0)
    for host, truth in (("right", 0.0), ("wrong", WRONG)):
        offset, error = found[host]
        assert 0 < error < 0.5  # half the time of the fastest messages
        assert abs(offset - truth) <= error
    # Nothing ran before it was sent, nor ended after it was known.
    times = recorded_times(trace)
    of_wrong = (trace.tasks["host"] == "wrong").to_numpy()
    assert of_wrong.any()
    assert (times["received"] >= times["sent"] - TICK)[of_wrong].all()
    assert (times["done"] <= times["known"] + TICK)[of_wrong].all()
    findings = run.analyser(progress=False).findings()
    (ours,) = [one for one in findings if "The clock of wrong is 3" in one.text]
    assert "by comparing messages between processes. The error is at most" in ours.evidence
    assert not refute(tmp_path / "traces", [ours])
