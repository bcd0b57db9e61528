"""Protects the look at a live cluster: in time, whoever is silent, and without dasfprof there."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from clusters import is_written, wait_until
from dask_processes import NOT_INSTALLED, certificates
from distributed import Client, LocalCluster
from distributed.comm import connect
from distributed.protocol.pickle import dumps

from dasfprof.errors import NoSchedulerError
from dasfprof.recording.cluster.by_value import WithModules, load_function
from dasfprof.recording.cluster.inspection import views_of
from dasfprof.recording.dask_internals.inspection import looks, processes, stacks

pytestmark = pytest.mark.whole_program

#: Seconds. Those who answer do so far sooner, on a busy machine too; the silent take it whole.
LIMIT = 10.0


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Give the port of a server, at every address of this host, that never says a word."""
    with socket.create_server(("0.0.0.0", 0), backlog=1000) as server:
        yield server.getsockname()[1]


async def register_silent(scheduler: str, port: int, number: int, metrics: Any) -> Any:
    """Register a worker with a scheduler of which there is only an address; gives the comm."""
    comm = await connect(scheduler)
    await comm.write(
        {
            "op": "register-worker",
            "reply": False,
            "address": f"tcp://127.0.1.{number}:{port}",
            "status": "running",
            "nthreads": 1,
            "name": f"silent-{number}",
            "now": time.time(),
            "resources": {},
            "memory_limit": None,
            "local_directory": "/tmp",
            "services": {},
            "nanny": None,
            "pid": 0,
            "versions": {},
            "metrics": metrics,
            "extra": {},
            "stimulus_id": "test",
            "server_id": f"silent-{number}",
        }
    )
    assert (await asyncio.wait_for(comm.read(), 60))["status"] == "OK"
    return comm


def test_a_hundred_workers_half_of_which_are_silent(silent_server: int) -> None:
    """Four are stopped, and 92 accept connections and never answer."""

    async def look(address: str, metrics: Any) -> tuple[float, dict[str, Any]]:
        async with AsyncExitStack() as stack:
            for number in range(92):
                comm = await register_silent(address, silent_server, number, metrics)
                stack.callback(comm.abort)
            for limit in (LIMIT, 4 * LIMIT):  # the nannies of a busy machine answer late
                begin = time.monotonic()
                views = await views_of(address, limit=limit)
                if all("process" in views["workers"][each.address] for each in workers[:4]):
                    break
            return (time.monotonic() - begin) / limit, views

    with LocalCluster(n_workers=8, threads_per_worker=1, dashboard_address=None) as cluster:
        workers = list(cluster.scheduler.workers.values())
        stopped = [worker.pid for worker in workers[:4]]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        with Client(cluster):
            metrics = dict(workers[7].metrics)
            limits, views = asyncio.run(look(cluster.scheduler_address, metrics))
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert len(views["workers"]) == 100
    silent = {address for address, answer in views["workers"].items() if "silence" in answer}
    assert {worker.address for worker in workers[:4]} <= silent
    assert len(silent) >= 96
    for worker in workers[:4]:
        assert views["workers"][worker.address]["process"] == "stopped"
    # Both looks at the scheduler, the limit, and the nannies, asked once it is clear who is silent.
    assert limits < 5


@pytest.fixture
def bare_scheduler(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Give a scheduler's file and the environment's path where dasfprof cannot be imported."""
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(NOT_INSTALLED)
    with start(tmp_path, "dask_scheduler", "--port", "0", "--scheduler-file", "s.json") as process:
        wait_until(lambda: is_written(tmp_path / "s.json"))
        yield str(tmp_path / "s.json"), tmp_path
        process.kill()


def start(place: Path, command: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{command}", "--no-dashboard", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place / "bare")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_processes_without_dasfprof_and_without_a_nanny(
    bare_scheduler: tuple[str, Path],
) -> None:
    file, place = bare_scheduler
    options = ("--scheduler-file", file, "--nthreads", "1", "--no-nanny", "--name")
    with (
        start(place, "dask_worker", *options, "first") as first,
        start(place, "dask_worker", *options, "second") as second,
        Client(scheduler_file=file, timeout=120) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        future = client.submit(time.sleep, 10_000, key="sleep-0", workers="first")
        wait_until(lambda: [key for keys in client.processing().values() for key in keys])
        os.kill(second.pid, signal.SIGSTOP)
        address = client.scheduler.address
        views = asyncio.run(views_of(address, limit=20.0))
        second.kill()
        second.wait()
        # Nothing else listens there, whether or not the scheduler has noticed.
        port = next(a for a, answer in views["workers"].items() if "silence" in answer)
        host, _, number = port.removeprefix("tcp://").rpartition(":")
        gone = asyncio.run(processes.state_of_listener(second.pid, host, int(number)))
        first.kill()
        del future
    by_name = {worker["name"]: worker["worker"] for worker in views["scheduler"][1]["workers"]}
    answers = {name: views["workers"][where] for name, where in by_name.items()}
    (task,) = answers["first"]["view"]["tasks"]
    assert (task["key"], task["thread_state"], task["unchanged"]) == ("sleep-0", "sleeping", True)
    assert task["cpu"] < 0.1
    assert answers["second"]["process"] == "stopped"
    assert gone == "gone"


LOOKS = [looks.look_at_worker, looks.look_at_scheduler, looks.look_at_workers]


@pytest.mark.parametrize("look", LOOKS)
def test_what_is_sent_loads_where_dasfprof_is_not(look: Any) -> None:
    code = "import sys, pickle; sys.modules['dasfprof'] = None; pickle.load(sys.stdin.buffer)"
    subprocess.run([sys.executable, "-c", code], input=dumps(WithModules(look)), check=True)


def test_byte_code_of_another_python_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"it has Python 3\.\d+, but the process .* has 3\.9"):
        load_function(b"", (3, 9))


def test_a_sent_function_leaves_the_modules_of_its_process_alone() -> None:
    before = set(sys.modules)
    function = pickle.loads(dumps(WithModules(looks.look_at_worker)))
    assert set(sys.modules) == before
    assert function is not looks.look_at_worker


def test_a_process_that_computes_sleeps_or_has_ended() -> None:
    programs = {"busy": "while True: pass", "idle": "time.sleep(1000)"}
    for expected, program in programs.items():
        with subprocess.Popen(
            [sys.executable, "-c", f"import time\nprint(flush=True)\n{program}"], stdout=-1
        ) as p:
            assert p.stdout is not None
            p.stdout.readline()
            if expected == "idle":  # it goes to sleep a moment later
                wait_until(lambda p=p: psutil.Process(p.pid).status() == psutil.STATUS_SLEEPING)
            assert asyncio.run(processes.process_state(p.pid)) == expected
            p.kill()
    assert asyncio.run(processes.process_state(p.pid)) == "gone"


#: Computes on one core, whoever else is there, with a thread beside it that sleeps.
ON_ONE_CORE = """
import os, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
os.nice(NICE)
print(flush=True)
while True: pass
"""


#: Its main thread waits in C and holds the interpreter's lock, for which others wake each 5 ms.
HOLDS_THE_LOCK = """
import ctypes, os, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for number in range(20):
    threading.Thread(target=time.sleep, args=(0.01,), daemon=True).start()
print(flush=True)
ctypes.PyDLL(None).pause()
"""


@pytest.mark.parametrize(
    ("program", "state"),
    [
        # Its threads use next to no CPU, but one could run whenever it is looked at.
        (ON_ONE_CORE.replace("NICE", "19"), "busy"),
        # A thread that wakes as it is looked at is not one that computes.
        (HOLDS_THE_LOCK, "idle"),
    ],
    ids=["computes", "wakes for a lock"],
)
def test_a_process_where_others_take_the_core(program: str, state: str) -> None:
    hog = ON_ONE_CORE.replace("NICE", "0")
    with contextlib.ExitStack() as stack:
        started = []
        for code in (program, hog, hog, hog):
            p = stack.enter_context(subprocess.Popen([sys.executable, "-c", code], stdout=-1))
            stack.callback(p.kill)
            assert p.stdout is not None
            p.stdout.readline()
            started.append(p)
        assert asyncio.run(processes.process_state(started[0].pid)) == state


def test_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    security = certificates(tmp_path)
    with LocalCluster(
        n_workers=1, processes=False, protocol="tls", security=security, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        views = asyncio.run(views_of(address, security.get_connection_args("client"), 60.0))
        assert ["view" in answer for answer in views["workers"].values()] == [True]
        assert "handshake" not in caplog.text
        with pytest.raises(NoSchedulerError, match="tls"):
            asyncio.run(views_of(address.replace("tls:", "tcp:"), limit=10.0))


def test_the_address_of_a_worker_leads_to_the_scheduler_s(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("distributed.core")
    logger.addHandler(caplog.handler)
    try:
        with LocalCluster(
            n_workers=1, processes=False, protocol="tcp", dashboard_address=None
        ) as cluster:
            (worker,) = cluster.scheduler.workers
            words = f"a Worker listens at {worker}, .* address: {cluster.scheduler_address}\\."
            with pytest.raises(NoSchedulerError, match=words):
                asyncio.run(views_of(worker, limit=LIMIT))
    finally:
        logger.removeHandler(caplog.handler)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_look_at_frames_keeps_nothing_alive() -> None:
    """Only the collector would end a cycle: until then, what tasks had would stay in memory."""

    class Large:
        pass

    def task() -> None:
        nonlocal held
        value = Large()
        held = weakref.ref(value)
        go.wait()

    def look() -> bool:
        frames = stacks.current_frames()
        return thread.ident in frames

    held: weakref.ref[Large] | None = None
    go = threading.Event()
    thread = threading.Thread(target=task)
    gc.disable()
    try:
        thread.start()
        wait_until(lambda: held is not None)
        seen = look()
        go.set()
        thread.join()
        assert seen
        assert held is not None and held() is None
    finally:
        gc.enable()
