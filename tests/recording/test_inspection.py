"""Inspection of a live cluster: in time even if processes are silent, and without dasfprof."""

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
from clusters import wait_until
from dask_processes import NOT_INSTALLED, Processes, certificates
from distributed import Client, LocalCluster
from distributed.comm import connect
from distributed.protocol.pickle import dumps

from dasfprof.errors import NoSchedulerError
from dasfprof.recording.cluster.by_value import WithModules, load_function
from dasfprof.recording.cluster.inspection import views_of
from dasfprof.recording.dask_internals.inspection import looks, stacks
from dasfprof.recording.dask_internals.inspection.processes import process_state, state_of_listener

pytestmark = pytest.mark.whole_program

#: Time limit (s) of an inspection. Processes that answer do so much sooner, also on busy machines.
LIMIT = 10.0


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Yield the port of a server on all addresses of this host that never answers."""
    with socket.create_server(("0.0.0.0", 0), backlog=1000) as server:
        yield server.getsockname()[1]


async def register_silent(scheduler: str, port: int, number: int, metrics: Any) -> Any:
    """Register a worker that is only an address with a scheduler, and return the comm."""
    comm = await connect(scheduler)
    name = f"silent-{number}"
    message = {"op": "register-worker", "address": f"tcp://127.0.1.{number}:{port}", "pid": 0}
    message |= {"reply": False, "status": "running", "nthreads": 1, "memory_limit": None}
    message |= {"name": name, "server_id": name, "now": time.time(), "local_directory": "/tmp"}
    message |= {each: {} for each in ("resources", "services", "versions", "extra")}
    await comm.write(message | {"nanny": None, "metrics": metrics, "stimulus_id": "test"})
    assert (await asyncio.wait_for(comm.read(), 60))["status"] == "OK"
    return comm


def test_a_hundred_workers_half_of_which_are_silent(silent_server: int) -> None:
    """Four workers are stopped, and 92 accept connections but never answer."""

    async def look(address: str, metrics: Any) -> tuple[float, dict[str, Any]]:
        async with AsyncExitStack() as stack:
            for number in range(92):
                comm = await register_silent(address, silent_server, number, metrics)
                stack.callback(comm.abort)
            for limit in (LIMIT, 4 * LIMIT):  # nannies answer late on a busy machine
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
    # Two inspections of the scheduler, the limit, and the nannies, which are asked after the limit.
    assert limits < 5


def test_processes_without_dasfprof_and_nanny(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(NOT_INSTALLED)
    path = str(tmp_path / "bare")
    processes.scheduler(path=path)
    first, second = (processes.worker(path=path) for _ in range(2))
    with processes.client() as client:
        client.wait_for_workers(2, timeout=120)
        address_of = {pid: address for address, pid in client.run(os.getpid).items()}
        workers = [address_of[first.pid]]
        future = client.submit(time.sleep, 10_000, key="sleep-0", workers=workers)
        wait_until(lambda: [key for keys in client.processing().values() for key in keys])
        os.kill(second.pid, signal.SIGSTOP)
        views = asyncio.run(views_of(client.scheduler.address, limit=20.0))["workers"]
        second.kill()
        second.wait()
        # No process listens there, whether or not the scheduler has noticed.
        host, _, port = address_of[second.pid].removeprefix("tcp://").rpartition(":")
        gone = asyncio.run(state_of_listener(second.pid, host, int(port)))
        first.kill()
        del future
    (task,) = views[address_of[first.pid]]["view"]["tasks"]
    assert (task["key"], task["thread_state"], task["unchanged"]) == ("sleep-0", "sleeping", True)
    assert task["cpu"] < 0.1
    assert views[address_of[second.pid]]["process"] == "stopped"
    assert gone == "gone"


@pytest.mark.parametrize("look", ["look_at_worker", "look_at_scheduler", "look_at_workers"])
def test_what_is_sent_loads_where_dasfprof_is_not(look: str) -> None:
    sent = WithModules(getattr(looks, look))
    code = "import sys, pickle; sys.modules['dasfprof'] = None; pickle.load(sys.stdin.buffer)"
    subprocess.run([sys.executable, "-c", code], input=dumps(sent), check=True)


def test_a_sent_function_leaves_the_modules_of_its_process_alone() -> None:
    with pytest.raises(RuntimeError, match=r"it has Python 3\.\d+, but the process .* has 3\.9"):
        load_function(b"", (3, 9))
    before = set(sys.modules)
    function = pickle.loads(dumps(WithModules(looks.look_at_worker)))
    assert set(sys.modules) == before
    assert function is not looks.look_at_worker


@contextlib.contextmanager
def started(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that prints a line when it has started."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_a_process_that_computes_sleeps_or_has_ended() -> None:
    programs = {"busy": "while True: pass", "idle": "time.sleep(1000)"}
    for expected, program in programs.items():
        with started(f"import time\nprint(flush=True)\n{program}") as p:
            if expected == "idle":  # it sleeps a moment later
                wait_until(lambda p=p: psutil.Process(p.pid).status() == psutil.STATUS_SLEEPING)
            assert asyncio.run(process_state(p.pid)) == expected
    assert asyncio.run(process_state(p.pid)) == "gone"


#: Computes on one core, next to a sleeping thread.
ON_ONE_CORE = """
import os, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
os.nice(NICE)
print(flush=True)
while True: pass
"""


#: Its main thread waits in C and holds the GIL; other threads wake every 5 ms to get it.
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
        # Its threads use almost no CPU, but one of them is runnable in each sample.
        (ON_ONE_CORE.replace("NICE", "19"), "busy"),
        # A thread that happens to wake during a sample is not computing.
        (HOLDS_THE_LOCK, "idle"),
    ],
    ids=["computes", "wakes for a lock"],
)
def test_a_process_where_others_take_the_core(program: str, state: str) -> None:
    hog = ON_ONE_CORE.replace("NICE", "0")
    with started(program) as process, started(hog), started(hog), started(hog):
        assert asyncio.run(process_state(process.pid)) == state


def test_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    security = certificates(tmp_path)
    options = {"n_workers": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**options, protocol="tls", security=security) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        views = asyncio.run(views_of(address, security.get_connection_args("client"), 60.0))
        assert ["view" in answer for answer in views["workers"].values()] == [True]
        assert "handshake" not in caplog.text
        with pytest.raises(NoSchedulerError, match="tls"):
            asyncio.run(views_of(address.replace("tls:", "tcp:"), limit=10.0))


def test_the_address_of_a_worker_leads_to_its_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("distributed.core")
    logger.addHandler(caplog.handler)
    options = {"n_workers": 1, "processes": False, "dashboard_address": None}
    try:
        with LocalCluster(**options, protocol="tcp") as cluster:
            (worker,) = cluster.scheduler.workers
            words = f"a Worker listens at {worker}, .* address: {cluster.scheduler_address}\\."
            with pytest.raises(NoSchedulerError, match=words):
                asyncio.run(views_of(worker, limit=LIMIT))
    finally:
        logger.removeHandler(caplog.handler)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_look_at_frames_keeps_nothing_alive() -> None:
    """A reference cycle would keep objects of tasks in memory until garbage collection."""

    def task() -> None:
        nonlocal held
        value = set()
        held = weakref.ref(value)
        go.wait()

    held: Any = None
    go = threading.Event()
    thread = threading.Thread(target=task)
    gc.disable()
    try:
        thread.start()
        wait_until(lambda: held is not None)
        seen = thread.ident in stacks.current_frames()
        go.set()
        thread.join()
        assert seen
        assert held() is None
    finally:
        gc.enable()
