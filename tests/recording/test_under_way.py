"""Work in progress is in the files: tasks, event loops, scheduler, and client."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from clusters import new_client, wait_until
from distributed import Client, Event, Lock, MultiLock, Queue, Semaphore, get_client, secede
from recorded_facts import assert_whole, computed, facts, frames_of, trace_files

import dasfprof
from dasfprof.database.reader import TraceFile
from dasfprof.recording.dask_internals.held_locks import held_by
from dasfprof.recording.dask_internals.inspection import views
from dasfprof.recording.rows import FileRows
from dasfprof.recording.under_way.loop import Busy, ClientUnderWay, Repeats
from dasfprof.recording.under_way.scheduler import SchedulerUnderWay
from dasfprof.recording.under_way.tasks import TasksUnderWay

ACQUIRE = Semaphore.acquire, Semaphore._acquire, Semaphore.release, MultiLock.acquire


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with new_client(n_workers=2, threads_per_worker=4, processes=False) as client:
        yield client
        Event("go").set()


def is_forgotten(client: Client) -> bool:
    """Return whether tasks of earlier tests are released, whose futures may be in cycles."""
    gc.collect()
    return not client.cluster.scheduler.tasks


@pytest.fixture
def run(client: Client, tmp_path: Path) -> Iterator[Any]:
    wait_until(lambda: is_forgotten(client), every=0.1)
    Event("go").clear()
    run = dasfprof.register_default_profiler(client, directory=tmp_path / "traces")
    yield run
    Event("go").set()
    run.stop()
    assert_whole(run)
    wait_until(lambda: not [t for t in threading.enumerate() if "dasfprof-under-way" in t.name])
    assert (Semaphore.acquire, Semaphore._acquire, Semaphore.release, MultiLock.acquire) == ACQUIRE


def rows_of(source: Any, key: Any) -> list[dict[str, Any]]:
    return [row for row in facts(source, "TracePlugin", "Task Under Way") if row["key"] == key]


def first_row(source: Any, key: Any, **wanted: Any) -> dict[str, Any]:
    """Wait for a row of a task with these values, and return it with the frames of its stack."""

    def found() -> dict[str, Any] | None:
        for row in rows_of(source, key):
            if all(row[name] == value for name, value in wanted.items()):
                return row
        return None

    # The cluster is in this process, so it does not continue while the files are read.
    row: dict[str, Any] = wait_until(found, every=0.5)
    return {**row, "frames": frames_of(source, "TracePlugin", row)}


def go_on() -> None:
    Event("go").wait()


async def wait_for_go() -> None:
    await Event("go").wait()


def recurse(depth: int) -> None:
    if depth:
        recurse(depth - 1)
    else:
        Event("go").wait()


def test_tasks_coroutines_and_deep_recursions_that_wait(client: Client, run: Any) -> None:
    before = time.time()
    futures = [client.submit(go_on, key=("waits", 1)), client.submit(recurse, 900, key="deep")]
    futures.append(client.submit(wait_for_go, key="coroutine"))
    deep, coroutine = first_row(run, "deep"), first_row(run, "coroutine")
    row = first_row(run, ("waits", 1), thread_state="sleeping")
    assert futures[0].status == "pending"
    worker = client.cluster.scheduler.tasks[("waits", 1)].processing_on
    assert row["address"] == worker.address
    assert before <= row["since"] <= row["timestamp"] - 1
    assert row["state"] == "executing"
    for each in (row, deep):
        assert (each["waits_in"], each["waits_for"], each["waits_keys"]) == ("Event", "go", [])
    assert row["holds"] == []
    assert row["cpu"] < 0.5
    assert ["go_on", __file__, go_on.__code__.co_firstlineno + 1] == row["frames"][0]
    assert (len(deep["frames"]), deep["frames"][0][0]) == (100, "recurse")
    assert row["frames"][-1][0].endswith("wait")
    assert deep["frames"][-1][0].endswith("wait")
    assert (coroutine["thread"], coroutine["cpu"], coroutine["thread_state"]) == (None, None, None)
    assert coroutine["frames"][0][0] == "wait_for_go"
    Event("go").set()
    client.gather(futures)
    run.flush()
    (ended,) = (each for each in computed(run) if each["key"] == ("waits", 1))
    assert (ended["run_id"], ended["thread"]) == (row["run_id"], row["thread"])
    assert row["since"] == pytest.approx(ended["timestamp"], abs=5)


SPUN = threading.Event()


def spin() -> None:
    while not SPUN.is_set():
        pass


def test_a_task_that_computes(client: Client, run: Any) -> None:
    SPUN.clear()
    future = client.submit(spin, key="spin")
    try:
        # It counts as running, although it waits for the GIL.
        row = first_row(run, "spin", thread_state="running")
        assert any(name == "spin" for name, *_ in row["frames"])
        wait_until(
            lambda: (rows := rows_of(run, "spin"))[-1]["cpu"] > 0.3 and len(rows) >= 2, every=0.2
        )
    finally:
        SPUN.set()
    future.result()


def test_brief_tasks_have_no_rows(client: Client, run: Any) -> None:
    client.gather(client.map(time.sleep, [0.3] * 64, pure=False))  # on eight threads
    run.flush()
    # Only tasks that take a second, on a slow machine, have rows.
    rows = facts(run, "TracePlugin", "Task Under Way")
    assert all(row["since"] <= row["timestamp"] - 1 for row in rows)
    assert len(rows) < 64


def test_seceded_and_cancelled(client: Client, run: Any) -> None:
    def seceded() -> None:
        secede()
        Event("go").wait()

    long_running = client.submit(seceded, key="seceded")
    first_row(run, "seceded", state="long-running")
    thrown_away = client.submit(go_on, key="thrown-away")
    before = first_row(run, "thrown-away", state="executing")
    thrown_away.cancel()
    row = first_row(run, "thrown-away", state="cancelled")
    assert (row["since"], row["run_id"]) == (before["since"], before["run_id"])
    Event("go").set()
    long_running.result(timeout=120)


def hold_some() -> None:
    semaphore = Semaphore(max_leases=3, name="three")
    with Lock("outer"), Lock("inner"):
        semaphore.acquire()
        semaphore.acquire()
        with MultiLock(["left", "right"]):
            Event("inside").set()
            Event("go").wait()
        semaphore.release()
        semaphore.release()
    assert not Lock("taken").acquire(timeout="0.1s")
    assert held_by("holder") == []
    Event("outside").set()
    Event("end").wait()


def test_what_a_task_holds(client: Client, run: Any) -> None:
    for name in ("inside", "outside", "end"):
        Event(name).clear()
    taken = Lock("taken")
    assert taken.acquire()
    future = client.submit(hold_some, key="holder")
    row = first_row(run, "holder", waits_for="go")
    assert row["holds"] == [
        *(["Lock", "outer"], ["Lock", "inner"], ["Semaphore", "three"], ["Semaphore", "three"]),
        *(["MultiLock", "left"], ["MultiLock", "right"]),
    ]
    Event("go").set()
    Event("outside").wait()
    assert first_row(run, "holder", waits_for="end")["holds"] == []
    Event("end").set()
    future.result()
    taken.release()
    run.flush()
    given_back = facts(run, "TracePlugin", "Lock Held")
    assert [(each["kind"], each["name"], each["limit"]) for each in given_back] == [
        *(("MultiLock", "left", 1), ("MultiLock", "right", 1)),
        *[("Semaphore", "three", 3)] * 2,
        *(("Lock", "inner", 1), ("Lock", "outer", 1)),
    ]
    assert all(each["since"] <= each["timestamp"] for each in given_back)
    assert all(0 <= each["waited"] < 60 for each in given_back)


def states(source: Any, occasion: str = "interval") -> list[dict[str, Any]]:
    rows = facts(source, "SchedulerPlugin", "Scheduler State")
    return [row for row in rows if row["occasion"] == occasion]


def until_state(source: Any, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    row: dict[str, Any] = wait_until(
        lambda: next((row for row in states(source) if condition(row)), None), every=0.2
    )
    return row


def test_what_the_scheduler_has_under_way(client: Client, run: Any) -> None:
    waiting = client.submit(go_on, key="go_on-1")
    after = client.submit(id, waiting, key="after-1")
    nowhere = client.submit(abs, -1, key="nowhere-1", resources={"GPU": 2})
    row = until_state(run, lambda row: row["unfinished"] == 3)
    tasks = {"go_on": {"processing": 1}, "after": {"waiting": 1}, "nowhere": {"no-worker": 1}}
    assert row["tasks"] == tasks
    assert row["finished"] == {}  # earlier tasks of the cluster do not count
    (held,) = row["held_back"]
    assert (held["key"], held["function"]) == ("nowhere-1", "nowhere")
    assert held["restrictions"] == {"resources": {"GPU": 2}}
    assert row["timestamp"] - 120 < held["since"] <= row["timestamp"]
    (mine,) = (each for each in row["clients"] if each["client"] == client.id)
    assert (mine["wanted"], mine["unfinished"]) == (3, 3)
    assert set(mine["keys"]) == {"go_on-1", "after-1", "nowhere-1"}
    assert sum(worker["processing"] for worker in row["workers"]) == 1
    assert [key for worker in row["workers"] for key in worker["keys"]] == ["go_on-1"]
    primitives = until_state(run, lambda row: row["primitives"])["primitives"]
    (event,) = (each for each in primitives if each["kind"] == "Event")
    assert (event["name"], event["waiting"], event["set"]) == ("go", 1, False)
    count = len(states(run))
    nowhere.cancel()
    until_state(run, lambda row: row["unfinished"] == 2)
    assert len(states(run)) <= count + 2  # every 10 s while nothing changes
    Event("go").set()
    after.result()
    row = until_state(run, lambda row: row["tasks"].get("after") == {"memory": 1})
    finished = row["finished"]
    assert finished.keys() == {"go_on", "after"}
    assert [tuple(counts[:2]) for counts in finished.values()] == [(1, 0)] * 2
    assert finished["go_on"][2] > 1


def test_a_client_that_leaves(client: Client, run: Any) -> None:
    """Tasks that are cancelled when it leaves are recorded before, assigned or not."""
    address = client.scheduler.address
    with Client(address, set_as_default=False) as other:
        first = other.submit(go_on, key="others-go")
        kept = [first, *other.map(lambda i, _: i, range(2000), _=first, key="others-rest")]
        kept.append(other.submit(abs, -1, key="others-nowhere", resources={"GPU": 2}))
        wait_until(lambda: len(client.cluster.scheduler.tasks) == 2002)
        name = other.id
    run.flush()
    (row,) = states(run, "client-left")
    assert row["client"] == name
    assert row["tasks"]["others-rest"] == {"waiting": 2000}
    assert row["unfinished"] == 2002
    assert [task["key"] for task in row["held_back"]] == ["others-nowhere"]
    (left,) = (each for each in row["clients"] if each["client"] == name)
    assert (left["wanted"], left["unfinished"]) == (2002, 2002)
    ended = wait_until(lambda: run.flush() or facts(run, "SchedulerPlugin", "Task Run"))
    (task_run,) = (each for each in ended if each["key"] == "others-go")
    assert task_run["end_cause"].startswith("remove-client")


def test_the_end_of_recording(client: Client, tmp_path: Path) -> None:
    Event("go").clear()
    with dasfprof.profile(client, directory=tmp_path) as run:
        future = client.submit(go_on, key="unfinished")
        first_row(run, "unfinished")
        nowhere = [client.submit(abs, 1, key="nowhere-1", resources={"GPU": 2})]
        wait_until(lambda: "nowhere-1" in client.cluster.scheduler.tasks)
        between = time.time()
        nowhere.append(client.submit(abs, 2, key="nowhere-2", resources={"GPU": 2}))
        wait_until(lambda: "nowhere-2" in client.cluster.scheduler.tasks)
    Event("go").set()
    future.result()
    (row,) = states(run, "closing")
    assert row["unfinished"] == 3
    assert row["tasks"]["unfinished"] == {"processing": 1}
    (unsent,) = facts(run, "SchedulerPlugin", "Unsent Tasks")
    assert (unsent["name"], unsent["state"], unsent["tasks"]) == ("nowhere", "no-worker", 2)
    assert unsent["timestamp"] <= between < row["timestamp"]


def client_rows(source: Any) -> list[dict[str, Any]]:
    return facts(source, "StepRecorder", "Client Under Way")


def test_what_the_client_does(client: Client, run: Any) -> None:
    future = client.submit(go_on, key="awaited")

    def waiting() -> list[dict[str, Any]]:
        return [row for row in client_rows(run) if row["waits_in"] == "result"]

    def go_on_once_told() -> None:
        wait_until(lambda: len(waiting()) >= 2, every=0.2)
        Event("go").set()

    teller = threading.Thread(target=go_on_once_told)
    teller.start()
    begin = time.time()
    future.result()
    teller.join()
    run.flush()
    rows = waiting()
    assert len(rows) >= 2
    for row in rows:
        assert row["client"] == client.id
        assert row["waits_keys"] == ["awaited"]
        assert begin - 0.1 <= row["since"] <= row["timestamp"]
        names = [name for name, *_ in frames_of(run, "StepRecorder", row)]
        assert "test_what_the_client_does" in names
    assert rows[0]["since"] == rows[-1]["since"]


def test_a_forked_child_writes_nothing(client: Client, run: Any) -> None:
    begin = time.time()
    child = os.fork()
    if not child:
        time.sleep(3)
        os._exit(0)
    os.waitpid(child, 0)
    run.flush()
    (file,) = trace_files(run, "StepRecorder")
    assert file.read_header()["pid"] == os.getpid()
    rows = [row for row in client_rows(run) if row["timestamp"] > begin]
    assert len(rows) <= 4
    names = [frames_of(run, "StepRecorder", row)[-1][0] for row in rows]
    assert "test_a_forked_child_writes_nothing" in names


class Hostile(Queue):  # type: ignore[misc]
    """Primitive whose name and class raise exceptions."""

    asked: ClassVar[list[str]] = []

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        self.asked.append("class")
        raise RuntimeError("the profiler asked for my class")

    def __getattribute__(self, name: str) -> Any:
        if name == "name" and threading.current_thread().name.startswith("dasfprof"):
            Hostile.asked.append("name")
            raise RuntimeError("the profiler asked for my name")
        return super().__getattribute__(name)


class HostileList(list):  # type: ignore[type-arg]
    """Collection of futures that cannot be iterated."""

    def __iter__(self) -> Iterator[Any]:
        if threading.current_thread().name.startswith("dasfprof"):
            raise RuntimeError("the profiler looked through my list")
        return super().__iter__()

    def __len__(self) -> int:
        if threading.current_thread().name.startswith("dasfprof"):
            raise RuntimeError("the profiler counted my list")
        return super().__len__()


def test_objects_that_cannot_be_looked_at(client: Client, run: Any) -> None:
    def reads() -> Any:
        return Hostile("hostile").get(timeout="120s")

    def gathers() -> Any:
        mine = get_client()
        return mine.gather([HostileList(), mine.submit(go_on, key="inner")])[1]

    reading = client.submit(reads, key="reads")
    gathering = client.submit(gathers, key="gathers")
    row = first_row(run, "reads")
    assert (row["waits_in"], row["waits_for"]) == ("Queue.get", None)
    row = first_row(run, "gathers")
    assert (row["waits_in"], row["waits_keys"]) == ("gather", ["inner"])
    Queue("hostile").put(7)
    assert reading.result() == 7
    Event("go").set()
    assert gathering.result() is None
    assert "class" not in Hostile.asked


def test_threads_that_end_between_two_looks(client: Client, tmp_path: Path) -> None:
    """The CPU clock of an ended thread must not be read, which might crash the process."""
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            rows = views.tasks_under_way(worker, 0.0, cpu)
            assert all(row["cpu"] is None or row["cpu"] >= 0 for row in rows)

    cpu: dict[Any, float] = {}
    worker = client.cluster.workers[0]
    looker = threading.Thread(target=look)
    looker.start()
    try:
        for number in range(40):  # each task secedes, and a new thread replaces its thread
            keys = [("leaves", number, i) for i in range(4)]
            client.gather(client.map(leave, range(4), key=keys, workers=[worker.address]))
    finally:
        done.set()
        looker.join()
    wait_until(lambda: not worker.active_threads)
    assert views.tasks_under_way(worker, 0.0, cpu) == []
    assert cpu == {}


def leave(_: int) -> None:
    secede()


LOOKS = (TasksUnderWay.sample, ClientUnderWay.sample, SchedulerUnderWay._write, FileRows.write)


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__qualname__)
def test_a_look_that_fails(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Any
) -> None:
    looks = 0

    def fail(*_: Any, **__: Any) -> None:
        nonlocal looks
        looks += 1
        raise RuntimeError("injected")

    Event("go").clear()
    monkeypatch.setattr(f"{look.__module__}.{look.__qualname__}", fail)
    run = dasfprof.register_default_profiler(client, directory=tmp_path)
    future = client.submit(go_on, key=f"failing-{look.__qualname__}")
    wait_until(lambda: looks >= 3)  # samples continue after a failed one
    Event("go").set()
    future.result()
    run.stop()
    files = [TraceFile(path) for path in run.files()]
    for file in files:
        list(file.batches())
        assert file.end is not None
    assert sum(file.errors for file in files) >= 2
    assert [row["key"] for row in computed(run)] == [future.key]


def test_the_same_is_repeated_less_often_changes_are_written_and_flicker_is_not() -> None:
    repeats = Repeats(0.0)
    due = [at for at in range(200) if repeats.is_due(at, "same", "sleeping")]
    assert due == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    repeats, states = Repeats(0.0), {"s": "sleeping", "r": "running"}
    seen = zip("aabbbbbbbbb", "ssssrsrsrrr", strict=True)
    due = [at for at, (facts, state) in enumerate(seen) if repeats.is_due(at, facts, states[state])]
    # 3 and 7 are due because nothing had been written for long; the change at 8 is flicker.
    assert due == [0, 1, 2, 3, 7, 9]


def test_a_thread_that_used_a_core_was_running() -> None:
    busy = Busy()
    assert busy.state("sleeping", 1.0, 10.0) is None
    assert busy.state("sleeping", 1.3, 11.0) == "running"
    assert (
        busy.state("sleeping", 1.3, 11.1) == "running"
    )  # too soon: the thread may have waited by chance
    assert busy.state("sleeping", 1.31, 12.0) == "sleeping"
    assert busy.state("disk", 1.31, 13.0) == "disk"
    assert busy.state(None, None, 14.0) is None
