"""All kinds of work are recorded correctly, on real worker processes.

`independent_record` provides the expected task runs. Results are compared with known values.
"""

import asyncio
import contextlib
import operator
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import independent_record as record
import numpy as np
import pandas as pd
import pytest
from clusters import new_client, wait_for
from distributed import Client, Event, Reschedule, WorkerPlugin, get_worker, secede, worker_client
from distributed.core import Status
from distributed.metrics import context_meter
from recorded_facts import NOISE, assert_same_runs, assert_whole, computed, delays, facts

import dasfprof


@contextlib.contextmanager
def recorded_cluster() -> Iterator[Client]:
    with new_client(n_workers=2, threads_per_worker=2) as client:
        record.install(client)
        yield client


@pytest.fixture(scope="module")
def cluster_client() -> Iterator[Client]:
    with recorded_cluster() as client:
        yield client


@pytest.fixture
def unused_client() -> Iterator[Client]:
    """Return a client of a cluster without results of earlier tests, which might be recomputed."""
    with recorded_cluster() as client:
        yield client


@pytest.fixture
def client(cluster_client: Client) -> Client:
    record.clear(cluster_client)
    return cluster_client


def increment(x: int) -> int:
    return x + 1


def futures_with_text_keys(client: Client) -> tuple[Any, Any]:
    pure = client.map(increment, range(10))
    impure = client.map(increment, range(5), pure=False)
    total = client.submit(sum, pure + impure, key="total")
    return total.result(), sum(range(11)) + sum(range(6))


def futures_with_tuple_keys(client: Client) -> tuple[Any, Any]:
    keys = [("inc-a", 0), ("inc-b", 1, 2), ("inc-c", ("nested", 3), 4.5), ("inc-d", "text")]
    futures = [client.submit(increment, i, key=key) for i, key in enumerate(keys)]
    return client.gather(futures), [1, 2, 3, 4]


def array(client: Client) -> tuple[Any, Any]:
    x = np.arange(400.0).reshape(20, 20)
    lazy = da.from_array(x, chunks=(5, 5))
    with dask.config.set({"optimization.fuse.active": False}):
        result = (lazy.rechunk((10, 4)) + lazy.T.rechunk((10, 4))).sum(axis=0).compute()
    return result.tolist(), (x + x.T).sum(axis=0).tolist()


def dataframe_with_p2p_shuffle(client: Client) -> tuple[Any, Any]:
    frame = pd.DataFrame({"key": np.arange(60) % 7, "value": np.arange(60.0)})
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        lazy = dd.from_pandas(frame, npartitions=4).shuffle("key", npartitions=3)
        result = lazy.compute().sort_values("value")
    return result.to_dict("list"), frame.to_dict("list")


def coroutines(client: Client) -> tuple[Any, Any]:
    async def nap(i: int) -> int:
        await asyncio.sleep(0.05)
        return i * 2

    return client.gather(client.map(nap, range(8))), [0, 2, 4, 6, 8, 10, 12, 14]


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> int:
        self.count += number
        return self.count


def actors(client: Client) -> tuple[Any, Any]:
    counter = client.submit(Counter, actor=True, key="counter-1").result()
    counts = [counter.add(i).result() for i in range(4)]
    return (counts, client.submit(increment, 1, key="beside-1").result()), ([0, 1, 3, 6], 2)


def tasks_within_tasks(client: Client) -> tuple[Any, Any]:
    def outer(n: int) -> int:
        with worker_client() as inner:
            futures = inner.map(increment, range(n), key=[f"inner-{n}-{i}" for i in range(n)])
            return sum(inner.gather(futures))

    futures = client.map(outer, [2, 3, 4, 5], key=[f"outer-{i}" for i in range(4)])
    return client.gather(futures), [3, 6, 10, 15]


def tasks_that_secede(client: Client) -> tuple[Any, Any]:
    def leave(i: int) -> int:
        secede()
        time.sleep(0.05)
        return i

    futures = client.map(leave, range(6), key=[f"leave-{i}" for i in range(6)])
    return client.gather(futures), list(range(6))


def scattered_inputs(client: Client) -> tuple[Any, Any]:
    there = client.scatter([1, 2, 3], hash=False)
    futures = [client.submit(increment, one, key=f"onto-{i}") for i, one in enumerate(there)]
    return client.gather(futures), [2, 3, 4]


def tasks_that_need_resources(client: Client) -> tuple[Any, Any]:
    client.run(set_resources, {"LICENCE": 1})
    keys = [("licensed", i) for i in range(8)]
    futures = client.map(increment, range(8), key=keys, resources={"LICENCE": 1})
    return client.gather(futures), list(range(1, 9))


async def set_resources(resources: dict[str, float], dask_worker: Any) -> None:
    await dask_worker.set_resources(**resources)


WORKLOADS = (
    *(futures_with_text_keys, futures_with_tuple_keys, array, coroutines, actors),
    *(dataframe_with_p2p_shuffle, tasks_within_tasks, tasks_that_secede, scattered_inputs),
    tasks_that_need_resources,
)


@pytest.mark.parametrize("workload", WORKLOADS, ids=operator.attrgetter("__name__"))
def test_every_task_run_is_recorded(
    client: Client, tmp_path: Path, workload: Callable[[Client], tuple[Any, Any]]
) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        result, expected = workload(client)
    assert result == expected
    runs = record.task_runs(client)
    assert {one["finish"] for one in runs} <= {"memory", "rescheduled"}
    assert_same_runs(run, runs)
    assert_whole(run)
    assert_scheduler_rows(run, record.outcomes(client))


def assert_scheduler_rows(run: Any, outcomes: list[dict[str, Any]]) -> None:
    """Assert that the scheduler's file has the same task runs, with the same clock corrections."""

    def ends(rows: list[dict[str, Any]], state: str) -> dict[Any, Any]:
        columns = state, "start", "stop", "worker"
        return {
            (row["key"], row["run_id"]): [row[name] for name in columns]
            for row in rows
            if row[state] in ("memory", "erred")
        }

    rows = facts(run, "SchedulerPlugin", "Task Run")
    assert ends(rows, "state") == ends(outcomes, "finish")
    for row in rows:
        times = [row["waiting"], row["queued"], row["timestamp"], row["stolen"]]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
        assert row["duration"] >= 0


def test_inputs_are_named_and_measured(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        first = client.submit(bytes, 1000, key=("part", 0))
        second = client.submit(bytes, 2000, key="part-1")
        client.submit(len, client.submit(operator.add, first, second, key="joined")).result()
    rows = {row["key"]: row for row in computed(run)}
    assert set(rows["joined"]["dependencies"]) == {("part", 0), "part-1"}
    inputs = rows["part", 0]["size"] + rows["part-1"]["size"]
    assert inputs >= 3000
    assert rows["joined"]["input_size"] == inputs
    assert (rows["part", 0]["dependencies"], rows["part", 0]["input_size"]) == ([], 0)


def test_cpu_seconds_are_those_of_the_task_alone(client: Client, tmp_path: Path) -> None:
    def burn(seconds: float) -> float:
        start = time.thread_time()
        while (spent := time.thread_time() - start) < seconds:
            pass
        return spent

    def meter(seconds: float) -> float:
        """Measure a nested part, which Dask subtracts from the enclosing measurement."""
        with context_meter.meter("thread-cpu", func=time.thread_time):
            spent = burn(seconds)
        return spent + burn(seconds)

    async def nap() -> None:
        await asyncio.sleep(0.01)

    def leave() -> tuple[float, float]:
        before = time.time()
        secede()
        time.sleep(0.2)
        return before, time.time()

    with dasfprof.profile(client, directory=tmp_path) as run:
        before, after = client.submit(leave, key="leave").result()
        spent = client.submit(burn, 0.2, key="burn").result()
        metered = client.submit(meter, 0.1, key="meter").result()
        client.submit(time.sleep, 0.2, key="sleep").result()
        client.submit(nap, key="nap").result()
    rows = {row["key"]: row for row in computed(run)}
    assert spent - 0.001 <= rows["burn"]["cpu"] <= spent + 0.05
    assert metered - 0.001 <= rows["meter"]["cpu"] <= metered + 0.05
    assert rows["sleep"]["cpu"] < 0.05
    assert rows["sleep"]["duration"] >= 0.2
    assert rows["nap"]["cpu"] is rows["nap"]["thread"] is None
    assert before < rows["leave"]["seceded"] < after
    assert rows["sleep"]["seceded"] is None


def correct(seconds: float, dask_worker: Any) -> None:
    dask_worker.periodic_callbacks["heartbeat"].stop()  # it would reset the correction
    dask_worker.scheduler_delay = seconds


def restore(dask_worker: Any) -> None:
    dask_worker.scheduler_delay = 0
    dask_worker.periodic_callbacks["heartbeat"].start()


def test_times_are_those_of_the_worker_s_own_clock(client: Client, tmp_path: Path) -> None:
    """This does not depend on Dask's clock correction, even if it changes while a task runs."""

    def around(event: str | None) -> tuple[float, float]:
        start = time.time()
        if event is not None:
            wait_for(event)
        return start, time.time()

    keys = ["clock-0", "clock-1", "clock-2"]
    worker = list(client.nthreads())[:1]
    client.run(correct, 5.0, workers=worker)
    with dasfprof.profile(client, directory=tmp_path) as run:
        futures = [client.submit(around, None, key=keys[0], workers=worker)]
        futures[0].result()
        futures.append(client.submit(around, "go-6", key=keys[1], workers=worker))
        record.wait_until(lambda: running(client, keys[1]))
        client.run(correct, -7.0, workers=worker)
        futures.append(client.submit(around, None, key=keys[2], workers=worker))
        futures[2].result()
        Event("go-6", client=client).set()
        spans = dict(zip(keys, client.gather(futures), strict=True))
    client.run(restore, workers=worker)
    rows = {row["key"]: row for row in computed(run)}
    for key, (start, stop) in spans.items():
        row = rows[key]
        assert row["executing"] <= row["timestamp"] <= start
        assert stop <= row["timestamp"] + row["duration"] <= row["done"]
    clocks = [r for r in facts(run, "TracePlugin", "Clock") if r["address"] == worker[0]]
    assert [row["scheduler_delay"] for row in clocks] == [5.0, -7.0]


#: Seconds by which a heartbeat changes the correction, much longer than CPU waits.
SHIFT = 1.0


class Heartbeat(WorkerPlugin):
    """Change the correction when a task gets a thread, just before the task starts."""

    name = "heartbeat-between"

    def setup(self, worker: Any) -> None:
        self.worker = worker

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if finish == "executing" and str(key).startswith("shifted"):
            self.worker.scheduler_delay = SHIFT


@contextlib.contextmanager
def heartbeat_between(client: Client, worker: list[str]) -> Iterator[None]:
    client.run(correct, 0.0, workers=worker)
    client.register_plugin(Heartbeat())
    yield
    client.run(restore, workers=worker)
    client.unregister_worker_plugin(Heartbeat.name)


def test_start_is_right_just_after_a_heartbeat(client: Client, tmp_path: Path) -> None:
    def begin() -> float:
        begun = time.time()
        # The worker learns late that the task ended, so either correction would be possible.
        get_worker().loop.add_callback(time.sleep, 2 * SHIFT)
        return begun

    worker = list(client.nthreads())[:1]
    with dasfprof.profile(client, directory=tmp_path) as run, heartbeat_between(client, worker):
        begun = client.submit(begin, key="shifted-1", workers=worker).result()
    (row,) = computed(run)
    assert begun - SHIFT / 4 < row["timestamp"] <= begun


def test_transfers_are_those_of_the_worker_s_own_log(client: Client, tmp_path: Path) -> None:
    def total(parts: list[Any], _: int) -> float:
        return float(sum(part.sum() for part in parts))

    def log(dask_worker: Any) -> list[Any]:
        return [entry for entry in dask_worker.transfer_incoming_log if entry["stop"] > began]

    began, workers = time.time(), list(client.nthreads())
    with dasfprof.profile(client, directory=tmp_path) as run:
        parts = [
            client.submit(np.ones, 50_000, key=f"moved-{i}", workers=[workers[i % 2]])
            for i in range(6)
        ]
        totals = [client.submit(total, parts, i, workers=[workers[i]]) for i in range(2)]
        assert client.gather(totals) == [300_000.0, 300_000.0]
    logged = {
        (address, entry["who"], tuple(sorted(entry["keys"])), entry["total"]): entry
        for address, entries in client.run(log).items()
        for entry in entries
    }
    rows = facts(run, "TracePlugin", "Transfer")
    assert {row["state"] for row in rows} == {"success"}
    recorded = {(r["address"], r["source"], tuple(sorted(r["keys"])), r["size"]): r for r in rows}
    assert recorded.keys() == logged.keys()
    assert len(recorded) == len(rows)
    for transfer, row in recorded.items():
        start, stop = logged[transfer]["start"], logged[transfer]["stop"]
        assert 0 < row["network"] <= stop - start + 0.001 <= row["duration"] + 0.001
        assert row["timestamp"] <= start - min(delays(run)[row["address"]]) + 0.001


def test_transfers_that_bring_nothing(client: Client, tmp_path: Path) -> None:
    """The other worker is busy, has died, or has the data no more."""

    def report(dask_worker: Any) -> None:
        from distributed.metrics import DelayedMetricsLedger
        from distributed.worker_state_machine import (
            GatherDepBusyEvent,
            GatherDepNetworkFailureEvent,
            GatherDepSuccessEvent,
        )

        about = {"worker": "tcp://10.0.0.1:1", "total_nbytes": 100, "stimulus_id": "gather-1"}
        for outcome in (
            GatherDepBusyEvent(**about),
            GatherDepNetworkFailureEvent(**about),
            GatherDepSuccessEvent(**about, data={}),
        ):
            dask_worker._finalize_metrics(outcome, DelayedMetricsLedger())

    worker = list(client.nthreads())[:1]
    with dasfprof.profile(client, directory=tmp_path) as run:
        client.run(report, workers=worker)
    rows = facts(run, "TracePlugin", "Transfer")
    assert [row["state"] for row in rows] == ["busy", "failed", "missing"]
    for row in rows:
        assert (row["source"], row["size"], len(row["keys"])) == ("tcp://10.0.0.1:1", 0, 0)
    assert_whole(run)


def scheduler_rows(run: Any) -> dict[Any, dict[str, Any]]:
    return {row["key"]: row for row in facts(run, "SchedulerPlugin", "Task Run")}


def released(key: str, dask_scheduler: Any) -> bool:
    """Tell whether no client holds a future of a task that is there."""
    task = dask_scheduler.tasks.get(key)
    return task is not None and not task.who_wants


def test_what_a_client_wants_annotations_and_priorities(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        with dask.annotate(priority=3, step="sums", odd={"a": (1, None)}):
            client.submit(increment, 1, key="annotated").result()
        inner = dask.delayed(increment)(1, dask_key_name="inner")
        assert dask.delayed(increment)(inner, dask_key_name="outer").compute() == 3
        bad = client.submit(operator.truediv, 1, 0, key="bad")
        with pytest.raises(ZeroDivisionError):
            bad.result()
        # Its future is gone before it ends; what needs it is wanted still.
        held = client.submit(lambda: Event("client-gone").wait(120), key="held")
        last = client.submit(bool, held, key="needs-held")
        del held
        record.wait_until(lambda: client.run_on_scheduler(released, "held"))
        Event("client-gone", client=client).set()
        assert last.result()
    rows = scheduler_rows(run)
    wanted = {key for key, row in rows.items() if row["wanted"]}
    assert wanted == {"annotated", "outer", "bad", "needs-held"}
    assert rows.keys() - wanted == {"inner", "held"}
    annotations = {"priority": 3, "step": "sums", "odd": {"a": (1, None)}}
    assert rows["annotated"]["annotations"] == annotations
    assert rows["needs-held"]["annotations"] == {}
    assert [rows[key]["priority_user"] for key in ("annotated", "needs-held")] == [-3.0, 0.0]


def test_queues_waits_graphs_and_workers(client: Client, tmp_path: Path) -> None:
    def slow(i: int) -> int:
        time.sleep(0.02)
        return i

    with dasfprof.profile(client, directory=tmp_path) as run:
        before = time.time()
        futures = client.map(slow, range(60), key=[("rootish", i) for i in range(60)])
        assert client.submit(sum, futures, key="total-of-rootish").result() == 1770
        after = time.time()
        da.ones((4, 4), chunks=2).sum().compute(optimize_graph=False)
    rows = scheduler_rows(run)
    rootish = [rows["rootish", i] for i in range(60)]
    queued = [row for row in rootish if row["queued"] is not None]
    assert rootish[59] in queued
    assert all(before <= row["queued"] <= row["timestamp"] <= after for row in queued)
    total_row = rows["total-of-rootish"]
    last = max(row["timestamp"] + row["duration"] for row in rootish)
    assert before <= total_row["waiting"] <= last <= total_row["timestamp"]
    graphs = facts(run, "SchedulerPlugin", "Graph")
    assert (graphs[0]["tasks"], graphs[0]["wanted"]) == (60, 60)
    assert len(graphs) == 3
    assert {graph["client"] for graph in graphs} == {client.id}
    assert graphs[0]["stimulus"] in [row["cause"] for row in rootish]
    added = facts(run, "SchedulerPlugin", "Worker Added")
    told = {(row["worker"], row["name"], row["nthreads"], row["memory_limit"]) for row in added}
    assert told == {
        (address, worker["name"], worker["nthreads"], worker["memory_limit"])
        for address, worker in client.sync(client.scheduler.identity)["workers"].items()
    }


@pytest.mark.parametrize(("error", "ends"), [(OSError, "error"), (Reschedule, "rescheduled")])
def test_attempts_before_the_last(
    client: Client, tmp_path: Path, error: type[Exception], ends: str
) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        tries = tmp_path / "tries"
        future = client.submit(record.attempt, tries, 3, error, retries=5, key=f"{ends}-1")
        assert future.result() == 3
    runs = sorted(record.task_runs(client), key=lambda one: one["run_id"])
    assert [one["finish"] for one in runs] == [ends, ends, "memory"]
    assert_same_runs(run, runs)
    if error is OSError:
        texts = [row["exception"] for row in sorted(computed(run), key=lambda row: row["run_id"])]
        assert texts == ["OSError('attempt 1')", "OSError('attempt 2')", None]
        assert_scheduler_rows(run, record.outcomes(client))


def test_errors_and_their_text(client: Client, tmp_path: Path) -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    text = "<b>&\x1b[31m\n=1+1\ud800"
    with dasfprof.profile(client, directory=tmp_path) as run:
        failed = client.submit(fail, text, key=("fail", 0))
        after = client.submit(increment, failed, key="never-ran")
        for future in (failed, after):
            with pytest.raises(ValueError, match="b>"):
                future.result()
    runs = record.task_runs(client)
    assert_same_runs(run, runs)
    (row,) = computed(run)
    (told,) = (one for one in record.outcomes(client) if one["key"] == ("fail", 0))
    assert (row["state"], row["exception"]) == ("erred", told["exception_text"])
    assert row["exception"] == repr(ValueError(text))
    raised_at = run.analyser(progress=False).trace.tasks["raised_at"].dropna().tolist()
    assert raised_at == [f"{__file__}:{fail.__code__.co_firstlineno + 1} fail"]
    assert_scheduler_rows(run, record.outcomes(client))
    assert_whole(run)


def test_failure_before_the_function_was_called(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        with dask.annotate(executor="no-such-executor"):
            future = client.submit(increment, 1, key="unstarted")
        with pytest.raises(ValueError, match="no-such-executor"):
            future.result()
    runs = record.task_runs(client)
    assert_same_runs(run, runs)
    (row,) = computed(run)
    assert row["state"] == "erred"
    assert 0 <= row["duration"] < 30
    assert row["executing"] == row["timestamp"]


def running(client: Client, key: Any) -> bool:
    """Whether a worker has begun to run the key."""

    def state(dask_worker: Any) -> str | None:
        return getattr(dask_worker.state.tasks.get(key), "state", None)

    return "executing" in client.run(state).values()


def known_keys(client: Client) -> set[Any]:
    """Keys that the scheduler or a worker has not forgotten."""
    keys: set[Any] = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.tasks))
    return keys.union(*client.run(lambda dask_worker: set(dask_worker.state.tasks)).values())


def all_sent(client: Client, keys: set[Any]) -> bool:
    """Whether the scheduler has these keys, and workers those that it has sent to them."""

    def known(dask_scheduler: Any) -> tuple[set[Any], set[Any]]:
        tasks = dask_scheduler.tasks
        return keys & set(tasks), {k for k in keys & set(tasks) if tasks[k].state == "processing"}

    arrived, sent = client.run_on_scheduler(known)
    held = client.run(lambda dask_worker: keys & set(dask_worker.state.tasks)).values()
    return bool(arrived == keys and sent == set().union(*held))


def test_cancelled_before_it_ran(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        workers = list(client.nthreads())
        blockers = [
            client.submit(wait_for, "go-1", key=f"block-{i}", workers=[workers[i % 2]])
            for i in range(4)
        ]
        for i in range(4):
            record.wait_until(lambda i=i: running(client, f"block-{i}"))
        behind = {f"behind-{i}" for i in range(20)}
        waiting = client.map(increment, range(20), key=sorted(behind))
        # Requests may overtake the graph and its cancellation. Until these arrive, the keys are
        # unknown too.
        record.wait_until(lambda: all_sent(client, behind))
        client.cancel(waiting)
        record.wait_until(lambda: not known_keys(client) & behind)
        Event("go-1", client=client).set()
        client.gather(blockers)
        client.submit(increment, 1, key="last").result()
    runs = record.task_runs(client)
    assert {one["key"] for one in runs} == {*(f"block-{i}" for i in range(4)), "last"}
    assert_same_runs(run, runs)


def test_cancelled_while_it_ran(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        future = client.submit(wait_for, "go-2", key="cancelled-1")
        record.wait_until(lambda: running(client, "cancelled-1"))
        client.cancel(future)
        record.wait_until(lambda: not running(client, "cancelled-1"))
        Event("go-2", client=client).set()
        (attempted,) = record.wait_until(lambda: record.attempts(client))
    assert attempted["finish"] == "cancelled"
    assert_same_runs(run, [attempted])
    (row,) = computed(run)
    assert row["type"] is None
    assert row["run_queue"] is not None
    (seen,) = facts(run, "SchedulerPlugin", "Task Run")
    assert (seen["key"], seen["run_id"]) == ("cancelled-1", attempted["run_id"])
    assert seen["state"] in ("released", "forgotten")


def test_cancelled_while_it_ran_and_wanted_again(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        worker = next(iter(client.nthreads()))
        options = {"key": "wanted-again", "workers": [worker], "pure": False}
        future = client.submit(wait_for, "go-3", **options)
        record.wait_until(lambda: running(client, "wanted-again"))
        client.cancel(future)
        record.wait_until(lambda: not running(client, "wanted-again"))
        future = client.submit(wait_for, "go-3", **options)
        record.wait_until(lambda: running(client, "wanted-again"))
        Event("go-3", client=client).set()
        assert future.result() == "go-3"
    assert_same_runs(run, [{**one, "nbytes": None} for one in record.attempts(client)])


def test_stolen_tasks(client: Client, tmp_path: Path) -> None:
    def slow(i: int) -> int:
        time.sleep(0.1)
        return i

    slow_keys = [("slow", i) for i in range(30)]
    worker = next(iter(client.nthreads()))
    with dasfprof.profile(client, directory=tmp_path) as run:
        client.submit(
            slow, -1, key=("slow", -1)
        ).result()  # now Dask knows the duration of these tasks
        futures = client.map(
            slow, range(30), key=slow_keys, workers=[worker], allow_other_workers=True
        )
        assert client.gather(futures) == list(range(30))
    steals = record.steals(client)
    assert steals
    stolen = facts(run, "SchedulerPlugin", "Steal")
    assert [(row["key"], row["victim"], row["thief"]) for row in stolen] == steals
    runs = record.task_runs(client)
    assert_same_runs(run, runs)
    ran = {one["key"]: (one["run_id"], one["worker"]) for one in runs}
    last_steal = {row["key"]: (row["run_id"], row["thief"]) for row in stolen}
    assert {key: ran[key] for key in last_steal} == last_steal
    assert_scheduler_rows(run, record.outcomes(client))
    moved = {r["key"] for r in facts(run, "SchedulerPlugin", "Task Run") if r["stolen"] is not None}
    assert moved == set(last_steal)


def test_recomputed_after_a_worker_died(unused_client: Client, tmp_path: Path) -> None:
    client = unused_client
    victim = next(iter(client.nthreads()))
    options = {"workers": [victim], "allow_other_workers": True}
    with dasfprof.profile(client, directory=tmp_path) as run:
        parts = client.map(increment, range(5), key=[f"lost-{i}" for i in range(5)], **options)
        client.gather(parts)
        (pid,) = client.run(os.getpid, workers=[victim]).values()
        run.flush()
        os.kill(pid, signal.SIGKILL)
        assert client.submit(sum, parts, key="sum-of-lost").result() == 15
        record.wait_until(lambda: len(client.nthreads()) == 2)
    outcomes = record.outcomes(client)
    assert sum(one["key"] == "lost-0" for one in outcomes) == 2
    assert_same_runs(run, [one for one in outcomes if one["finish"] == "memory"])
    assert_scheduler_rows(run, outcomes)
    removed = facts(run, "SchedulerPlugin", "Worker Removed")
    assert [row["worker"] for row in removed] == [victim]


class ClosingJustThen(WorkerPlugin):
    """Set the worker's status between the decision to start a task and its start, as in a race."""

    def setup(self, worker: Any) -> None:
        self.worker, self.at = worker, "late-1"

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        if (key, finish) == (self.at, "executing"):
            self.at = ""
            asyncio.get_running_loop().call_soon(setattr, self.worker, "status", Status.closing)


def test_what_a_closing_worker_does_not_start_is_no_run(tmp_path: Path) -> None:
    with new_client(n_workers=1, threads_per_worker=1, processes=False) as client:
        client.register_plugin(ClosingJustThen(), name="just-then")
        (worker,) = client.cluster.workers.values()
        with dasfprof.profile(client, directory=tmp_path) as run:
            future = client.submit(increment, 1, key="late-1")
            record.wait_until(lambda: worker.status == Status.closing and not worker.state.tasks)
            future.release()
        worker.loop.add_callback(setattr, worker, "status", Status.running)  # so that it can close
    assert computed(run) == []


def test_running_as_recording_begins_and_ends(client: Client, tmp_path: Path) -> None:
    future = client.submit(wait_for, "go-4", key=("early", 0))
    record.wait_until(lambda: running(client, ("early", 0)))
    with dasfprof.profile(client, directory=tmp_path) as run:
        Event("go-4", client=client).set()
        assert future.result() == "go-4"
        client.submit(increment, 1, key="later").result()
        future = client.submit(wait_for, "go-5", key="unfinished")
        record.wait_until(lambda: running(client, "unfinished"))
    rows = {row["key"]: row for row in computed(run)}
    runs = {one["key"]: one for one in record.task_runs(client)}
    assert rows.keys() == runs.keys() == {("early", 0), "later"}
    early, expected = rows["early", 0], runs["early", 0]
    assert early["run_id"] == expected["run_id"]
    assert abs(early["duration"] - (expected["stop"] - expected["start"])) < NOISE
    # The clock correction that Dask used at its start is no longer known.
    assert abs(early["timestamp"] - expected["start"]) < 1
    assert early["timestamp"] + early["duration"] <= early["done"]
    assert early["executing"] is None
    assert_whole(run)
    assert {key: row["state"] for key, row in scheduler_rows(run).items()} == {
        "later": "memory", "unfinished": "processing",
    }  # fmt: skip
    Event("go-5", client=client).set()
    assert future.result() == "go-5"
