"""Time accounting counts all thread time once: by hand, with an oracle, and on real clusters."""

import operator
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import new_client
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from random_runs import GRID, random_run, stages
from traces import made_trace

import dasfprof
from dasfprof import Trace, TraceAnalyser
from dasfprof.analysis.numeric.intervals import union

GROUPINGS = ["cluster", "host", "worker", "function"]


def accounts(trace: Trace, by: Any = "cluster") -> dict[str, float]:
    table = TraceAnalyser(trace).time_accounting(by)
    return dict(table.groupby("Class")["Thread Time (s)"].sum())


def test_a_union_of_time_ranges_by_hand() -> None:
    # The second range is within the first, the third touches it, and the last is separate.
    begins, ends = union(np.array([5.0, 0.0, 1.0, 9.0]), np.array([7.0, 5.0, 2.0, 10.0]))
    assert (begins.tolist(), ends.tolist()) == ([0.0, 9.0], [7.0, 10.0])


def test_one_task_on_one_thread_by_hand() -> None:
    run = stages("f-1", 2.0, 0.25, 0.5, 1.0, 2.0, 8.0, 4.0, 0.25)
    run |= {"cpu": 5.0, "run_queue": 1.0, "disk_read": 0.5, "deserialize": 0.25}
    life = {"first_seen": 0.0, "last_seen": 32.0, "nthreads": 1}
    assert accounts(made_trace([run], workers=[life])) == {
        "Computing": 5.0,
        "Waiting for CPU": 1.0,
        "Blocked": 2.0,
        "Deserializing": 0.25,
        "Spilling": 0.5,
        "Task overhead": 1.25 + 4.0,
        "Task start delay": 1.0,
        "Waiting for transfer": 0.5,
        "Task in transit": 0.25,
        "Waiting for scheduler": 0.25,
        "Waiting for client": 2.0 + 14.0,
    }


def test_a_thread_goes_from_one_run_to_the_next_within_a_moment() -> None:
    """The number of threads is unknown, and no two of its task runs were parallel."""
    runs = [
        stages("f-1", 0.0, 0, 0, 0, 0, 4.0, 0, 0),
        stages("f-2", 0.0, 0, 0, 4.0, 0, 5.0, 0, 0),
    ]
    life = {"first_seen": 0.0, "last_seen": 10.0, "nthreads": None}
    assert accounts(made_trace(runs, workers=[life])) == {"Blocked": 9.0, "Waiting for client": 1.0}


def test_a_run_that_secedes_gives_its_thread_back() -> None:
    run = stages("f-1", 0.0, 0, 0, 0, 0, 8.0, 0, 0, seceded=2.0, cpu=4.0)
    life = {"first_seen": 0.0, "last_seen": 8.0}
    found = accounts(made_trace([run], workers=[life]))
    assert found == {"Computing": 1.0, "Blocked": 1.0, "No runnable tasks": 6.0}


def test_what_a_killed_worker_ran_is_told_apart() -> None:
    lost = {"key": "f-1", "worker_id": 0, "scheduler_waiting": 0.0, "sent": 0.0, "known": 3.0}
    lost |= {"start": 1.0, "stop": 2.5, "lost": True}
    taken = {"key": "f-2", "worker_id": 0, "scheduler_waiting": 3.0, "sent": 3.0, "known": 7.0}
    life = {"first_seen": 0.0, "last_seen": 5.0, "left": 8.0}
    # The scheduler learns of the lost task's end half a second later.
    assert accounts(made_trace([], workers=[life], scheduler_only=[lost, taken])) == {
        "Running (CPU time not recorded)": 1.5,
        "Waiting for scheduler": 0.5,
        # It is unknown when the worker received the lost task.
        "Not recorded": 1.0 + 4.0,
        "Waiting for client": 1.0,
    }


def test_without_the_scheduler_idle_has_no_known_cause() -> None:
    run = stages("f-1", 2.0, 0, 0.5, 0.5, 0, 3.0, 0, 0)
    life = {"first_seen": 0.0, "last_seen": 8.0}
    assert accounts(made_trace([run], workers=[life], scheduler=False)) == {
        "Blocked": 3.0,
        "Task start delay": 0.5,
        "Waiting for transfer": 0.5,
        "Idle (cause unknown)": 4.0,
    }


def test_functions_share_what_is_busy() -> None:
    runs = [
        stages("f-1", 0, 0, 0, 0, 0, 4.0, 1.0, 0, cpu=1.0),
        stages("g-1", 5.0, *[0] * 4, 1, 0, 0),
    ]
    trace = made_trace(runs, workers=[{"first_seen": 0.0, "last_seen": 7.0}])
    table = TraceAnalyser(trace).time_accounting("function")
    assert table[["Function", "Class", "Thread Time (s)"]].to_numpy().tolist() == [
        ["f", "Computing", 1.0],
        ["f", "Blocked", 3.0],
        ["f", "Task overhead", 1.0],
        ["(idle)", "Waiting for client", 1.0],
        ["g", "Blocked", 1.0],
    ]
    assert table["Share (%)"].tolist() == [20.0, 60.0, 20.0, 100.0, 100.0]


def oracle(made: dict[str, Any]) -> dict[str, float]:
    """Return the categories of each worker's threads in each quarter of a second."""
    seconds: dict[str, float] = defaultdict(float)
    tasks, taken = made["tasks"], made["scheduler_only"]
    for run in tasks:
        run["out"] = run.get("stolen", run["sent"])
        run["runnable"] = run.get("queued", run["sent"])
        run["end"] = max(run["executing"], min(run["done"], run.get("seceded", np.inf)))
    begins, ends = [], []
    for number, life in enumerate(made["workers"]):
        mine = [run for run in tasks if run["worker_id"] == number]
        begun = sorted(run["executing"] for run in mine)[life["nthreads"] :]
        for run, next_ in zip(sorted(mine, key=operator.itemgetter("end")), begun, strict=False):
            if run["start"] + run["duration"] <= next_ < run["end"]:
                run["end"] = max(run["executing"], next_)  # a worker has no more slots than threads
        names = ("first_seen", "last_seen", "joined", "left")
        times = [life[name] for name in names if name in life]
        begins.append(min([*times, *(run["received"] for run in mine)]))
        ends.append(max([*times, *(run["end"] for run in mine)]))
    for step in range(round(max([0.0, *ends]) / GRID)):
        now = (step + 0.5) * GRID

        def during(run: dict[str, Any], begin: str, end: str, now: float = now) -> bool:
            return bool(run[begin] <= now < run[end])

        pool = surplus = 0
        for number, life in enumerate(made["workers"]):
            if not begins[number] <= now < ends[number]:
                continue
            mine = [run for run in tasks if run["worker_id"] == number]
            running = [run for run in mine if during(run, "executing", "end")]
            threads = life["nthreads"]
            for run in running:
                inside = run["start"] <= now < run["start"] + run["duration"]
                name = "Blocked" if inside else "Task overhead"
                seconds[name] += GRID * min(1, threads / len(running))
            free = max(0, threads - len(running))
            ready = sum(during(run, "ready", "executing") for run in mine)
            status = status_at(made, number, now, begins[number])
            surplus += 0 if status == "Worker closing" else max(0, ready - (0 if status else free))
            if status:
                seconds[status] += free * GRID
                continue
            for name, demand in (
                ("Not recorded", sum(during(r, "sent", "known") for r in taken if not number)),
                ("Task start delay", ready),
                ("Waiting for transfer", sum(during(run, "received", "ready") for run in mine)),
                ("Task in transit", sum(during(run, "out", "received") for run in mine)),
            ):
                seconds[name] += min(free, demand) * GRID
                free -= min(free, demand)
            pool += free
        unsent = min(pool, sum(during(run, "runnable", "sent") for run in tasks))
        elsewhere = min(pool - unsent, surplus)
        rest = pool - unsent - elsewhere
        seconds["Waiting for scheduler"] += unsent * GRID
        seconds["Tasks queued elsewhere"] += elsewhere * GRID
        at_work = [r for r in tasks if during(r, "sent", "done")]
        at_work += [r for r in taken if during(r, "sent", "known")]
        if not at_work and any(during(run, "done", "known") for run in tasks):
            seconds["Waiting for scheduler"] += rest * GRID
        elif at_work or any(during(run, "scheduler_waiting", "known") for run in (*tasks, *taken)):
            seconds["No runnable tasks"] += rest * GRID
        elif any(0 <= now - call["start"] < call["duration"] for call in made["actor_calls"]):
            seconds["Actor calls"] += rest * GRID
        else:
            seconds["Waiting for client"] += rest * GRID
    return {name: value for name, value in seconds.items() if value}


def status_at(made: dict[str, Any], number: int, now: float, begin: float) -> str:
    life = made["workers"][number]
    if begin <= now < life.get("joined", begin):
        return "Worker starting"
    if now >= life.get("left", np.inf):
        return "Worker closing"
    samples = [s for s in made["samples"] if s["worker_id"] == number and s["time"] <= now]
    if not samples:
        return ""
    last = max(samples, key=operator.itemgetter("time"))
    # The last of several samples at the same time counts.
    last = [sample for sample in samples if sample["time"] == last["time"]][-1]
    return "Worker paused" if last["state"] == "paused" else ""


@examples(24, long=3000)
@given(st.integers(0, 2**32))
def test_random_runs_against_the_oracle(seed: int) -> None:
    made = random_run(seed)
    trace = made_trace(**made)
    seconds = {by: TraceAnalyser(trace).time_accounting(by)["Thread Time (s)"] for by in GROUPINGS}
    assert (seconds["cluster"] >= 0).all()
    assert accounts(trace) == pytest.approx(oracle(made), abs=1e-9)
    for each in seconds.values():
        assert each.sum() == pytest.approx(seconds["cluster"].sum(), abs=1e-9)


def nap(seconds: float, *inputs: Any) -> float:
    time.sleep(seconds)
    return seconds


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float, float]:
    """Record a chain of naps, then a second without work, then naps for both threads.

    Returns the directory, the seconds with tasks, and the seconds that the client slept.
    """
    directory = tmp_path_factory.mktemp("run")
    with (
        new_client(n_workers=2, threads_per_worker=1, processes=False) as client,
        dasfprof.profile(client, directory=directory),
    ):
        begin = time.monotonic()
        last = client.submit(nap, 0.1, key="chain-0")
        for link in range(1, 10):
            last = client.submit(nap, 0.1, last, key=f"chain-{link}")
        last.result()
        chain = time.monotonic()
        time.sleep(1.0)
        slept = time.monotonic() - chain
        client.gather([client.submit(nap, 0.3, key=f"nap-{n}") for n in range(4)])
        worked = time.monotonic() - begin - slept
    return directory, worked, slept


def lifetime(trace: Trace) -> float:
    workers = trace.workers[trace.workers["kind"] == "worker"]
    end = workers[["last_seen", "left", "joined"]].max(axis=1)
    begin = workers[["first_seen", "joined"]].min(axis=1)
    return float(((end - begin) * workers["nthreads"].astype(float)).sum())


@pytest.mark.parametrize("missing", ["no", "SchedulerPlugin", "TracePlugin", "ResourceMonitor"])
def test_real_threads_times_seconds(real_run: tuple[Path, float, float], missing: str) -> None:
    paths = [path for path in sorted(real_run[0].iterdir()) if f"-{missing}-" not in path.name]
    trace = Trace.from_database(paths)
    tables = {by: TraceAnalyser(trace).time_accounting(by) for by in GROUPINGS}
    sums = [table["Thread Time (s)"].sum() for table in tables.values()]
    assert sums == pytest.approx([sums[0]] * 4, abs=1e-9)
    if missing == "no":
        # No time of a task is before the worker's first event, which is when it joined.
        assert sums[0] == pytest.approx(lifetime(trace), abs=1e-3)
    assert all((table["Thread Time (s)"] >= 0).all() for table in tables.values())


def test_planted_causes_are_found(real_run: tuple[Path, float, float]) -> None:
    directory, worked, slept = real_run
    trace = Trace.from_database(directory)
    found = accounts(trace)
    # One of two threads is idle while the other runs the chain, and both while the client sleeps.
    assert found["Waiting for client"] >= 2 * slept * 0.9
    assert 10 * 0.1 * 0.9 <= found["No runnable tasks"] <= 2 * worked - 10 * 0.1 - 4 * 0.3
    running = found["Blocked"] + found["Computing"] + found.get("Waiting for CPU", 0.0)
    assert running >= 10 * 0.1 + 4 * 0.3 - 0.05
    assert found["Computing"] < 0.5
    status = TraceAnalyser(trace).per_task_status()
    naps = status[status["Function"] == "nap"]
    # Two of the four naps wait for a thread. A total is between two times of the scheduler. On a
    # busy host, they are ready some time after the first nap has begun.
    assert (naps["Running (s)"] >= 0.29).all()
    runs = trace.tasks[trace.tasks["function"] == "nap"]
    late = max(float(runs["ready"].max() - runs["executing"].min()), 0.0)
    assert naps["Inqueue (s)"].sum() >= 2 * (0.3 - late) - 0.05
    times = trace.tasks["known"] - trace.tasks["scheduler_waiting"]
    assert status["Total (s)"].sum() == pytest.approx(times.sum(), abs=1e-6)
