"""Recorded CPU wait of tasks, compared with the tasks' own readings."""

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import distributed.worker
import pytest
from clusters import client_of, new_client, wait_until
from distributed import Client, Event, Reschedule, secede, wait
from open_files import open_files
from recorded_facts import assert_whole, computed, trace_files

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.task_runs import thread_time

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells what threads wait"
)

#: Tolerance (s): CPU wait between a task's readings and the recorder's readings around the task, on
#: a busy machine.
SLACK = 0.5

client = client_of(2, 1)


def read_schedstat() -> int:
    """Return the CPU wait of this thread so far, in nanoseconds."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def measured(work: Callable[..., Any]) -> Callable[..., float]:
    """Return a task that does some work and returns its CPU wait in seconds."""

    def task(*args: Any) -> float:
        before = read_schedstat()
        work(*args)
        return (read_schedstat() - before) * 1e-9

    return task


def by_key(run: Any) -> dict[Any, dict[str, Any]]:
    return {row["key"]: row for row in computed(run)}


def headers(run: Any) -> list[str]:
    return [file.read_header()["run_queue"] for file in trace_files(run, "TracePlugin")]


def assert_agrees(row: dict[str, Any], waited: float) -> None:
    """Assert that the recorded CPU wait is that of the task, or slightly longer."""
    assert waited * (1 - 2**-16) - 1e-6 <= row["run_queue"] <= waited + SLACK
    assert row["run_queue"] + row["cpu"] <= row["duration"] + SLACK


def thread_time_of(run: Any, name: str) -> float:
    table = TraceAnalyser(run.database()).time_accounting()
    return table.set_index("Class")["Thread Time (s)"][name]


def test_two_tasks_on_one_core_wait_for_it_in_turns(client: Client, tmp_path: Path) -> None:
    core, seconds, data = min(os.sched_getaffinity(0)), 1.5, bytes(1 << 20)

    def contend(name: str, other: str) -> None:
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        try:
            (tmp_path / name).touch()
            deadline = time.monotonic() + 120
            while not (tmp_path / other).exists():
                assert time.monotonic() < deadline
            end = time.monotonic() + seconds
            while time.monotonic() < end:  # without the GIL, since waiting for it is not CPU wait
                hashlib.sha256(data).digest()
        finally:
            os.sched_setaffinity(0, cores)

    first, second = client.nthreads()
    with dasfprof.profile(client, directory=tmp_path / "traces") as run:
        futures = [
            client.submit(measured(contend), "a", "b", workers=[first]),
            client.submit(measured(contend), "b", "a", workers=[second]),
        ]
        waited = client.gather(futures)
    rows = [by_key(run)[future.key] for future in futures]
    for row, seconds in zip(rows, waited, strict=True):
        assert_agrees(row, seconds)
    begin = max(row["timestamp"] for row in rows)
    end = min(row["timestamp"] + row["duration"] for row in rows)
    assert all(row["run_queue"] >= 0.2 * (end - begin) for row in rows)
    waits = sum(row["run_queue"] for row in rows)
    assert waits >= 0.8 * (end - begin)
    assert thread_time_of(run, "Waiting for CPU") == pytest.approx(waits, rel=1e-3)


def test_sleeping_is_no_wait_for_a_core(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        waited = client.submit(measured(time.sleep), 2.0).result()
    (row,) = computed(run)
    assert_agrees(row, waited)
    blocked = row["duration"] - row["cpu"] - row["run_queue"]
    assert blocked >= 2.0 - SLACK - waited
    assert thread_time_of(run, "Blocked") == pytest.approx(blocked, rel=1e-3)


def test_every_run_in_a_thread_is_measured(client: Client, tmp_path: Path) -> None:
    def leave(file: str) -> None:
        secede()
        time.sleep(0.05)

    def fail(file: str) -> None:
        raise OSError(file)

    def again(file: str) -> None:
        if not os.path.exists(file):
            Path(file).touch()
            raise Reschedule

    async def nap() -> None:
        await asyncio.sleep(0.01)

    with dasfprof.profile(client, directory=tmp_path / "traces") as run:
        futures = client.map(int, range(20), pure=False)
        futures += [client.submit(leave, ""), client.submit(fail, "bad", retries=1)]
        futures += [client.submit(again, str(tmp_path / "again")), client.submit(nap)]
        wait(futures)
    rows = computed(run)
    assert len(rows) == 20 + 1 + 2 + 2 + 1
    for row in rows:
        if row["name"] == "nap":
            assert row["run_queue"] is None
        else:
            assert 0 <= row["run_queue"] <= row["duration"] + SLACK
    assert_whole(run)
    assert headers(run) == ["available"] * 2


def test_brief_tasks_are_hardly_read_and_longer_ones_from_end_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = 0
    plain_pread = os.pread

    def counted(*args: Any) -> bytes:
        nonlocal reads
        reads += 1
        return plain_pread(*args)

    queue = thread_time.RunQueue(HookGuard())
    monkeypatch.setattr(os, "pread", counted)
    run = queue.wrap(lambda task, span, delay: dict(zip(("start", "stop"), span, strict=True)))

    def read(start: float, seconds: float) -> tuple[int, Any]:
        """Return how often the file was read for a task, and the last reading."""
        nonlocal reads
        reads = 0
        run(SimpleNamespace(key="x"), (start, start + seconds), 0.5)
        reading = queue.readings.pop("x")
        assert thread_time.correction_of(reading) == 0.5
        return reads, reading

    brief, longer = thread_time.BRIEF / 4, 2 * thread_time.BRIEF
    # First task of the thread: at its start and, because that is old, at its end.
    assert read(100.0, brief)[0] == 2
    for i in range(4):
        assert read(100.001 + i * 1e-4, brief) == (0, 0.5)
    assert read(100.0 + 2 * thread_time.STALE, brief) == (1, 0.5)
    reads, reading = read(100.02, longer)  # compared with the last reading, for an earlier task
    assert (reads, reading[3]) == (1, False)
    waited = thread_time.run_queue_seconds(reading)
    assert waited is not None
    assert 0 <= waited <= SLACK
    told = (b"1 0 1", b"2 3000000000 2", *reading[2:])  # it waited 3 s since the last reading
    assert thread_time.run_queue_seconds(told, duration=1.0, cpu=0.75) == 0.25
    reads, reading = read(100.03, longer)
    assert (reads, reading[3]) == (2, True)
    queue.stop()
    reads, reading = read(100.04, longer)
    assert (reads, reading) == (0, (reading[0], None, 0.5, False, 0.0))
    assert thread_time.cpu_seconds(reading, 0.0, 1.0) is None


def test_other_processes_and_other_threads(tmp_path: Path) -> None:
    executors = ("pool", "offload", "default")
    with (
        ProcessPoolExecutor(1) as pool,
        new_client(n_workers=1, processes=False, executor={"pool": pool}) as client,
        dasfprof.profile(client, directory=tmp_path) as run,
    ):
        for executor in executors:
            with dask.annotate(executor=executor):
                assert client.submit(pow, 2, 5, key=executor).result() == 32
    rows = by_key(run)
    waits = [rows[executor]["run_queue"] for executor in executors]
    assert waits[0] is None
    assert min(waits[1:]) >= 0
    assert_whole(run)


def test_what_a_system_does_not_tell_is_missing_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "schedstat"
    monkeypatch.setattr(thread_time, "SCHEDSTAT", str(path))
    with new_client(n_workers=1, processes=False) as client:
        for content in (None, "0 0 0\n", "unheard of\n", ""):
            if content is not None:
                path.write_text(content)
            with dasfprof.profile(client, directory=tmp_path / "traces") as run:
                client.gather(client.map(int, range(5), pure=False))
            assert [row["run_queue"] for row in computed(run)] == [None] * 5
            (reason,) = headers(run)
            missing = "No such file or directory"
            assert reason.endswith(missing if content is None else "the kernel does not count it")
            assert_whole(run)


def test_a_task_that_outlives_the_run_closes_its_file(client: Client, tmp_path: Path) -> None:
    def outlive() -> int:
        Event("begun").set()
        Event("end").wait(120)
        return 1

    run = dasfprof.register_default_profiler(client, directory=tmp_path)
    future = client.submit(outlive, key="outlives")
    assert Event("begun", client=client).wait(120)
    run.stop()
    Event("end", client=client).set()
    assert future.result() == 1
    wait_until(lambda: max(client.run(open_files, "schedstat").values()) == 0)
    assert client.run(_is_dasks_own) == dict.fromkeys(client.nthreads(), True)


def _is_dasks_own() -> bool:
    return distributed.worker._run_task_simple.__code__.co_filename == distributed.worker.__file__
