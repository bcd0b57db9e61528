"""Traces on workers' separate disks are collected completely and once, whichever process dies."""

import asyncio
import operator
import os
import random
import shutil
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import independent_record as record
import pandas as pd
import pytest
from click.testing import CliRunner
from clusters import new_client
from dask_processes import PATHS, Processes, may_mount
from distributed import Client, wait
from recorded_facts import assert_same_runs, assert_whole, computed

import dasfprof
from dasfprof.cli.main import cli
from dasfprof.database import FileDatabase, frames
from dasfprof.database.multi import identity_of, was_received
from dasfprof.database.reader import TraceFile
from dasfprof.errors import InvalidArgumentError
from dasfprof.recording.settings import make_settings
from dasfprof.recording.shipping.file_tails import PIECE_BYTES, FileTail
from dasfprof.recording.shipping.receiver import (
    MOST_WAITING,
    PAUSE_A_WORKER,
    ReceivedFile,
    Receiver,
    RefusedError,
)
from dasfprof.schema.events import InstantEvent

whole_program = pytest.mark.whole_program

#: Seconds by which a busy machine, and a quiet one, may delay a worker's threads and messages.
PATIENCE, QUIET_PATIENCE = 10.0, 2.0


def work(i: int) -> int:
    time.sleep(0.002)
    return i * i


def square_all(client: Client, name: str, count: int = 100, **options: Any) -> None:
    keys = [f"{name}-{i}" for i in range(count)]
    futures = client.map(work, range(count), key=keys, **options)
    assert client.gather(futures) == [i * i for i in range(count)]
    # Tasks must not be recomputed when a worker leaves.
    del futures
    record.wait_until(lambda: not client.run_on_scheduler(known_keys))


def known_keys(dask_scheduler: Any) -> list[Any]:
    return list(dask_scheduler.tasks)


def test_all_workers_ship_if_they_are_told_to(tmp_path: Path) -> None:
    with new_client(n_workers=2, threads_per_worker=1) as client:
        record.install(client)
        with dasfprof.profile(
            client, directory=tmp_path, ship="scheduler", flush_interval=60
        ) as run:
            square_all(client, "before")
            run.flush()
            assert_same_runs(run, record.outcomes(client, "memory"))
            received = [path for path in tmp_path.iterdir() if was_received(path)]
            assert {path.stat().st_size for path in received} != {0}
            square_all(client, "after")
            originals = hold(tmp_path)
        assert_whole(run)
        for source in (run, Directory(tmp_path), Directory(tmp_path, "*.msgpack")):
            assert_same_runs(source, record.outcomes(client, "memory"))
        received = [path for path in tmp_path.iterdir() if was_received(path)]
        assert len(received) == 4
        # Files that were received completely are removed on the worker.
        for path in received:
            name = path.name.replace(".received", "")
            assert path.read_bytes() == (originals / name).read_bytes()
            assert not (tmp_path / name).exists()
        assert not [path for path in tmp_path.glob("[!o]*") if path.suffix != ".msgpack"]
        assert client.run_on_scheduler(handlers) == []
        assert set(client.run(shippers).values()) == {0}

        # With a shared directory, which is the usual case, files are not forwarded.
        with dasfprof.profile(client, directory=tmp_path / "common") as run:
            square_all(client, "common")
            assert set(client.run(shippers).values()) == {0}
        assert not any(map(was_received, run.files()))


def hold(where: Path) -> Path:
    """Keep the files in a directory, and later writes to them, after they have been removed."""
    originals = where / "originals"
    originals.mkdir(exist_ok=True)
    for path in where.glob("*.msgpack"):
        if not was_received(path) and not (originals / path.name).exists():
            os.link(path, originals / path.name)
    return originals


class Directory:
    """Files of a directory, as `open_run` finds them."""

    def __init__(self, *parts: Any) -> None:
        self.databases = dasfprof.open_run(Path(*parts)).databases

    def files(self) -> list[Path]:
        return [database.path for database in self.databases]  # type: ignore[attr-defined]


def handlers(dask_scheduler: Any) -> list[str]:
    return [name for name in dask_scheduler.handlers if name.startswith("dasfprof")]


def shippers() -> int:
    return sum("shipper" in thread.name for thread in threading.enumerate())


def test_settings() -> None:
    assert make_settings().ship == "auto"
    for name in ("yes", True, 1):
        with pytest.raises(InvalidArgumentError, match="'scheduler'"):
            make_settings(ship=name)


def recorded(path: Path, run_uuid: str, count: int = 3, blocks: int = 1) -> FileDatabase:
    """Write a file of a run, and return its path."""
    database = FileDatabase(path, new=True, header={"run_uuid": run_uuid, "plugin": "TracePlugin"})
    for _ in range(blocks):
        for i in range(count):
            database.record(InstantEvent(f"event-{i}", float(i)))
        database.commit()
    return database


def test_a_tail_gives_whole_frames_once(tmp_path: Path) -> None:
    path = tmp_path / "own.msgpack"
    tail = FileTail([path], 0, PIECE_BYTES)
    assert tail.read() == b""
    recorded(path, "a", blocks=3).close()
    whole = path.read_bytes()
    choose = random.Random(1)
    got = b""
    for end in [*sorted(choose.sample(range(len(whole)), 40)), len(whole)]:
        path.write_bytes(whole[:end])
        data = tail.read()
        assert frames.end_of_frames(data) == len(data)
        tail.offset += len(data)
        got += data
    assert got == whole
    # Damaged frames are sent too, and a frame that is longer than a piece arrives complete.
    long = frames.build_frame(b"\x90" + b"x" * 3 * PIECE_BYTES)
    with path.open("ab") as file:
        file.write(b"damage" + long + long[: PIECE_BYTES // 2])
    assert tail.read() == b"damage" + long
    # A file that was removed and created again is a new file.
    identity = tail.id
    path.rename(tmp_path / "old")
    path.write_bytes(whole)
    assert tail.read() == whole
    assert tail.id != identity


def test_a_received_file_takes_each_byte_once(tmp_path: Path) -> None:
    own = tmp_path / "own.msgpack"
    recorded(own, "a", blocks=20).close()
    whole = own.read_bytes()
    cuts = [0]
    for position, payload in frames.scan_frames(whole, frames.Damage()):
        cuts.append(position + frames.HEAD_BYTES + len(payload))
    taken = tmp_path / "taken.msgpack"
    taken.write_bytes(b"somebody's")
    received = ReceivedFile(taken, "a")
    choose = random.Random(2)
    received.add(cuts[3], whole[cuts[3] :])  # the previous blocks are missing
    assert received.size == 0
    while received.size < len(whole):
        begin, end = sorted(choose.sample(cuts, 2))
        received.add(begin, whole[begin:end])  # repeats, overlaps, gaps
    assert received.path.read_bytes() == whole
    assert taken.read_bytes() == b"somebody's"
    # If the file is removed, the worker must send all of it again.
    received.path.unlink()
    received.add(cuts[5], whole[cuts[5] :])
    assert received.size == 0
    received.add(0, whole)
    assert received.path.read_bytes() == whole


def test_what_is_no_part_of_the_run_is_refused(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in "ab"}
    for name, path in files.items():
        recorded(path, name).close()
    begin = "does not begin as a file of this run"
    for data, why in (
        (b"rubbish" * 100, begin),
        (files["b"].read_bytes(), begin),
        (frames.build_frame(b"\xc0"), begin),
        (files["a"].read_bytes() + b"rubbish", "not blocks of a trace"),
    ):
        received = ReceivedFile(tmp_path / "received.msgpack", "a")
        with pytest.raises(RefusedError, match=why):
            received.add(0, data)
        assert not received.path.exists()


def message(path: Path, name: str, position: int = 0) -> list[dict[str, Any]]:
    return [{"id": name, "name": name, "position": position, "data": path.read_bytes()[position:]}]


def test_what_a_scheduler_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker gets answers about its blocks alone, and a hanging disk does not fill memory."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    recorded(good, "a").close()
    recorded(bad, "b").close()
    traces = tmp_path / "traces"
    traces.mkdir()

    async def scenario() -> None:
        settings = make_settings(name="r", directory=traces, add_time_suffix=False)
        receiver = Receiver(replace(settings, uuid="a"), SimpleNamespace(handlers={}))
        for name in ("../r.msgpack", "/r.msgpack", "r.txt", "other.msgpack", "r\0.msgpack"):
            reply = await receiver.receive("x", message(good, name), wait=True)
            assert reply["over"]
            assert "not a name of a file of this run" in reply["trouble"]
        odd = [{**message(good, "r-0.msgpack")[0], "position": "first"}]
        assert (await receiver.receive("x", odd, wait=True))["over"]
        reply = await receiver.receive("x", message(bad, "r-1.msgpack"), wait=True)
        assert (reply["over"], reply["have"]) == (True, {"r-1.msgpack": 0})
        # Blocks in the middle are missing: the answer contains the position to send again.
        reply = await receiver.receive("y", message(good, "r-2.msgpack", 30), wait=True)
        assert (reply["over"], reply["have"]) == (False, {"r-2.msgpack": 0})
        reply = await receiver.receive("y", message(good, "r-2.msgpack"), wait=True)
        assert (reply["over"], reply["have"], reply["trouble"]) == (False, {}, "")
        assert reply["pause"] == 2 * PAUSE_A_WORKER
        assert [path.name for path in traces.iterdir()] == ["r-2.received.msgpack"]
        assert (traces / "r-2.received.msgpack").read_bytes() == good.read_bytes()
        # While a disk hangs, pending blocks are limited, and the event loop is not blocked.
        hangs = threading.Event()
        monkeypatch.setattr(ReceivedFile, "add", lambda *_: hangs.wait(60))
        block = {"id": "r-3.msgpack", "name": "r-3.msgpack", "data": bytes(1 << 20)}
        replies = [
            await receiver.receive("y", [{**block, "position": i << 20}]) for i in range(100)
        ]
        troubles = [reply["trouble"] for reply in replies]
        assert troubles.count("") in (MOST_WAITING >> 20, (MOST_WAITING >> 20) + 1)
        assert set(troubles[-20:]) == {"the scheduler's disk does not keep up"}
        assert replies[-1]["have"] == {"r-3.msgpack": 99 << 20}
        hangs.set()
        receiver.stop()

    asyncio.run(scenario())


TABLES = (
    *("per_function_bottleneck", "per_task_bottleneck", "per_worker_task_balance", "transfers"),
    *("per_task_status", "processes_resource_usage", "time_accounting"),
)


class Cluster:
    """Scheduler and workers with separate or shared disks."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.traces = processes.directory / "traces"
        self.originals = processes.directory / "originals"
        self.originals.mkdir()

    def worker(self, client: Client, **options: Any) -> tuple[str, subprocess.Popen[bytes]]:
        """Start a worker with a separate disk, and return its address."""
        before = set(client.nthreads())
        process = self.processes.worker(disk=self.traces, **options)
        (address,) = record.wait_until(lambda: set(client.nthreads()) - before)
        return address, process

    def hold_disk(self, pid: int) -> int:
        """Keep a process's disk after the process has ended, and return a descriptor."""
        return os.open(f"/proc/{pid}/root{self.traces}", os.O_RDONLY | os.O_DIRECTORY)

    def keep(self, disk: int | Path) -> None:
        """Copy the files of a disk to the directories that simulate a shared disk."""
        where = Path(f"/proc/self/fd/{disk}") if isinstance(disk, int) else disk
        for path in (*where.glob("*.msgpack"), *where.glob("originals/*.msgpack")):
            if not was_received(path):
                shutil.copy(path, self.originals / path.name)

    def assert_same(self, run: Any, **closed: bool) -> None:
        """Assert that the run's files and tables equal those on the workers' disks."""
        there, here = by_identity(self.originals), by_identity(run)
        assert there.keys() == here.keys()
        for identity, path in there.items():
            assert here[identity].read_bytes() == path.read_bytes(), path.name
        ours = run.analyser(progress=False)
        theirs = dasfprof.TraceAnalyser(str(self.originals), progress=False)
        for name in TABLES:
            pd.testing.assert_frame_equal(getattr(ours, name)(), getattr(theirs, name)())


def has_received(traces: Path, address: str) -> bool:
    """Return whether the scheduler has received task runs of a worker."""
    return any(
        batch.name == "Compute"
        for path in filter(was_received, traces.glob("*TracePlugin*.msgpack"))
        if TraceFile(path).read_header()["worker"]["address"] == address
        for batch in TraceFile(path).batches()
    )


def by_identity(source: Any) -> dict[str, Path]:
    files = sorted(source.glob("*.msgpack")) if isinstance(source, Path) else source.files()
    return {identity_of(TraceFile(path).read_header()): path for path in files}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Processes that may have their own disks where the traces are."""
    (tmp_path / "traces").mkdir()
    if not may_mount(tmp_path / "traces"):
        pytest.skip("this user may not mount disks")
    processes = Processes(tmp_path)
    yield Cluster(processes)
    processes.end()


@whole_program
@pytest.mark.parametrize("ship", ["off", "scheduler", "storage"])
def test_segments_of_long_runs_come_home(tmp_path: Path, ship: str) -> None:
    directory = f"file://{tmp_path}" if ship == "storage" else str(tmp_path)
    options = {"directory": directory, "ship": ship, "segment_size": "4kB", "commit_threshold": 20}
    keys = []
    with new_client(n_workers=2, threads_per_worker=1) as client:
        with dasfprof.profile(client, max_pending=1000, **options) as run:
            for first in range(0, 400, 100):
                futures = client.map(operator.neg, range(first, first + 100))
                wait(futures)
                keys += [future.key for future in futures]
                run.flush()
        if ship == "scheduler":
            received = {path.name for path in tmp_path.iterdir() if was_received(path)}
            assert sum("segment" in name and "TracePlugin" in name for name in received) >= 2
        trace = run.analyser().trace
    assert sum("segment" in path.name for path in run.files()) > 4
    assert sorted(trace.keys.keys(trace.tasks["key_id"].to_numpy())) == sorted(keys)
    assert trace.workers["closed"].dropna().tolist() == [True, True]
    assert not [note for note in trace.notes if note.kind in ("segment-missing", "not-closed")]


@whole_program
def test_workers_come_and_go(cluster: Cluster) -> None:
    process = cluster.processes.scheduler(disk=cluster.traces)
    with cluster.processes.client() as client:
        record.install(client)
        workers = [cluster.worker(client) for _ in range(2)]
        disks = [cluster.hold_disk(worker.pid) for _, worker in workers]
        with dasfprof.profile(client, directory=cluster.traces) as run:
            square_all(client, "two")
            run.flush()
            assert_same_runs(run, record.outcomes(client, "memory"))
            held = [hold(Path(f"/proc/self/fd/{disk}")) for disk in disks]
            late = cluster.worker(client, nanny=True)
            disks.append(cluster.hold_disk(late[1].pid))
            square_all(client, "three")
            square_all(client, "late", 3, workers=[late[0]])
            client.retire_workers([workers[0][0]])
            assert workers[0][1].wait(240) == 0
            square_all(client, "two-again")
            os.kill(workers[1][1].pid, signal.SIGTERM)
            workers[1][1].wait(240)
            record.wait_until(lambda: len(client.nthreads()) == 1)
            square_all(client, "one")
            held.append(hold(Path(f"/proc/self/fd/{disks[-1]}")))
        assert_same_runs(run, record.outcomes(client, "memory"))
        assert_whole(run)
        # Workers have no files that the scheduler has completely.
        assert not [path for where in held for path in where.parent.glob("*.msgpack")]
        for disk in disks:
            cluster.keep(disk)
            os.close(disk)
        cluster.keep(Path(f"/proc/{process.pid}/root{cluster.traces}"))
        cluster.keep(cluster.traces)
        cluster.assert_same(run)
        collected = run.collect(cluster.processes.directory / "collected")
        assert {path.name for path in collected} == {path.name for path in run.files()}


@whole_program
def test_workers_that_share_the_schedulers_disk_do_not_ship(cluster: Cluster) -> None:
    """The client's disk is separate, so files come from the scheduler's disk."""
    scheduler = cluster.processes.scheduler()
    worker = cluster.processes.worker()
    traces = cluster.traces
    script = f"""
        import os, sys
        sys.path[:0] = {PATHS.split(os.pathsep)!r}
        import dasfprof, test_shipping as tests
        from dasfprof.database.multi import was_received
        with tests.Client(scheduler_file={str(cluster.processes.scheduler_file)!r}) as client:
            client.wait_for_workers(1)
            tests.record.install(client)
            with dasfprof.profile(client, directory={str(traces)!r}) as run:
                tests.square_all(client, "here")
                assert set(client.run(tests.shippers).values()) == {{0}}
            tests.assert_same_runs(run, tests.record.outcomes(client, "memory"))
            tests.assert_whole(run)
            assert len(run.files()) == 4, run.files()
            assert not any(map(was_received, run.files()))
    """
    code = cluster.processes.start("-c", textwrap.dedent(script), disk=traces)
    assert code.wait(240) == 0
    assert len(list(traces.glob("*.msgpack"))) == 3  # the files of the scheduler and the worker
    assert not list(traces.glob(".*"))
    assert (scheduler.poll(), worker.poll()) == (None, None)


@whole_program
def test_killed_worker_loses_its_last_second(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    patience = QUIET_PATIENCE if request.config.getoption("--long") else PATIENCE
    cluster.processes.scheduler()
    with cluster.processes.client() as client:
        record.install(client)
        (victim, process), (other, _) = (cluster.worker(client) for _ in range(2))
        disk = cluster.hold_disk(process.pid)
        with dasfprof.profile(client, directory=cluster.traces) as run:
            futures = client.map(work, range(2000), key=[f"load-{i}" for i in range(2000)])
            record.wait_until(lambda: record.count_on(client, victim) > 300)
            # Forwarded events arrive before it dies, without a request.
            record.wait_until(lambda: has_received(cluster.traces, victim), every=0.1)
            process.kill()
            killed = time.time()
            assert client.gather(futures) == [i * i for i in range(2000)]

        def runs_of(rows: list[dict[str, Any]], name: str, address: str) -> dict[Any, Any]:
            return {(row["key"], row["run_id"]): row for row in rows if row[name] == address}

        outcomes = record.outcomes(client, "memory")
        ours, known = (
            runs_of(rows, name, victim)
            for rows, name in ((computed(run), "address"), (outcomes, "worker"))
        )
        # Its file and the forwarded file differ by at most one message.
        assert ours
        told = " ".join(CliRunner().invoke(cli, ["info", str(cluster.traces)]).stdout.split())
        assert told.count("What its process had not yet written is missing") == 2
        assert "without a file" not in told
        missing = [known[each]["stop"] for each in known.keys() - ours.keys()]
        assert all(stop > killed - 1 - patience for stop in missing)
        cluster.keep(disk)
        os.close(disk)
        here = by_identity(run)
        for identity, path in by_identity(cluster.originals).items():
            received = here[identity].read_bytes()
            assert path.read_bytes()[: len(received)] == received
        others = runs_of(computed(run), "address", other)
        assert others.keys() == runs_of(outcomes, "worker", other).keys()


@whole_program
def test_what_reached_the_scheduler_is_found(cluster: Cluster) -> None:
    scheduler = cluster.processes.scheduler()
    with cluster.processes.client() as client:
        record.install(client)
        for _ in range(2):
            cluster.worker(client)
        script = f"""
            import sys
            sys.path[:0] = {PATHS.split(os.pathsep)!r}
            import dasfprof, test_shipping as tests
            client = tests.Client(scheduler_file={str(cluster.processes.scheduler_file)!r})
            run = dasfprof.register_default_profiler(client, directory={str(cluster.traces)!r})
            tests.square_all(client, "early")
            print("done", flush=True)
            sys.stdin.read()
        """
        killed = cluster.processes.start("-c", textwrap.dedent(script))
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"done\n"
        killed.kill()
        killed.wait()
        square_all(client, "late")
        runs = record.outcomes(client, "memory")
        assert len(runs) == 200
        found = Directory(cluster.traces)
        record.wait_until(lambda: len(computed(Directory(cluster.traces))) == 200)
        assert all(was_received(p) for p in found.files() if "TracePlugin" in p.name)
        # Tasks of another client have keys without texts.
        early = [row for row in runs if row["key"].startswith("early")]
        assert_same_runs(Directory(cluster.traces), early, others=100)
        client.shutdown()
        scheduler.wait(240)
        after = Directory(cluster.traces)
        assert_same_runs(after, early, others=100)
        assert all(TraceFile(path).is_closed() for path in after.files() if was_received(path))


@whole_program
def test_a_scheduler_whose_disk_is_full(cluster: Cluster) -> None:
    """Blocks without free disk space are fetched from the workers' disks at the end."""
    scheduler = cluster.processes.scheduler(disk=cluster.traces, size="64k")
    with cluster.processes.client() as client:
        record.install(client)
        address, worker = cluster.worker(client)
        disk = cluster.hold_disk(worker.pid)
        with dasfprof.profile(client, directory=cluster.traces) as run:
            square_all(client, "load", 1500)
            run.flush()
        where = Path(f"/proc/{scheduler.pid}/root{cluster.traces}")
        received = {
            path.name.replace(".received", ""): path.read_bytes()
            for path in where.iterdir()
            if was_received(path)
        }
        cluster.keep(disk)
        os.close(disk)
        short = 0
        for path in cluster.originals.glob("*.msgpack"):
            data = received.get(path.name, b"")
            assert path.read_bytes()[: len(data)] == data
            short += len(data) < path.stat().st_size
        assert short
        assert_same_runs(run, record.outcomes(client, "memory"))
        assert {row["address"] for row in computed(run)} == {address}
        for path in run.files():
            if "SchedulerPlugin" not in path.name:
                assert TraceFile(path).is_closed(), path
