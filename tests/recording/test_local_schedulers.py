"""What Dask's own schedulers run without a cluster: recorded truly, and not changed by it."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest
from dask.callbacks import Callback
from distributed import Client

import dasfprof
from dasfprof.errors import RegistrationError
from dasfprof.recording.dask_internals.local_schedulers import availability
from tests.recording.recorded_facts import NOISE, computed

SCHEDULERS = ["threads", "sync", "processes"]


def seen(number: int, *inputs: Any) -> dict[str, Any]:
    """A task that records itself: when it ran, where, and on how much CPU."""
    begin, cpu = time.time(), time.thread_time()
    while time.thread_time() - cpu < 0.005:
        pass
    used = time.thread_time() - cpu
    where = threading.get_ident(), os.getpid()
    return {"number": number, "begin": begin, "end": time.time(), "cpu": used, "where": where}


def graph(width: int = 6) -> dict[Any, Any]:
    """Tasks, each with its key; the last takes the results of all others."""
    tasks: dict[Any, Any] = {("seen", n): (seen, n) for n in range(width)}
    tasks["last"] = (list, [("seen", n) for n in range(width)])
    return tasks


GET: dict[str, Callable[..., Any]] = {
    "threads": dask.threaded.get,
    "sync": dask.local.get_sync,
    "processes": dask.multiprocessing.get,
}


class Seen(Callback):  # type: ignore[misc]
    """The independent record of Dask's callbacks: around when each task can have run."""

    def __init__(self) -> None:
        self.spans: dict[Any, list[float]] = {}
        self.workers: dict[Any, Any] = {}

    def _pretask(self, key: Any, graph: Any, state: Any) -> None:
        self.spans[key] = [time.time()]

    def _posttask(self, key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        self.spans[key].append(time.time())
        self.workers[key] = worker


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_task_runs_are_as_the_tasks_themselves_record_them(scheduler: str, tmp_path: Path) -> None:
    assert availability() == "available"
    callbacks = Seen()
    with dasfprof.profile(directory=tmp_path) as run, callbacks:
        # Without Dask's optimisation, so that keys are as they were given.
        more = {"optimize_graph": False} if scheduler == "processes" else {}
        told = GET[scheduler](graph(), "last", num_workers=2, **more)
    tasks = {row["key"]: row for row in computed(run)}
    keys = {("seen", n) for n in range(6)} | {"last"}
    assert set(tasks) == keys == set(callbacks.spans)
    assert {row["state"] for row in tasks.values()} == {"memory"}
    for one in told:
        row = tasks["seen", one["number"]]
        before, after = callbacks.spans["seen", one["number"]]
        start, stop = row["timestamp"], row["timestamp"] + row["duration"]
        assert before <= start + NOISE
        assert start <= one["begin"] + NOISE
        assert one["end"] <= stop + NOISE
        assert stop <= after + NOISE
        assert one["cpu"] <= row["cpu"] + 1e-5
        assert row["received"] <= row["ready"] <= row["executing"] <= start + NOISE
        assert stop <= row["done"] + NOISE
        thread, process = one["where"]
        assert int(row["thread"]) == (process if scheduler == "processes" else thread)
        assert callbacks.workers["seen", one["number"]] == (
            process if scheduler == "processes" else None if scheduler == "sync" else thread
        )
    assert tasks["last"]["type"] == "list"
    assert set(tasks["last"]["dependencies"]) == keys - {"last"}
    workers = run.analyser().trace.workers
    assert workers.loc[workers["kind"] == "worker", "nthreads"].tolist() == [
        1 if scheduler == "sync" else 2
    ]


def test_dependencies_sizes_and_types(tmp_path: Path) -> None:
    tasks = {
        "a": (np.ones, 1000),
        "b": (np.zeros, 10),
        "c": (np.concatenate, ["a", "b"]),
    }
    with dasfprof.profile(directory=tmp_path) as run:
        got = GET["threads"](tasks, "c")
    assert got.tolist() == [1.0] * 1000 + [0.0] * 10
    rows = {row["key"]: row for row in computed(run)}
    assert {key: set(row["dependencies"]) for key, row in rows.items()} == {
        "a": set(),
        "b": set(),
        "c": {"a", "b"},
    }
    assert rows["c"]["input_size"] == rows["c"]["size"] == 8 * 1010
    assert [rows["a"][name] for name in ("dtype", "shape", "type")] == [
        "float64",
        (1000,),
        "numpy.ndarray",
    ]
    graph = run.analyser().create_annotated_task_graph()
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (3, 2)


def failing(number: int) -> int:
    raise LookupError(f"no {number}")


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_errors_are_raised_as_always_and_recorded(scheduler: str, tmp_path: Path) -> None:
    def failed() -> BaseException:
        with pytest.raises(LookupError, match="no 7") as caught:
            dask.delayed(failing, pure=False)(7).compute(scheduler=scheduler)
        return caught.value

    plain = failed()
    with dasfprof.profile(directory=tmp_path) as run:
        profiled = failed()
    assert type(plain) is type(profiled)
    functions = [
        [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        for error in (plain, profiled)
    ]
    files = [frame.filename for frame in traceback.extract_tb(profiled.__traceback__)]
    assert not [file for file in files if file.endswith(("local_task.py",))]
    assert functions[0][-1] == functions[1][-1] == "failing"
    (row,) = computed(run)
    assert row["state"] == "erred"
    assert row["exception"] == "LookupError('no 7')"
    assert row["raised_at"].endswith("failing")
    assert len(run.analyser().trace.tracebacks) == 1


def die(number: int) -> None:
    os._exit(number)


def test_a_process_that_dies_is_an_error_of_its_tasks(tmp_path: Path) -> None:
    with (
        dasfprof.profile(directory=tmp_path) as run,
        pytest.raises(Exception, match="terminated abruptly"),
    ):
        dask.delayed(die)(3).compute(scheduler="processes")
    (row,) = computed(run)
    assert row["state"] == "erred"
    assert "BrokenProcessPool" in row["exception"]


def test_everything_is_put_back(tmp_path: Path) -> None:
    modules = dask.local, dask.threaded, dask.multiprocessing
    before = [module.get_async for module in modules]
    computes = dask.compute, dask.base.compute
    with dasfprof.profile(directory=tmp_path):
        assert all(module.get_async is not before[0] for module in modules)
    assert [module.get_async for module in modules] == before
    assert (dask.compute, dask.base.compute) == computes
    assert Callback.active == set()


@dask.delayed
def nested(number: int) -> int:
    inner = [dask.delayed(pow)(number, 2) for _ in range(3)]
    return sum(dask.compute(*inner, scheduler="sync"))


def test_a_compute_within_a_task_is_part_of_that_task(tmp_path: Path) -> None:
    with dasfprof.profile(directory=tmp_path) as run:
        assert dask.compute(*[nested(n) for n in range(3)], scheduler="threads") == (0, 3, 12)
    assert set(run.analyser().trace.tasks["function"]) == {"nested"}


def test_computes_in_two_threads_at_a_time_are_both_recorded(tmp_path: Path) -> None:
    """Dask's callbacks are not: the second compute has none, and afterwards there are none left."""
    meet = threading.Barrier(2)

    def one(name: str) -> Any:
        def wait() -> str:
            meet.wait(60)
            return name

        return dask.local.get_sync({name: (wait,)}, name)

    with dasfprof.profile(directory=tmp_path) as run, ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, ["left", "right"])) == ["left", "right"]
    assert {row["key"] for row in computed(run)} == {"left", "right"}


@pytest.fixture(params=["threads", "processes"])
def executor(request: pytest.FixtureRequest) -> Iterator[Any]:
    kinds = {
        "threads": lambda: ThreadPoolExecutor(2),
        "processes": lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
    }
    with kinds[request.param]() as pool:
        yield pool


def test_an_executor_of_the_program(executor: Any, tmp_path: Path) -> None:
    kind = "threads" if isinstance(executor, ThreadPoolExecutor) else "processes"
    with dasfprof.profile(directory=tmp_path) as run:
        assert dask.delayed(pow)(2, 3).compute(scheduler=executor) == 8
        with dask.config.set(pool=executor):
            assert dask.delayed(pow)(2, 4).compute(scheduler="threads") == 16
    trace = run.analyser().trace
    assert len(trace.tasks) == 2
    assert kind in trace.surroundings.local


def test_two_runs_at_a_time_record_the_same(tmp_path: Path) -> None:
    with dasfprof.profile(directory=tmp_path, name="outer") as outer:
        with dasfprof.profile(directory=tmp_path, name="inner") as inner:
            dask.delayed(pow)(2, 3).compute(scheduler="sync")
        dask.delayed(pow)(3, 3).compute(scheduler="sync")
    assert [len(run.analyser().trace.tasks) for run in (outer, inner)] == [2, 1]


def test_steps_lines_and_what_the_program_calls(tmp_path: Path) -> None:
    with dasfprof.profile(directory=tmp_path) as run:
        with dasfprof.step("build"):
            built = dask.delayed(pow)(2, 3)
        with dasfprof.step("run"):
            built.compute(scheduler="threads")
    trace = run.analyser().trace
    assert trace.tasks["step"].tolist() == ["build"]
    assert trace.tasks["line"].iloc[0].startswith("test_local_schedulers.py:")
    calls = trace.client_calls
    assert calls.loc[calls["call"] == "compute", "keys"].tolist() == [1]
    assert trace.graphs["tasks"].tolist() == [1]
    assert trace.graphs["step"].tolist() == [("run",)] or trace.graphs["step"].tolist() == [["run"]]


def test_a_run_without_a_compute_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with dasfprof.profile(directory=tmp_path):
        pass
    assert "this process computed nothing on Dask's local schedulers (threads," in caplog.text


def test_what_a_cluster_alone_has_is_said_to_be_missing(tmp_path: Path) -> None:
    with dasfprof.profile(directory=tmp_path) as run:
        dask.delayed(pow)(2, 3).compute(scheduler="threads")
    analyser = run.analyser()
    (note,) = [note for note in analyser.trace.notes if note.kind == "no-cluster"]
    assert "(threads)" in note.text
    assert not [note for note in analyser.trace.notes if note.kind == "no-scheduler-file"]
    assert "not whole" not in " ".join(analyser.diagnose()["Finding"])


def test_a_client_of_this_process_is_still_what_is_recorded(tmp_path: Path) -> None:
    """Tasks of an in-process worker that compute on their own: the time is theirs."""

    def compute_within(number: int) -> int:
        return int(dask.delayed(pow)(number, 2).compute(scheduler="sync"))

    options = {"n_workers": 1, "processes": False, "dashboard_address": None}
    with Client(**options) as client, dasfprof.profile(directory=tmp_path) as run:
        assert client.submit(compute_within, 3).result() == 9
    trace = run.analyser().trace
    assert trace.surroundings.local == ()
    assert set(trace.tasks["function"]) == {"compute_within"}


def test_a_dask_without_the_hook_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get = dask.local.get_async
    monkeypatch.delattr(dask.local, "get_async")
    with pytest.raises(RegistrationError, match="this version of Dask has no dask"):
        dasfprof.register_default_profiler(directory=tmp_path)
    assert dask.threaded.get_async is get
