"""Wrappers of Dask's functions are added and removed in every order, and none remains."""

import inspect
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed.worker
import pytest
from dask._task_spec import Task
from open_files import open_files

from dasfprof.recording.dask_internals.task_functions import observe
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.plugins.nvtx import TaskRanges
from dasfprof.recording.task_runs.thread_time import RunQueue


def functions() -> list[Any]:
    return [distributed.worker._run_task_simple]


@pytest.fixture(autouse=True)
def originals() -> Iterator[list[Any]]:
    """Return Dask's functions, which must be restored after the test."""
    before = functions()
    yield before
    assert functions() == before


class Worker:
    """Stand-in with the attributes of a worker that are used."""

    def __init__(self) -> None:
        self.state = self
        self.tasks = {"inc-1": self}
        self.prefix, self.run_id, self.annotations = "inc", 7, None


class Domain:
    """Stand-in for NVTX that records calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.get_event_attributes = lambda **_: Worker()
        self.push_range = lambda _: self.calls.append("push")
        self.pop_range = lambda: self.calls.append("pop")


Observed = tuple[Worker, RunQueue, Any]


@pytest.fixture
def observed(originals: list[Any]) -> Iterator[Observed]:
    """Return a worker, the run queue that observes its tasks, and a function that ends it."""
    worker, queue = Worker(), RunQueue(HookGuard())
    leave = observe(worker, queue.wrap)
    assert leave
    yield worker, queue, leave
    leave()
    queue.stop()


@contextmanager
def inside(worker: Any) -> Iterator[None]:
    token = distributed.worker._worker_cvar.set(worker)
    try:
        yield
    finally:
        distributed.worker._worker_cvar.reset(token)


def run_task(worker: Any) -> Any:
    with inside(worker):
        return distributed.worker._run_task_simple(Task("inc-1", int, 5), {}, 0.0)["result"]


ORDERS = list(itertools.product(itertools.permutations("rq"), itertools.permutations("rq")))


@pytest.mark.parametrize(("come", "leave"), ORDERS, ids=lambda order: "".join(order))
def test_ranges_and_run_queue_in_every_order(
    originals: list[Any], come: tuple[str, ...], leave: tuple[str, ...]
) -> None:
    worker, domain, guard = Worker(), Domain(), HookGuard()
    queue, ranges = RunQueue(guard), TaskRanges(worker, domain, guard)
    leaving: dict[str, Any] = {}
    here: set[str] = set()

    def check() -> None:
        domain.calls.clear()
        queue.readings.clear()
        assert run_task(worker) == 5
        assert domain.calls == (["push", "pop"] if "r" in here else [])
        assert set(queue.readings) == ({"inc-1"} if "q" in here else set())
        for function, original in zip(functions(), originals, strict=True):
            assert inspect.unwrap(function) is original
            assert (function is original) == (not here)

    for name in come:
        leaving[name] = observe(worker, ranges.wrap if name == "r" else queue.wrap)
        here.add(name)
        check()
    for name in leave:
        leaving[name]()
        leaving[name]()  # a second call does nothing
        here.remove(name)
        check()
    queue.stop()


def test_workers_of_one_process_are_observed_apart(originals: list[Any]) -> None:
    one, two = Worker(), Worker()
    first, second, _ = queues = [RunQueue(HookGuard()) for _ in range(3)]
    leaves: list[Any] = [
        observe(worker, queue.wrap) for worker, queue in zip((one, two, one), queues, strict=True)
    ]
    run_task(one)
    assert [set(queue.readings) for queue in queues] == [{"inc-1"}, set(), {"inc-1"}]
    leaves[0]()
    first.readings.clear()
    run_task(two)
    assert [set(queue.readings) for queue in (first, second)] == [set(), {"inc-1"}]
    leaves[1]()
    assert functions() != originals
    leaves[2]()
    assert functions() == originals
    for queue in queues:
        queue.stop()


@pytest.mark.parametrize("given", [1, 2, 3])
def test_observers_are_blind_to_how_dask_calls(observed: Observed, given: int) -> None:
    """Any number of the arguments may come by name, but for the task."""
    worker, queue, _ = observed
    domain = Domain()
    ranges = TaskRanges(worker, domain, HookGuard())
    leave_ranges = observe(worker, ranges.wrap)
    assert leave_ranges
    names = ("task", "data", "time_delay")
    arguments = (Task("inc-1", int, 5), {}, 0.0)
    args, kwargs = arguments[:given], dict(zip(names[given:], arguments[given:], strict=True))
    with inside(worker):
        assert distributed.worker._run_task_simple(*args, **kwargs)["result"] == 5
    assert set(queue.readings) == {"inc-1"}
    assert domain.calls == ["push", "pop"]
    with inside(worker), pytest.raises(TypeError, match="surprise"):
        distributed.worker._run_task_simple(surprise=1)
    leave_ranges()


def test_what_a_task_raises_is_passed_on_and_not_measured(observed: Observed) -> None:
    """Dask returns exceptions of tasks, except those that must end the thread."""
    worker, queue, _ = observed
    with inside(worker), pytest.raises(KeyboardInterrupt):
        distributed.worker._run_task_simple(Task("inc-1", interrupt), {}, 0.0)
    assert queue.readings == {}


def interrupt() -> None:
    raise KeyboardInterrupt


def test_files_are_closed_with_the_recording_and_with_their_threads(observed: Observed) -> None:
    """This also holds if an error of a task, whose traceback holds all frames, is still alive."""
    worker, queue, leave = observed
    kept: list[Any] = []

    def fail() -> None:
        with inside(worker):
            task = Task("inc-1", int, "no number")
            kept.append(distributed.worker._run_task_simple(task, {}, 0.0))

    before = open_files("schedstat")
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert kept[0]["op"] == "task-erred"
    assert open_files("schedstat") == before  # the thread's file was closed with it
    run_task(worker)
    assert open_files("schedstat") == before + 1
    leave()
    queue.stop()
    assert open_files("schedstat") == before
