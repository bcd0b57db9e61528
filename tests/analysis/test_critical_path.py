"""The critical path: calculated by hand, compared with brute force, and on real clusters."""

import itertools
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import random_runs
from clusters import new_client
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import ANY_RUNS, Plan, Task, compute, made_trace, record

import dasfprof
from dasfprof import Trace, TraceAnalyser

COLUMNS = ["Start (s)", "Duration (s)", "Kind", "Task Key", "Bound By"]
#: Two workers with the scheduler's clock.
WORKERS = [{"boot_id": "scheduler's"}] * 2


def path_of(*runs: dict[str, Any], **options: Any) -> list[list[Any]]:
    options = {"workers": WORKERS, **options}
    table = TraceAnalyser(made_trace(runs, **options)).critical_path()
    return table[COLUMNS].to_numpy().tolist()


def stages(key: str, arrival: float, sent: float, *lengths: float, **more: Any) -> dict[str, Any]:
    """Return a task run of a graph; see `random_runs.stages`."""
    facts = {"scheduler_waiting": arrival, "cause": "update-graph-1"}
    facts |= {"end_cause": f"task-finished-{key}", **more}
    return random_runs.stages(key, sent, *lengths, **facts)


FIRST = stages("a-1", 1.0, 1.0, 0.25, 0.0, 0.25, 0.5, 4.0, 0.25, 0.25)


def test_one_task_by_hand() -> None:
    expected = [
        [1.0, 0.25, "Task in transit", "a-1", "client"],
        [1.25, 0.25, "Worker", "a-1", "client"],
        [1.5, 0.5, "Task overhead", "a-1", "client"],
        [2.0, 4.0, "Compute", "a-1", "client"],
        [6.0, 0.25, "Task overhead", "a-1", "client"],
        [6.25, 0.25, "Scheduler", "a-1", "client"],
    ]
    assert path_of(FIRST) == expected
    # It is unknown when a worker received what its file does not contain.
    unseen = dict.fromkeys(("received", "ready", "executing", "done"), np.nan)
    assert path_of({**FIRST, **unseen}) == [
        [1.0, 1.0, "Unknown", "a-1", "client"],
        expected[3],
        [6.0, 0.5, "Scheduler", "a-1", "client"],
    ]


# fmt: off
#: Limits of a second task: its assignment, durations, and its part of the path.
BOUND: dict[str, Any] = {
    "dependency": (
        stages("b-1", 1.0, 6.75, 0.25, 2.0, 0, 1.0, 3.0, 0, 0.5, cause="task-finished-a-1",
               dependencies=["a-1"], worker_id=1, disk_read=0.75),
        [(6.5, 0.25, "Scheduler"), (6.75, 0.25, "Task in transit"), (7.0, 2.0, "Transfer"),
         (9.0, 0.75, "Unspill"), (9.75, 0.25, "Task overhead"), (10.0, 3.0, "Compute"),
         (13.0, 0.5, "Scheduler")],
    ),
    # Ready at 2, started when the other slot had ended at 6.25.
    "thread": (
        stages("b-1", 1.0, 1.0, 0.5, 0.5, 4.5, 0, 3.0, 0, 0.5),
        [(6.25, 0.25, "Worker"), (6.5, 3.0, "Compute"), (9.5, 0.5, "Scheduler")],
    ),
    # Queued on the scheduler.
    "queue": (
        stages("b-1", 1.0, 6.5, 0.5, 0, 0, 0, 3.0, 0, 0, cause="task-finished-a-1", queued=1.0,
               worker_id=1),
        [(6.5, 0.5, "Task in transit"), (7.0, 3.0, "Compute")],
    ),
    # Assigned to another worker at 1, stolen at 6.5, when the thief's task had ended at 6.25.
    "steal": (
        stages("b-1", 1.0, 1.0, 6.0, 0, 0, 0, 3.0, 0, 0, stolen=6.5),
        [(6.25, 0.25, "Scheduler"), (6.5, 0.5, "Task in transit"), (7.0, 3.0, "Compute")],
    ),
}
# fmt: on


@pytest.mark.parametrize("bound", BOUND)
def test_what_a_task_is_bound_by(bound: str) -> None:
    second, expected = BOUND[bound]
    path = path_of(FIRST, second)
    assert path[-len(expected) :] == [[*part, "b-1", bound] for part in expected]
    assert {row[3] for row in path[: -len(expected)]} == {"a-1"}


def test_a_client_is_told_only_of_what_it_wants() -> None:
    # Another task ended after the first, but no client had a future of it.
    side = stages("c-1", 1.0, 1.0, 0.5, 0, 0, 0, 6.0, 0, 0, worker_id=1, wanted=0)
    second = stages("b-1", 9.0, 9.0, 0.5, 0, 0, 0, 3.0, 0, 0, cause="update-graph-2")
    gap = [[6.5, 2.5, "Client", "b-1", "client"]]
    assert path_of(FIRST | {"wanted": 1}, side, second)[6:7] == gap
    assert path_of(FIRST, side, second)[6:7] == gap  # unknown for the first task
    late = [[7.5, 1.5, "Client", "b-1", "client"]]
    assert path_of(FIRST, side | {"wanted": 1}, second)[2:3] == late
    # The client received nothing before, so all time until the submission was its own.
    assert path_of(FIRST | {"wanted": 0}, side, second) == [
        [1.0, 8.0, "Client", "b-1", "client"],
        [9.0, 0.5, "Task in transit", "b-1", "client"],
        [9.5, 3.0, "Compute", "b-1", "client"],
    ]


def test_without_the_scheduler_dependencies_are_what_is_known() -> None:
    second = stages("b-1", 1.0, 6.75, 0.25, 2.0, 0, 0, 3.0, 0, 0, dependencies=["a-1"])
    path = path_of(FIRST, second, scheduler=False)
    assert path[0] == [1.25, 0.25, "Worker", "a-1", ""]
    assert path[4:] == [
        [6.25, 0.75, "Unknown", "b-1", "dependency"],
        [7.0, 2.0, "Transfer", "b-1", "dependency"],
        [9.0, 3.0, "Compute", "b-1", "dependency"],
    ]


def test_the_path_never_goes_back_in_time() -> None:
    """By its host's clock, b-1 ended a second before the run of a-1 whose result it used."""
    runs = [
        {"key": key, "worker_id": worker, "executing": start, "start": start, "duration": seconds}
        | {"done": start + seconds, "dependencies": inputs}
        for key, worker, start, seconds, inputs in (
            ("a-1", 0, 1.0, 4.0, []),
            ("b-1", 1, 3.0, 1.0, ["a-1"]),
            ("c-1", 1, 6.0, 2.0, ["b-1"]),
        )
    ]
    assert path_of(*runs, scheduler=False) == [
        [1.0, 3.0, "Compute", "a-1", ""],
        [4.0, 2.0, "Unknown", "c-1", "dependency"],
        [6.0, 2.0, "Compute", "c-1", "dependency"],
    ]


#: Exit of the second worker at 9.
LEFT = [WORKERS[0], {**WORKERS[1], "left": 9.0}]
AGAIN = 0.25, 0, 0, 0, 4.0, 0, 0.5


def test_what_was_lost_with_its_worker_is_where_the_path_begins() -> None:
    # Known at 1, assigned at 1.5 to the worker that left with it, and again at 9.25.
    lost = {"key": "a-1", "worker_id": 1, "scheduler_waiting": 1.0, "sent": 1.5, "known": 9.0}
    lost |= {"cause": "update-graph-1", "end_cause": "handle-worker-cleanup-1"}
    again = stages("a-1", 9.0, 9.25, *AGAIN, cause="handle-worker-cleanup-1")
    assert path_of(again, workers=LEFT, scheduler_only=[lost]) == [
        [1.0, 0.5, "Scheduler", "a-1", ""],
        [1.5, 7.5, "Lost", "a-1", ""],
        [9.0, 0.25, "Scheduler", "a-1", ""],
        [9.25, 0.25, "Task in transit", "a-1", ""],
        [9.5, 4.0, "Compute", "a-1", ""],
        [13.5, 0.5, "Scheduler", "a-1", ""],
    ]
    # A result that a client released, and submitted again, was not lost.
    released = {**lost, "end_cause": "client-releases-keys-1", "state": "released"}
    again |= {"cause": "update-graph-2"}
    path = path_of(again, workers=LEFT, scheduler_only=[released])
    assert path[0] == [1.0, 8.0, "Client", "a-1", "client"]


def test_a_result_that_was_lost_with_its_worker() -> None:
    first, cleanup = FIRST | {"worker_id": 1}, {"cause": "handle-worker-cleanup-1"}
    again = stages("a-1", 9.0, 9.0, *AGAIN, **cleanup)
    # The result was known at 6.5, and existed until 9.
    assert path_of(first, again, workers=LEFT)[6:9] == [
        [6.5, 2.5, "Lost", "a-1", "client"],
        [9.0, 0.25, "Task in transit", "a-1", "client"],
        [9.25, 4.0, "Compute", "a-1", "client"],
    ]
    # Its worker still existed: the client released the result, and submitted the task again.
    told = {"cause": "update-graph-2", "wanted": 1}
    path = path_of(first | {"wanted": 1}, again | told)
    assert [6.5, 2.5, "Client", "a-1", "client"] in path


def test_summary_by_kind_and_function() -> None:
    second = stages("b-1", 9.0, 9.0, 0.5, 0, 0, 0, 3.0, 0, 0, cause="update-graph-2")
    table = TraceAnalyser(made_trace([FIRST, second], workers=WORKERS)).critical_path_summary()
    assert table[["Kind", "Function", "Duration (s)", "Task Runs"]].to_numpy().tolist() == [
        ["Compute", "a", 4.0, 1],
        ["Compute", "b", 3.0, 1],
        ["Client", "b", 2.5, 1],
        ["Task overhead", "a", 0.75, 1],
        ["Task in transit", "b", 0.5, 1],
        ["Task in transit", "a", 0.25, 1],
        ["Worker", "a", 0.25, 1],
        ["Scheduler", "a", 0.25, 1],
    ]
    assert table["Share (%)"].sum() == pytest.approx(100)
    assert table["Meaning"].notna().all()


def test_what_functions_on_the_path_did() -> None:
    # a's 4 s: 1 s on a core, 0.5 s waiting for one; b's 3 s: 2 s and 0.25 s.
    split = ["CPU (s)", "Waiting for CPU (s)", "Blocked (s)"]
    runs = [{**FIRST, "cpu": 1.0, "run_queue": 0.5}]
    for key, at, seconds, told in (
        ("b-1", 9.0, 3.0, {"cpu": 2.0, "run_queue": 0.25}),
        ("b-2", 20.0, 2.0, {"cpu": 0.5}),
    ):
        runs.append(stages(key, at, at, 0.5, 0, 0, 0, seconds, 0, 0, cause=f"update-graph-{at}"))
        runs[-1] |= told
    table = TraceAnalyser(made_trace(runs, workers=WORKERS)).critical_path_summary()
    computed = table[table["Kind"] == "Compute"].set_index("Function")
    assert computed.loc["a", split].tolist() == [1.0, 0.5, 2.5]
    # CPU wait of the third task run was not recorded, so only its CPU time counts.
    assert computed.loc["b", split].tolist() == [2.5, 0.25, 0.75]
    assert computed.loc["b", "Duration (s)"] == 5.0
    assert table.loc[table["Kind"] != "Compute", split].isna().all(axis=None)


@pytest.mark.parametrize("scheduler", [True, False])
def test_an_empty_run(scheduler: bool) -> None:
    for trace in (made_trace([], scheduler=scheduler), Trace.from_database([])):
        analyser = TraceAnalyser(trace)
        assert len(analyser.critical_path()) == 0
        assert len(analyser.critical_path_summary()) == 0


def assert_contiguous(trace: Trace, path: pd.DataFrame) -> None:
    begins, lengths = path["Start (s)"].to_numpy(), path["Duration (s)"].to_numpy()
    assert (lengths > 0).all()
    assert (begins[1:] == (begins + lengths)[:-1]).all()
    status = TraceAnalyser(trace).per_task_status()
    first = status["Arrival (s)"].min()
    last = (status["Arrival (s)"] + status["Total (s)"]).max()
    assert lengths.sum() == pytest.approx(last - first, abs=1e-9)


@examples(10, long=102)
@given(ANY_RUNS, st.booleans())
def test_the_path_has_no_gap(runs: list[dict[str, Any]], scheduler: bool) -> None:
    trace = made_trace(runs, workers=WORKERS, scheduler=scheduler)
    assert_contiguous(trace, TraceAnalyser(trace).critical_path())


class Simulated:
    """Schedule without latency: all starts are at an end of a task or of the client's pause."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.count = rng.randint(1, 9)
        numbers = range(self.count)
        self.durations = [rng.randint(1, 6) for _ in numbers]
        self.workers = [rng.randrange(2) for _ in numbers]
        self.inputs = [rng.sample(range(n), rng.randint(0, min(n, 2))) for n in numbers]
        self.arrivals = [rng.choice([0, 0, 0, 5]) for _ in numbers]
        self.before = [
            next((p for p in reversed(range(n)) if self.workers[p] == self.workers[n]), None)
            for n in numbers
        ]
        self.starts, self.ends = self.schedule(self.durations)

    def follows(self, number: int) -> list[int]:
        before = self.before[number]
        return self.inputs[number] + ([] if before is None else [before])

    def schedule(self, durations: list[int]) -> tuple[list[int], list[int]]:
        """Run the tasks on their workers in order, each as early as possible."""
        starts: list[int] = []
        ends: list[int] = []
        for number in range(self.count):
            after = [ends[other] for other in self.follows(number)]
            starts.append(max([self.arrivals[number], *after]))
            ends.append(starts[-1] + durations[number])
        return starts, ends

    def trace(self) -> Trace:
        runs = []
        for number in range(self.count):
            inputs = self.inputs[number]
            sent = max([self.arrivals[number], *(self.ends[other] for other in inputs)])
            last = [other for other in inputs if self.ends[other] == sent]
            cause = f"task-finished-{last[-1]}" if last else f"update-graph-{sent}"
            run = stages(
                f"f-{number}",
                float(self.arrivals[number]),
                float(sent),
                *[0.0, 0.0, self.starts[number] - sent, 0.0, self.durations[number], 0.0, 0.0],
                cause=cause,
                end_cause=f"task-finished-{number}",
                dependencies=[f"f-{other}" for other in inputs],
                worker_id=self.workers[number],
            )
            runs.append(run)
        return made_trace(runs, workers=WORKERS)

    def longest(self) -> int:
        """Return the most work of any chain of consecutive tasks, by exhaustive search."""

        def work(number: int) -> int:
            chains = [work(other) for other in self.follows(number)]
            return self.durations[number] + max([self.arrivals[number], *chains])

        return max(work(number) for number in range(self.count))


def assert_critical(seed: int) -> None:
    made = Simulated(seed)
    trace = made.trace()
    path = TraceAnalyser(trace).critical_path()
    assert_contiguous(trace, path)
    computed = path[path["Kind"] == "Compute"]
    client = path.loc[path["Kind"] == "Client", "Duration (s)"].sum()
    whole = made.longest() - min(made.arrivals)
    assert computed["Duration (s)"].sum() + client == whole == max(made.ends) - min(made.arrivals)
    chain = [int(key.partition("-")[2]) for key in computed["Task Key"]]
    bound = dict(zip(computed["Task Key"], computed["Bound By"], strict=True))
    for before, after in itertools.pairwise(chain):
        if bound[f"f-{after}"] != "client":
            assert before in made.follows(after)


@examples(10, long=3000)
@given(st.integers(0, 2**32))
def test_path_against_brute_force(seed: int) -> None:
    assert_critical(seed)


def nap(seconds: float, *inputs: Any) -> float:
    time.sleep(seconds)
    return seconds


def test_planted_path_on_a_real_cluster(tmp_path: Path) -> None:
    """There are a long and some short tasks, a sleeping client, and a task with a remote input."""
    with new_client(n_workers=2, threads_per_worker=1) as client:
        first, second = client.nthreads()
        # On a busy host the first task of a worker takes long.
        client.gather([client.submit(nap, 0.0, pure=False, workers=at) for at in (first, second)])
        with dasfprof.profile(client, directory=tmp_path):
            fat = client.submit(nap, 1.5, key="fat-0", workers=first)
            thin = [client.submit(nap, 0.01, key=f"thin-{n}", workers=second) for n in range(2)]
            client.gather(client.submit(nap, 0.0, fat, *thin, key="join-0"))
            time.sleep(0.8)
            data = client.submit(bytes, 200_000_000, key="data-0", workers=first)
            client.submit(len, data, key="far-0", workers=second).result()
    trace = Trace.from_database(tmp_path)
    path = TraceAnalyser(trace).critical_path()
    assert_contiguous(trace, path)
    assert path["Task Key"].unique().tolist() == ["fat-0", "join-0", "data-0", "far-0"]
    seconds = path.groupby(["Kind", "Task Key"])["Duration (s)"].sum()
    assert seconds["Compute", "fat-0"] >= 1.49
    assert seconds["Client", "data-0"] >= 0.79
    assert seconds["Transfer", "far-0"] > 0.02
    bound = path.drop_duplicates("Task Key").set_index("Task Key")["Bound By"]
    assert bound.tolist()[:3] == ["client", "dependency", "client"]
    # On a busy host, the data may arrive before the client asks for its length.
    assert bound["far-0"] in ("dependency", "client")


def test_a_file_of_dasf(tmp_path: Path) -> None:
    events = [compute("a-1", 1.0, 2.0, "w"), compute("b-1", 5.0, 1.0, "w", dependencies=["a-1"])]
    path = TraceAnalyser(record(tmp_path / "run", events)).critical_path()
    assert path["Kind"].tolist() == ["Compute", "Unknown", "Compute"]
    assert path["Duration (s)"].tolist() == [2.0, 2.0, 1.0]
    assert np.isfinite(path["Start (s)"]).all()


@pytest.mark.parametrize("threads", [(0, 1, 1, 0), (0, 1, 0, 1), (0, 0, 0, 0)])
def test_whichever_thread_runs_the_next(tmp_path: Path, threads: tuple[int, ...]) -> None:
    """Two task runs end at almost the same time; the worker records this after two others started.

    These run on either thread; coroutines all run on one thread.
    """
    noted, known = 2**-10, {"sent": 0.0, "received": 0.0, "ready": 0.0}
    tasks = [
        Task("load-0", 0, 0.0, 1.0, done=1.0 + 2 * noted),
        Task("load-1", 0, 0.0, 1.0 + noted, done=1.0 + 3 * noted),
        Task("load-2", 0, 1.0 + noted, 2.0, **known),
        Task("load-3", 0, 1.0 + 2 * noted, 2.5, **known),
    ]
    tasks = [replace(task, thread=at) for task, at in zip(tasks, threads, strict=True)]
    path = Plan(tasks, workers=1, threads=2).write(tmp_path).critical_path()
    assert path["Kind"].tolist() == ["Compute", "Task overhead", "Compute"]
    assert path["Bound By"][path["Kind"] == "Compute"].tolist() == ["client", "thread"]


def test_a_thread_that_was_free_is_told(tmp_path: Path) -> None:
    """One of two task runs ended a second before another one started, which was already ready."""
    tasks = [
        Task("load-0", 0, 0.0, 1.0, thread=0),
        Task("load-1", 0, 0.0, 4.0, thread=1),
        Task("load-2", 0, 2.0, 5.0, sent=0.0, received=0.0, ready=0.0, thread=0),
    ]
    path = Plan(tasks, workers=1, threads=2).write(tmp_path).critical_path()
    assert path.loc[path["Kind"] == "Worker", "Duration (s)"].tolist() == [1.0]
