"""A worker that has nothing to do hardly wakes, and what then begins is recorded from its begin."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clusters import client_of, wait_until
from distributed import Client
from recorded_facts import facts

import dasfprof
from dasfprof import FileDatabase, InstantEvent
from dasfprof.recording.stack_samples.schedule import REST, Schedule

pytestmark = pytest.mark.dask_internals

#: What a worker does beyond sampling its resources may take two wakes a second; three times that.
WAKES_A_SECOND = 6.0

client = client_of(1, 1)


def wakes() -> int:
    """Return how often our threads of this process have slept, but for the one that samples."""
    ours = {
        thread.native_id: thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("dasfprof") and "sampler" not in thread.name
    }
    found = 0
    for native in ours:
        text = Path(f"/proc/self/task/{native}/status").read_text()
        found += int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


def rests() -> bool:
    return REST.lasts


def on_the_worker(client: Client, ask: Callable[..., Any], *args: Any) -> Any:
    return next(iter(client.run(ask, *args).values()))


def wait_for_rest(client: Client) -> None:
    wait_until(lambda: on_the_worker(client, rests), every=0.3)


def test_an_idle_worker_hardly_wakes(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path):

        def is_calm() -> bool:
            before, begin = on_the_worker(client, wakes), time.monotonic()
            time.sleep(2.0)
            woke = on_the_worker(client, wakes) - before
            return bool(woke <= WAKES_A_SECOND * (time.monotonic() - begin))

        wait_until(is_calm)  # a machine that lets the loop wait for a core has it looked at


def sleep_in_a_task(seconds: float) -> float:
    """Return for how long it slept, which a crowded machine makes longer."""
    begin = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - begin


class Sleeper:
    """An actor."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def test_what_begins_in_a_rest_is_sampled_from_its_begin(client: Client, tmp_path: Path) -> None:
    slept = 0.0
    with dasfprof.profile(client, directory=tmp_path) as run:
        for number in range(3):
            wait_for_rest(client)
            slept += client.submit(sleep_in_a_task, 1.0, key=f"sleep-{number}").result()
        wait_for_rest(client)
        on_the_worker(client, time.sleep, 1.5)  # in the loop's thread
        run.flush()
    tasks = facts(run, "TracePlugin", "Task Sample")
    # A look after a rest stands for one and a half times of that between looks at most, and a slow
    # machine, on which looks are dear, takes one in 0.3 s.
    assert 0.5 * slept < sum(row["interval"] for row in tasks) < 1.6 * slept
    loops = facts(run, "TracePlugin", "Loop Sample")
    assert sum(row["interval"] for row in loops) > 0.5


def test_a_worker_with_an_actor_does_not_rest(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        sleeper = client.submit(Sleeper, actor=True).result()
        wait_until(lambda: not on_the_worker(client, rests))
        sleeper.sleep(2.0).result()  # some looks of a slow machine, on which they are dear
        del sleeper
    assert sum(row["interval"] for row in facts(run, "TracePlugin", "Task Sample")) > 0.5


def test_looks_after_rests_stand_for_as_much_time_as_passes() -> None:
    schedule, rests = Schedule(0.05, 100.0), 20_000
    stood_for = {0.01: 0.0, 0.04: 0.0, 0.2: 0.0}  # by the seconds that something takes after a rest
    for rest in range(rests):
        now = 200.0 + rest
        schedule.resume(now)
        assert now <= schedule.due <= now + 0.075
        while (due := schedule.due) <= now + max(stood_for):
            seconds, of_rare = schedule.answer(due)
            assert of_rare == 0 or of_rare >= seconds
            schedule.go_on()
            for length in stood_for:
                stood_for[length] += seconds if due <= now + length else 0.0
    # A rest's looks stand for its time give or take 0.027 s: six times that of the mean.
    for length, seconds in stood_for.items():
        assert seconds / rests == pytest.approx(length, abs=6 * 0.027 / rests**0.5)


def test_a_writer_sleeps_without_rows_and_writes_the_next_in_time(tmp_path: Path) -> None:
    database = FileDatabase(tmp_path / "t.msgpack", flush_interval=0.01)
    for number in range(1, 6):
        database.record(InstantEvent("event", timestamp=float(number)))
        reader = FileDatabase  # another, which does not have the writer write
        wait_until(
            lambda number=number, reader=reader: (
                sum(1 for _ in reader(tmp_path / "t.msgpack").get_traces()) == number
            )
        )
        wait_until(lambda: database.writer._asleep)
    before = database.writer._steps
    time.sleep(0.3)
    assert database.writer._asleep
    assert database.writer._steps == before
    database.close()
