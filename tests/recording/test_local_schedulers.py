"""Tasks on Dask's local schedulers are recorded correctly and run unchanged."""

import os
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
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


def seen(number: int, *inputs: Any) -> dict[str, Any]:
    """Task that records when and where it ran, and its CPU time."""
    begin, cpu = time.time(), time.thread_time()
    while time.thread_time() - cpu < 0.005:
        pass
    used = time.thread_time() - cpu
    where = threading.get_ident(), os.getpid()
    return {"number": number, "begin": begin, "end": time.time(), "cpu": used, "where": where}


GET: dict[str, Callable[..., Any]] = {
    "threads": dask.threaded.get,
    "sync": dask.local.get_sync,
    "processes": dask.multiprocessing.get,
}


class Seen(Callback):  # type: ignore[misc]
    """Independent record by Dask's callbacks: bounds of the time at which each task ran."""

    def __init__(self) -> None:
        self.spans: dict[Any, list[float]] = {}
        self.workers: dict[Any, Any] = {}

    def _pretask(self, key: Any, graph: Any, state: Any) -> None:
        self.spans[key] = [time.time()]

    def _posttask(self, key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        self.spans[key].append(time.time())
        self.workers[key] = worker


@pytest.mark.parametrize("scheduler", GET)
def test_task_runs_are_as_the_tasks_themselves_record_them(scheduler: str, tmp_path: Path) -> None:
    assert availability() == "available"
    callbacks = Seen()
    keys = [("seen", number) for number in range(6)]
    graph: dict[Any, Any] = {key: (seen, key[1]) for key in keys} | {"last": (list, keys)}
    with dasfprof.profile(directory=tmp_path) as run, callbacks:
        # Without Dask's optimization, which would change keys.
        more = {"optimize_graph": False} if scheduler == "processes" else {}
        results = GET[scheduler](graph, "last", num_workers=2, **more)
    tasks = {row["key"]: row for row in computed(run)}
    assert set(tasks) == {*keys, "last"} == set(callbacks.spans)
    assert {row["state"] for row in tasks.values()} == {"memory"}
    for result in results:
        key = ("seen", result["number"])
        row = tasks[key]
        start, stop = row["timestamp"], row["timestamp"] + row["duration"]
        before, after = callbacks.spans[key]
        around = [before, start, result["begin"], result["end"], stop, after]
        assert all(one <= later + NOISE for one, later in pairwise(around))
        assert result["cpu"] <= row["cpu"] + 1e-5
        assert row["received"] <= row["ready"] <= row["executing"] <= start + NOISE
        assert stop <= row["done"] + NOISE
        thread, process = result["where"]
        recorded = process if scheduler == "processes" else thread
        assert int(row["thread"]) == recorded
        assert callbacks.workers[key] == (None if scheduler == "sync" else recorded)
    assert tasks["last"]["type"] == "list"
    assert set(tasks["last"]["dependencies"]) == set(keys)
    workers = run.analyser().trace.workers.query("kind == 'worker'")
    assert workers["nthreads"].tolist() == [1 if scheduler == "sync" else 2]


def test_dependencies_sizes_and_types(tmp_path: Path) -> None:
    tasks = {"a": (np.ones, 1000), "b": (np.zeros, 10), "c": (np.concatenate, ["a", "b"])}
    with dasfprof.profile(directory=tmp_path) as run:
        got = GET["threads"](tasks, "c")
    assert got.tolist() == [1.0] * 1000 + [0.0] * 10
    rows = {row["key"]: row for row in computed(run)}
    dependencies = {key: set(row["dependencies"]) for key, row in rows.items()}
    assert dependencies == {"a": set(), "b": set(), "c": {"a", "b"}}
    assert rows["c"]["input_size"] == rows["c"]["size"] == 8 * 1010
    described = tuple(rows["a"][name] for name in ("dtype", "shape", "type"))
    assert described == ("float64", (1000,), "numpy.ndarray")
    graph = run.analyser().create_annotated_task_graph()
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (3, 2)


def failing(number: int) -> int:
    raise LookupError(f"no {number}")


@pytest.mark.parametrize("scheduler", GET)
def test_errors_are_raised_as_always_and_recorded(scheduler: str, tmp_path: Path) -> None:
    def failed() -> BaseException:
        with pytest.raises(LookupError, match="no 7") as caught:
            dask.delayed(failing, pure=False)(7).compute(scheduler=scheduler)
        return caught.value

    plain = failed()
    with dasfprof.profile(directory=tmp_path) as run:
        profiled = failed()
    assert type(plain) is type(profiled)
    frames = [traceback.extract_tb(error.__traceback__) for error in (plain, profiled)]
    assert frames[0][-1].name == frames[1][-1].name == "failing"
    (row,) = computed(run)
    assert (row["state"], row["exception"]) == ("erred", "LookupError('no 7')")
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


def nested(number: int) -> int:
    inner = [dask.delayed(pow)(number, 2) for _ in range(3)]
    return sum(dask.compute(*inner, scheduler="sync"))


@pytest.mark.parametrize("on_cluster", [False, True])
def test_a_compute_within_a_task_is_part_of_that_task(on_cluster: bool, tmp_path: Path) -> None:
    """This includes tasks on an in-process worker whose client is recorded."""
    options = {"n_workers": 1, "processes": False, "dashboard_address": None}
    tasks = [dask.delayed(nested)(number) for number in range(3)]
    with (
        Client(**options) if on_cluster else nullcontext() as client,
        dasfprof.profile(directory=tmp_path) as run,
    ):
        assert dask.compute(*tasks, scheduler=client or "threads") == (0, 3, 12)
    trace = run.analyser().trace
    assert (trace.surroundings.local == ()) == on_cluster
    assert set(trace.tasks["function"]) == {"nested"}


def test_computes_in_two_threads_at_a_time_are_both_recorded(tmp_path: Path) -> None:
    """Dask's callbacks would miss the second computation, and be removed after it."""
    meet = threading.Barrier(2)

    def one(name: str) -> Any:
        def wait() -> str:
            meet.wait(60)
            return name

        return dask.local.get_sync({name: (wait,)}, name)

    with dasfprof.profile(directory=tmp_path) as run, ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, ["left", "right"])) == ["left", "right"]
    assert {row["key"] for row in computed(run)} == {"left", "right"}


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_an_executor_of_the_program(kind: str, tmp_path: Path) -> None:
    kinds = {"threads": ThreadPoolExecutor, "processes": ProcessPoolExecutor}
    more = {"mp_context": get_context("spawn")} if kind == "processes" else {}
    with kinds[kind](2, **more) as executor, dasfprof.profile(directory=tmp_path) as run:
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


def test_steps_lines_and_what_a_cluster_alone_has(tmp_path: Path) -> None:
    with dasfprof.profile(directory=tmp_path) as run:
        with dasfprof.step("build"):
            built = dask.delayed(pow)(2, 3)
        with dasfprof.step("run"):
            built.compute(scheduler="threads")
    analyser = run.analyser()
    trace = analyser.trace
    assert trace.tasks["step"].tolist() == ["build"]
    assert trace.tasks["line"].iloc[0].startswith("test_local_schedulers.py:")
    calls = trace.client_calls
    assert calls.loc[calls["call"] == "compute", "keys"].tolist() == [1]
    assert trace.graphs["tasks"].tolist() == [1]
    assert [list(steps) for steps in trace.graphs["step"]] == [["run"]]
    (note,) = [note for note in trace.notes if note.kind == "no-cluster"]
    assert "(threads)" in note.text
    assert "no-scheduler-file" not in {note.kind for note in trace.notes}
    assert "not whole" not in " ".join(analyser.diagnose()["Finding"])


def test_a_run_without_a_compute_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with dasfprof.profile(directory=tmp_path):
        pass
    assert "this process computed nothing on Dask's local schedulers (threads," in caplog.text


def test_a_dask_without_the_hook_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get = dask.local.get_async
    monkeypatch.delattr(dask.local, "get_async")
    with pytest.raises(RegistrationError, match="this version of Dask has no dask"):
        dasfprof.register_default_profiler(directory=tmp_path)
    assert dask.threaded.get_async is get
