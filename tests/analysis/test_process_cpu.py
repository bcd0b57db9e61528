"""CPU time of worker processes by user: calculated by hand, and with threads of a task."""

import threading
import time
import zlib
from pathlib import Path

import pytest
from clusters import new_client
from traces import Plan, Task

import dasfprof
from dasfprof.analysis.model.processes import other_threads, other_threads_cpu


def used(*readings: tuple[float, float, float | None]) -> list[tuple[int, float, dict[str, float]]]:
    return [
        (0, at, {"process_cpu_seconds": cpu, "service_cpu_seconds": service})
        for at, cpu, service in readings
        if service is not None
    ]


def test_of_one_function_of_several_and_of_none(tmp_path: Path) -> None:
    plan = Plan(
        tasks=[
            Task("solve-1", 0, 0.0, 4.0, cpu=1.0),
            Task("solve-2", 0, 6.0, 8.0, cpu=0.5),
            Task("load-1", 0, 6.0, 8.0, cpu=0.5, thread=2),
        ],
        # By 4 s, the first function has used 9: its thread 1, the event loop 1, and other threads
        # 7. Then no task runs, and other threads use 2. From 6 to 8, two functions run; other
        # threads use 3 of 5.
        used=used((0.0, 1.0, 0.0), (4.0, 10.0, 1.0), (6.0, 13.0, 2.0), (8.0, 18.0, 3.0)),
    )
    analyser = plan.write(tmp_path / "run")
    assert other_threads_cpu(analyser.run) == {"solve": pytest.approx(7.0)}
    found = other_threads(analyser.run)
    assert (found.functions["uncertain"] == 0).all()
    assert found.shared == pytest.approx(3.0)
    # Until 4 s, others use the CPU during the 3 s in which the thread of the first does not.
    spent = analyser.time_accounting("function").set_index(["Function", "Class"])
    of_solve = spent.loc["solve", "Thread Time (s)"]
    assert (of_solve["Computing"], of_solve["Blocked"]) == pytest.approx((1.5 + 3.0, 1.5))


def test_what_is_uncertain_or_not_told(tmp_path: Path) -> None:
    solve, load = (
        Task("solve-1", 0, 0.0, 4.0, cpu=2.0),
        Task("load-1", 0, 2.0, 4.0, cpu=0.0, thread=2),
    )
    readings = used((0.0, 0.0, 0.0), (2.0, 1.5, 0.0), (4.0, 2.0, 0.0))
    analyser = Plan([solve, load], used=readings).write(tmp_path / "both")
    found = other_threads(analyser.run).functions.set_index("function")
    # Its thread may have used all of the 1.5 in the first two seconds, or nothing.
    assert found.loc["solve", "others"] == pytest.approx(0.5)
    assert found.loc["solve", "uncertain"] == pytest.approx(1.0)
    assert other_threads_cpu(analyser.run) == {}


def with_a_pool(seconds: float) -> float:
    """Let two threads compress while this one waits, and return their CPU seconds."""
    used: list[float] = []
    end = time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < end:
            zlib.compress(bytes(range(256)) * 6000, 9)
        used.append(time.thread_time())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(used)


@pytest.mark.skipif(not hasattr(time, "clock_gettime_ns"), reason="clocks of threads, of Linux")
def test_threads_that_a_task_starts(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with new_client(n_workers=1, threads_per_worker=2) as client:
        client.submit(with_a_pool, 0.01).result()
        with dasfprof.profile(client, directory=tmp_path) as run:
            told = sum(client.gather(client.map(with_a_pool, [0.8] * 6, pure=False)))
    analyser = run.analyser(progress=False)
    (function, found) = next(iter(other_threads_cpu(analyser.run).items()))
    assert function == "with_a_pool"
    # On a slow machine, the worker itself uses more.
    slack = 0.1 if request.config.getoption("--long") else 0.3
    assert found == pytest.approx(told, rel=slack, abs=3 * slack)
