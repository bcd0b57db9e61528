"""Calls of actors are recorded by the worker that answers them; actors work as without."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Counts
from pathlib import Path
from typing import Any

import pytest
from clusters import client_of, wait_until
from distributed import Client
from recorded_facts import assert_whole, facts
from refuters import refute

import dasfprof
from dasfprof import TraceAnalyser

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


def calls_of(run: Any) -> list[tuple[str, str, float]]:
    """Return method, state and seconds of each recorded call."""
    rows = facts(run, "TracePlugin", "Actor Call")
    return [(row["method"], row["state"], row["duration"]) for row in rows]


def test_each_call_is_there_once(recorded: Recorded) -> None:
    calls = Counts((method, state) for method, state, _ in calls_of(recorded[2]))
    assert calls == {
        ("add", "success"): SIDE_BY_SIDE + 1,
        ("later", "success"): 1,
        ("fail", "failed"): 1,
    }
    assert_whole(recorded[2])


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
    calls = calls_of(run)
    ((state, seconds),) = [call[1:] for call in calls if call[0] == "wait"]
    assert state == "unanswered"
    assert 0 < seconds <= ended - begun + 10.0
    assert {call[1] for call in calls if call[0] == "began"} == {"success"}
    assert_whole(run)


def test_the_methods_ran_within_what_is_recorded(recorded: Recorded) -> None:
    _, spans, run = recorded
    added = sorted(
        (call["timestamp"], call["timestamp"] + call["duration"])
        for call in facts(run, "TracePlugin", "Actor Call")
        if call["method"] == "add"
    )
    assert len(added) == len(spans)
    for (arrived, answered), (begin, end) in zip(added, sorted(spans), strict=True):
        assert arrived <= begin + 1e-3
        assert end <= answered + 1e-3


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
