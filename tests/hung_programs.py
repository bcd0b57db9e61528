"""Programs that hang: ``python hung_programs.py PLANT [TRACES]`` runs one of them.

Each program starts a cluster of worker processes, plants one cause of a hang, prints
``planted ADDRESS``, and waits for its results as a user's program would.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import distributed

#: Duration (s) of the programs that do not hang.
HONEST = 20.0


@dataclass(frozen=True)
class Plant:
    """Planted cause of a hang, and how it must be reported."""

    #: Submits the work to a client, and returns the futures for which the program waits.
    submit: Callable[[Any], Any]
    #: Regular expression that the first finding, or the first cause, must match.
    says: str
    #: Kinds of causes (`Cause.kind`). The first cause must have one of them.
    kinds: tuple[str, ...]
    workers: int = 2
    threads: int = 1
    #: Keyword arguments of the workers.
    options: tuple[tuple[str, Any], ...] = ()
    #: Waits for the results. By default, the client calls `gather`.
    wait: Callable[[Any, Any], object] | None = None


def wait_for_event() -> None:
    distributed.Event("never-set").wait()


def wait_for_lock() -> None:
    distributed.Lock("held-forever").acquire()


def hold_lock() -> None:
    distributed.Lock("held-forever").acquire()
    threading.Event().wait()


def take_crosswise(first: str, second: str) -> None:
    with distributed.Lock(first):
        distributed.Event(f"has-{first}").set()
        distributed.Event(f"has-{second}").wait()
        with distributed.Lock(second):
            pass


def wait_for_semaphore() -> None:
    distributed.Semaphore(max_leases=1, name="one-lease").acquire()


def read_queue() -> Any:
    return distributed.Queue("nobody-fills").get()


def read_variable() -> Any:
    return distributed.Variable("nobody-sets").get()


def parent(number: int) -> Any:
    client = distributed.get_client()
    children = client.map(
        pow, range(number, number + 3), [2] * 3, key=[f"child-{number}-{i}" for i in range(3)]
    )
    return client.gather(children)


def lock_of_process() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def silent_socket() -> bytes:
    kept, theirs = socket.socketpair()
    with kept:
        return theirs.recv(1)


def child_process() -> None:
    subprocess.run(["sleep", "1000"], check=True)


def sleep_long() -> None:
    time.sleep(1000)


def endless_loop() -> None:
    number = 0
    while number >= 0:
        number += 1


def endless_in_c() -> None:
    import zlib

    data = bytes(1 << 30)
    while True:
        zlib.crc32(data)


def hold_gil() -> None:
    ctypes.PyDLL(None).pause()


def stop_process() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def die() -> None:
    time.sleep(1.2)
    os.kill(os.getpid(), signal.SIGKILL)


def fail(number: int) -> int:
    raise ValueError(f"no {number}")


def add_one(number: int) -> int:
    return number + 1


def slow(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def busy(number: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1
    return number


def one(function: Callable[..., Any], *args: Any, **options: Any) -> Callable[[Any], Any]:
    def submit(client: Any) -> Any:
        return [client.submit(function, *args, key=f"{function.__name__}-1", **options)]

    return submit


def crossed(client: Any) -> Any:
    return [
        client.submit(take_crosswise, *names, key=f"take_crosswise-{number}")
        for number, names in enumerate((("left", "right"), ("right", "left")))
    ]


def locked(client: Any) -> Any:
    holder = client.submit(hold_lock, key="hold_lock-1")
    while not any("held-forever" in str(item) for item in _semaphores(client)):
        time.sleep(0.05)
    return [holder, client.submit(wait_for_lock, key="wait_for_lock-1")]


def _semaphores(client: Any) -> Any:
    return client.run_on_scheduler(
        lambda dask_scheduler: list(dask_scheduler.extensions["semaphores"].leases.items())
    )


def leased(client: Any) -> Any:
    client.kept = distributed.Semaphore(max_leases=1, name="one-lease")
    client.kept.acquire()
    return one(wait_for_semaphore)(client)


def parents(client: Any) -> Any:
    return client.map(parent, [10, 20], key=["parent-1", "parent-2"])


def lost_message(client: Any) -> Any:
    """Let the only worker drop the message that assigns a task to it."""

    def drop(dask_worker: Any) -> None:
        dask_worker.stream_handlers["compute-task"] = lambda **message: None

    client.run(drop)
    return one(add_one, 1)(client)


def paused(client: Any) -> Any:
    """Fill the memory of all workers until they pause, but are not killed."""

    def fill(dask_worker: Any) -> None:
        import numpy as np
        import psutil

        wanted = int(0.87 * dask_worker.memory_manager.memory_limit)
        missing = wanted - psutil.Process().memory_info().rss
        dask_worker.monitor.kept = np.ones(missing, dtype=np.uint8)

    client.run(fill)
    while not all(
        info["status"] == "paused"
        for info in client.sync(client.scheduler.identity)["workers"].values()
    ):
        time.sleep(0.1)
    return client.map(slow, range(4), [1.0] * 4)


def elsewhere(client: Any) -> Any:
    future = client.submit(add_one, 1, key="add_one-1")
    future.result()
    return future


def failing(client: Any) -> Any:
    first = client.submit(fail, 3, key="fail-3")
    return [
        *client.map(add_one, [first] * 5, key=[f"add_one-{i}" for i in range(5)]),
        *one(wait_for_event)(client),
    ]


def take(client: Any, future: Any) -> None:
    future.result()


def wait_elsewhere(client: Any, future: Any) -> None:
    threading.Event().wait()


def forget(client: Any) -> Any:
    distributed.fire_and_forget(client.submit(slow, 1, 60.0, key="slow-1"))
    return client.submit(add_one, 1, key="add_one-1")


def cancel(client: Any) -> Any:
    future = client.submit(slow, 1, 60.0, key="slow-1")
    while not client.processing():
        time.sleep(0.05)
    future.cancel()
    return client.submit(add_one, 1, key="add_one-1")


def abandon(client: Any) -> Any:
    """Disconnect as soon as one of two results is available."""
    futures = [client.submit(slow, 1, seconds, key=f"slow-{seconds}") for seconds in (4.0, 60.0)]
    next(iter(distributed.as_completed(futures)))
    return futures


def set_later(seconds: float) -> None:
    time.sleep(seconds)
    distributed.Event("set-later").set()


def wait_for_setter() -> None:
    distributed.Event("set-later").wait()


def locked_sleep(seconds: float) -> None:
    with distributed.Lock("in-turn"):
        time.sleep(seconds)


def put_later(seconds: float) -> None:
    time.sleep(seconds)
    distributed.Queue("filled").put(1)


def get_filled() -> Any:
    return distributed.Queue("filled").get()


def nested(seconds: float) -> Any:
    with distributed.worker_client() as client:
        return client.gather(client.map(slow, range(4), [seconds] * 4))


def short_process(seconds: float) -> None:
    subprocess.run(["sleep", str(seconds)], check=True)


def many(function: Callable[..., Any], count: int, *args: Any) -> Callable[[Any], Any]:
    def submit(client: Any) -> Any:
        return [client.submit(function, *args, pure=False) for _ in range(count)]

    return submit


def both(*functions: tuple[Callable[..., Any], tuple[Any, ...]]) -> Callable[[Any], Any]:
    def submit(client: Any) -> Any:
        return [client.submit(function, *args) for function, args in functions]

    return submit


def chain(client: Any) -> Any:
    future = client.submit(slow, 0, 2.0)
    for _ in range(9):
        future = client.submit(slow, future, 2.0)
    return [future]


#: Submit the work of programs that take about `HONEST` seconds.
_HEALTHY = {
    "sleeping": many(slow, 2, 1, HONEST),
    "computing": many(busy, 2, 1, HONEST),
    "set-later": both((wait_for_setter, ()), (set_later, (HONEST,))),
    "sleeping-and-waiting": both(
        (slow, (1, HONEST)), (wait_for_setter, ()), (set_later, (HONEST,))
    ),
    "in-turn": many(locked_sleep, 4, HONEST / 4),
    "filled": both((get_filled, ()), (put_later, (HONEST,))),
    "nested": many(nested, 2, HONEST / 4),
    "processes": many(short_process, 2, HONEST),
    "chain": chain,
    "many-short": many(slow, 400, 1, HONEST / 200),
    "one-long": both((slow, (1, HONEST)), (add_one, (1,))),
}
HEALTHY = {
    name: Plant(submit, "", (), threads=2 if name == "sleeping-and-waiting" else 1)
    for name, submit in _HEALTHY.items()
}

_SLEEPS = ("sleeping",)

PLANTS = {
    "event": Plant(one(wait_for_event), "Event '?never-set", ("signal-wait",)),
    "lock": Plant(locked, "Lock '?held-forever.*hold_lock-1", ("lock-wait",)),
    "crossed": Plant(crossed, "2 tasks wait for each other's locks", ("lock-cycle",)),
    "semaphore": Plant(leased, "Semaphore '?one-lease", ("lock-wait",)),
    "queue": Plant(one(read_queue), "Queue.* '?nobody-fills", ("signal-wait",)),
    "variable": Plant(one(read_variable), "Variable '?nobody-sets", ("signal-wait",)),
    "parents": Plant(parents, "occupy all 2 threads", ("threads-held-by-parents",)),
    "thread-lock": Plant(
        one(lock_of_process), "lock_of_process-1 sleeps.*hung_programs", ("sleeping",)
    ),
    "socket": Plant(one(silent_socket), "silent_socket-1 sleeps.*hung_programs", _SLEEPS),
    "subprocess": Plant(one(child_process), "child_process-1 sleeps.*hung_programs", _SLEEPS),
    "sleep": Plant(one(sleep_long), "sleep_long-1 sleeps.*hung_programs", _SLEEPS),
    "loop": Plant(one(endless_loop), "endless_loop-1 runs.*hung_programs", ("running",)),
    "loop-in-c": Plant(one(endless_in_c), "endless_in_c-1 runs.*hung_programs", ("running",)),
    "gil": Plant(one(hold_gil), "does not answer", ("worker-silent",)),
    "frozen": Plant(one(stop_process), "does not answer", ("worker-silent",)),
    "restriction": Plant(
        one(add_one, 1, resources={"GPU": 2}), "1 task of add_one cannot run.*GPU", ("no-worker",)
    ),
    "lost-message": Plant(
        lost_message, "scheduler waits for 1 task.*does not know", ("views-differ",), workers=1
    ),
    "paused": Plant(
        paused, "All 2 workers.* paused", ("all-paused",), options=(("memory_limit", "600MiB"),)
    ),
    "killed": Plant(
        one(die), "die-1 was abandoned", ("killed-worker-errors",), wait=wait_elsewhere
    ),
    "error": Plant(
        failing,
        "(fail-3 failed|task failed: ValueError in fail).*5 tasks",
        ("error",),
        wait=lambda client, futures: distributed.wait(futures),
    ),
    "forgotten": Plant(forget, "fire_and_forget", (), wait=take),
    "cancelled": Plant(cancel, "cancelled 1 task", (), wait=take),
    "abandoned": Plant(
        abandon, "^1 task was unfinished when the client left", (), wait=lambda *_: None
    ),
    "elsewhere": Plant(elsewhere, "All tasks finished", ("client-elsewhere",), wait=wait_elsewhere),
}


def main(name: str, traces: str | None) -> None:
    plant = (PLANTS | HEALTHY)[name]
    with (
        distributed.LocalCluster(
            n_workers=plant.workers,
            threads_per_worker=plant.threads,
            processes=True,
            dashboard_address=":0",
            **{"memory_limit": 0, **dict(plant.options)},
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        if traces is not None:
            import dasfprof

            dasfprof.register_default_profiler(client, name=name, directory=traces)
        futures = plant.submit(client)
        print("planted", cluster.scheduler_address, flush=True)
        if plant.wait is not None:
            plant.wait(client, futures)
        else:
            client.gather(futures)
    print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
