"""Calls of actors are recorded by the worker that answers them; actors work as without."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from clusters import client_of, wait_until
from distributed import Client
from recorded_facts import assert_whole, facts
from refuters import refute
from traces import Plan

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.errors import InvalidArgumentError

#: Seconds that a call of `Counter.add` takes at least, and how many there are side by side.
NAP, SIDE_BY_SIDE = 0.05, 5


class Counter:
    """An actor that keeps when its method ran, by itself."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def add(self, number: int) -> int:
        begin = time.time()
        time.sleep(NAP)
        self.spans.append((begin, time.time()))
        return number + 1

    def fail(self) -> None:
        raise KeyError("no such count")

    async def later(self) -> int:
        await asyncio.sleep(NAP)
        return len(self.spans)

    def told(self) -> list[tuple[float, float]]:
        return self.spans


class Waiter:
    """An actor that answers when it is told to."""

    def __init__(self) -> None:
        self.waits, self.told = False, False

    async def wait(self) -> None:
        self.waits = True
        while not self.told:
            await asyncio.sleep(0.01)

    def began(self) -> bool:
        return self.waits

    def go_on(self) -> None:
        self.told = True


def add_from_a_task(counter: Any) -> int:
    return int(counter.add(41).result())


client = client_of(2, 1, processes=False)


#: What was recorded, when `Counter.add` ran by its own record, and the run.
Recorded = tuple[TraceAnalyser, list[tuple[float, float]], Any]


@pytest.fixture(scope="module")
def recorded(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    first, second = client.nthreads()
    counter = client.submit(Counter, actor=True, workers=[first]).result()
    assert counter.add(-1).result() == 0  # before the run
    with dasfprof.profile(client, directory=tmp_path_factory.mktemp("run")) as run:
        calls = [counter.add(number) for number in range(SIDE_BY_SIDE)]
        assert [call.result() for call in calls] == [1, 2, 3, 4, 5]
        with pytest.raises(KeyError, match="no such count"):
            counter.fail().result()
        assert counter.later().result() == SIDE_BY_SIDE + 1
        assert client.submit(add_from_a_task, counter, workers=[second]).result() == 42
    spans = counter.told().result()[1:]  # after it
    return TraceAnalyser(run.files(), progress=False), spans, run


def test_each_call_is_there_once(recorded: Recorded) -> None:
    table = recorded[0].actor_calls().set_index(["Actor", "Method"])
    assert table["Calls"].to_dict() == {
        ("Counter", "add"): SIDE_BY_SIDE + 1,
        ("Counter", "later"): 1,
        ("Counter", "fail"): 1,
    }
    assert table["Failed"].to_dict() == {
        ("Counter", "add"): 0,
        ("Counter", "later"): 0,
        ("Counter", "fail"): 1,
    }
    assert_whole(recorded[2])


def test_seconds_with_any_call_by_hand(tmp_path: Path) -> None:
    """One call within the first, one that begins during it and ends later, and one apart."""
    calls = [(0, 0.0, 10.0), (0, 2.0, 3.0), (0, 5.0, 12.0), (0, 20.0, 21.0)]
    (row,) = Plan(calls=calls).write(tmp_path).actor_calls().to_dict("records")
    assert (row["Calls"], row["Time (s)"], row["Under Way (s)"]) == (4, 19.0, 13.0)


def test_a_call_without_an_answer_counts_until_the_end(client: Client, tmp_path: Path) -> None:
    waiter = client.submit(Waiter, actor=True).result()
    try:
        with dasfprof.profile(client, directory=tmp_path) as run:
            call = waiter.wait()
            begun = time.time()
            wait_until(lambda: waiter.began().result())
        ended = time.time()
    finally:
        waiter.go_on().result()
        call.result()
    table = TraceAnalyser(run.files(), progress=False).actor_calls().set_index("Method")

    assert table.loc["wait", ["Calls", "Failed", "Unanswered"]].tolist() == [1, 0, 1]
    assert 0 < table.loc["wait", "Time (s)"] <= ended - begun + 10.0
    assert table.loc["began", "Unanswered"] == 0
    assert_whole(run)


def test_the_methods_ran_within_what_is_recorded(recorded: Recorded) -> None:
    analyser, spans, run = recorded
    added = sorted(
        (call["timestamp"], call["timestamp"] + call["duration"])
        for call in facts(run, "TracePlugin", "Actor Call")
        if call["method"] == "add"
    )
    assert len(added) == len(spans)
    for (arrived, answered), (begin, end) in zip(added, sorted(spans), strict=True):
        assert arrived <= begin + 1e-3
        assert end <= answered + 1e-3
    own = analyser.actor_calls("actor").iloc[0]
    ran = sum(end - begin for begin, end in spans)
    # One at a time they ran; each waited for those before it.
    assert ran - 1e-2 <= own["Under Way (s)"] <= own["Time (s)"] + 1e-9


def test_calls_are_not_time_for_which_nothing_was_submitted(recorded: Recorded) -> None:
    analyser, spans, run = recorded
    seconds = analyser.time_accounting().set_index("Class")["Thread Time (s)"]
    # The last call is that of a task: its thread is busy, and the other has no runnable task.
    ran = sum(end - begin for begin, end in sorted(spans)[:-1])
    assert seconds["Actor calls"] >= 2 * (ran + NAP) - 0.02
    assert analyser.trace.knows_actor_calls
    assert not refute(run.files()[0].parent, analyser.findings())


def test_nothing_stays_in_dask(client: Client, recorded: Recorded) -> None:
    def handler(dask_worker: Any) -> bool:
        return bool(dask_worker.handlers["actor_execute"] == dask_worker.actor_execute)

    assert all(client.run(handler).values())


def test_a_wrong_way_to_sum_up_is_refused(recorded: Recorded) -> None:
    with pytest.raises(InvalidArgumentError, match="method, actor"):
        recorded[0].actor_calls("worker")  # type: ignore[arg-type]
