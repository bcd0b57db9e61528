"""Actor calls are recorded by the worker that answers them, and actors work as before."""

import asyncio
import time
from collections import Counter as Counts
from pathlib import Path
from typing import Any

import pytest
from clusters import client_of
from distributed import Client, Event
from recorded_facts import assert_whole, facts
from refuters import refute

import dasfprof
from dasfprof import TraceAnalyser

#: Minimum seconds of a call of `Counter.add`, and number of parallel calls.
NAP, SIDE_BY_SIDE = 0.05, 5


class Counter:
    """Actor that records when its method ran."""

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
    """Actor that answers when the event `go-on` is set."""

    def wait(self) -> None:
        Event("began").set()
        Event("go-on").wait()


def add_from_a_task(counter: Any) -> int:
    return int(counter.add(41).result())


client = client_of(2, 1, processes=False)


def calls_of(run: Any) -> list[tuple[str, str, float, float]]:
    """Return method, state, start and end of each recorded call."""
    rows = facts(run, "TracePlugin", "Actor Call")
    return [
        (row["method"], row["state"], row["timestamp"], row["timestamp"] + row["duration"])
        for row in rows
    ]


def test_each_call_is_recorded_once_while_its_method_ran(client: Client, tmp_path: Path) -> None:
    first, second = client.nthreads()
    counter = client.submit(Counter, actor=True, workers=[first]).result()
    assert counter.add(-1).result() == 0  # before the run
    with dasfprof.profile(client, directory=tmp_path) as run:
        calls = [counter.add(number) for number in range(SIDE_BY_SIDE)]
        assert [call.result() for call in calls] == [1, 2, 3, 4, 5]
        with pytest.raises(KeyError, match="no such count"):
            counter.fail().result()
        assert counter.later().result() == SIDE_BY_SIDE + 1
        assert client.submit(add_from_a_task, counter, workers=[second]).result() == 42
    spans = sorted(counter.told().result()[1:])  # after the run
    assert_whole(run)
    calls = calls_of(run)
    states = {("add", "success"): SIDE_BY_SIDE + 1, ("later", "success"): 1, ("fail", "failed"): 1}
    assert Counts(call[:2] for call in calls) == states
    added = sorted(call[2:] for call in calls if call[0] == "add")
    for (arrived, answered), (begin, end) in zip(added, spans, strict=True):
        assert arrived <= begin + 1e-3
        assert end <= answered + 1e-3
    # Actor calls are not counted as waiting for the client. The last call is from a task: its
    # thread is busy, and the other thread has no runnable task.
    analyser = TraceAnalyser(run.files(), progress=False)
    seconds = analyser.time_accounting().set_index("Class")["Thread Time (s)"]
    ran = sum(end - begin for begin, end in spans[:-1])
    assert seconds["Actor calls"] >= 2 * (ran + NAP) - 0.02
    assert not refute(tmp_path, analyser.findings())
    # No hook remains in Dask.
    for worker in client.cluster.workers.values():
        assert worker.handlers["actor_execute"] == worker.actor_execute


def test_a_call_without_an_answer_counts_until_the_end(client: Client, tmp_path: Path) -> None:
    waiter = client.submit(Waiter, actor=True).result()
    try:
        with dasfprof.profile(client, directory=tmp_path) as run:
            call = waiter.wait()
            begun = time.time()
            assert Event("began", client=client).wait(120)
        ended = time.time()
    finally:
        Event("go-on", client=client).set()
        call.result()
    ((method, state, arrived, until),) = calls_of(run)
    assert (method, state) == ("wait", "unanswered")
    assert 0 < until - arrived <= ended - begun + 10.0
    assert_whole(run)
