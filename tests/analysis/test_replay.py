"""Replays of small schedules, compared with schedules by hand and with a simple scheduler."""

import dataclasses
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import ANY_RUNS, made_trace

from dasfprof import TraceAnalyser
from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation import gain, replay_of

#: Two workers of one thread each, with the scheduler's clock.
WORKERS = [{"boot_id": "scheduler's"}] * 2


def run(
    key: str, arrival: float, start: float, stop: float, worker: int = 0, **more: Any
) -> dict[str, Any]:
    """Return a task run without latency: assigned and started as soon as possible."""
    sent = more.pop("sent", arrival)
    times = {"scheduler_waiting": arrival, "sent": sent, "received": sent, "ready": sent}
    times |= {"executing": start, "start": start, "done": stop, "known": stop}
    return {"key": key, "worker_id": worker, "duration": stop - start, **times, **more}


def analyse(*runs: dict[str, Any], **options: Any) -> TraceAnalyser:
    return TraceAnalyser(made_trace(runs, **{"workers": WORKERS, **options}), progress=False)


def predicted(analyser: TraceAnalyser, **change: Any) -> float:
    table = analyser.what_if(**change)
    assert table["Calibration Error (%)"][0] == pytest.approx(0)
    assert table["Replayed (s)"][0] == pytest.approx(table["Recorded (s)"][0])
    return float(table["Predicted (s)"][0])


# Two workers get tasks of 4, 3, 2, 2 and 1 s in turn, each one more than it has threads.
FIVE = [
    run("f-0", 0, 0, 4, 0),
    run("f-1", 0, 0, 3, 1),
    run("f-2", 0, 4, 6, 0),
    run("f-3", 0, 3, 5, 1),
    run("f-4", 0, 5, 6, 1, sent=3, queued=0.0),
]


def test_independent_tasks_by_hand() -> None:
    analyser = analyse(*FIVE)
    assert predicted(analyser) == pytest.approx(6)
    assert predicted(analyser, workers=1) == pytest.approx(12)
    assert predicted(analyser, workers=5) == pytest.approx(4)
    assert predicted(analyser, threads=5) == pytest.approx(4)
    assert predicted(analyser, workers=1, threads=2) == pytest.approx(6)
    # With three, the task of 2 s behind that of 4 s is stolen by an idle worker.
    assert 4 <= predicted(analyser, workers=3) <= 4.2


def test_a_faster_function_by_hand() -> None:
    # a and b run in parallel, and c uses both: only the input for which c waits matters.
    runs = [run("a-0", 0, 0, 8, 0), run("b-0", 0, 0, 6, 1)]
    analyser = analyse(*runs, run("c-0", 0, 8, 10, 0, sent=8, dependencies=["a-0", "b-0"]))
    assert predicted(analyser, speedup={"a": 2}) == pytest.approx(8)
    assert predicted(analyser, speedup={"b": 2}) == pytest.approx(10)
    assert predicted(analyser, speedup={"a": 2, "b": 3}) == pytest.approx(6)
    assert predicted(analyser, speedup={"c": 0.5}) == pytest.approx(12)
    assert predicted(analyser, workers=1) == pytest.approx(16)
    assert gain(analyser.run, speedup={"a": 2}) == pytest.approx(2)
    assert gain(analyser.run, running=np.array([5.0, np.nan, np.nan])) == pytest.approx(2)
    assert gain(analyser.run, running=np.array([5.0, 1.0, np.nan])) == pytest.approx(3)
    assert gain(analyser.run, running=np.array([7.0, np.nan, 1.0])) == pytest.approx(2)


def test_when_a_client_submits() -> None:
    # The second graph arrived 3 s after the first was done, and keeps this pause.
    waits = analyse(run("a-0", 0, 0, 4), run("b-0", 7, 7, 9, 1), graphs=[0.0, 7.0])
    assert predicted(waits, speedup={"a": 4}) == pytest.approx(6)
    assert predicted(waits, speedup={"b": 2}) == pytest.approx(8)
    assert waits.scaling([1, 2])["Least (s)"].tolist() == pytest.approx([9, 9])
    # The second graph arrived while the first ran, and keeps its time.
    on_time = analyse(run("a-0", 0, 0, 8), run("b-0", 5, 5, 7, 1), graphs=[0.0, 5.0])
    assert predicted(on_time, speedup={"a": 8}) == pytest.approx(7)
    # The client submits c as soon as a is done, while b runs.
    runs = [run("a-0", 0, 0, 4, 0), run("b-0", 0, 0, 9, 1), run("c-0", 4.01, 4.01, 14.01, 0)]
    as_they_come = analyse(*runs, graphs=[0.0, 4.01])
    assert predicted(as_they_come, speedup={"a": 4}) == pytest.approx(11.01)
    # One of three graphs, which arrived every 2 s, happened to arrive just after an end.
    times = [(0, 3.99), (2, 12), (4, 14), (12, 22), (14, 24)]
    runs = [run(f"{'abcde'[n]}-0", 2 * n, *times[n], n % 2) for n in range(5)]
    by_chance = analyse(*runs, graphs=[0.0, 2.0, 4.0, 6.0, 8.0])
    assert replay_of(by_chance.run).inputs.submissions.finishes.tolist() == [0, 0, 0, 0, 0]


def test_a_client_that_limits_its_open_results() -> None:
    # After three tasks, each arrives 0.3 s after an end, so that one task waits for a thread.
    finishes = [1 + 0.5 * graph for graph in range(20)]
    arrivals = [0.0, 0.0, 0.0, *(finish + 0.3 for finish in finishes[:17])]
    starts = [0.0, 0.0, *finishes[:18]]
    runs = [
        run(f"a-{graph}", arrivals[graph], starts[graph], finishes[graph], graph % 2)
        for graph in range(20)
    ]
    analyser = analyse(*runs, graphs=[0.0, *arrivals[3:]])
    finished = replay_of(analyser.run).inputs.submissions.finishes.tolist()
    assert finished == [*range(18)]
    # With tasks half as long, each ends 0.8 s after the third task before it.
    assert predicted(analyser, speedup={"a": 2}) == pytest.approx(0.75 + 6 * 0.8)


def test_a_second_attempt_comes_after_the_first_and_disks_are_as_fast_as_before() -> None:
    failed = run("a-0", 0, 0, 4, 0, state="erred", scheduler_state="released")
    twice = analyse(failed, run("a-0", 0, 4, 9, 1, sent=4))
    assert predicted(twice, speedup={"a": 2}) == pytest.approx(4.5)
    read = run("b-0", 0, 4, 10, 0, sent=4, dependencies=["a-0"], disk_read=2.0)
    read |= {"start": 7.0, "duration": 3.0}
    analyser = analyse(run("a-0", 0, 0, 4, 0), read, workers=WORKERS[:1])
    assert predicted(analyser, spill=False) == pytest.approx(8)
    assert predicted(analyser, speedup={"b": 3}) == pytest.approx(8)


def with_transfers(trace: Run, *moves: tuple[float, float]) -> Run:
    """Return a trace with messages of these bytes and seconds."""
    table = pd.DataFrame(moves, columns=["size", "duration"], dtype=float)
    table = table.assign(worker_id=0, start=trace.begin, state="success")
    return dataclasses.replace(trace, transfers=table)


def test_inputs_that_are_far_away() -> None:
    # A message takes 1 s plus its bytes at 100 MB/s.
    runs = [
        run("a-0", 0, 0, 4, 0, size=200e6),
        run("b-0", 0, 0, 8, 1, size=800e6),
        run("c-0", 0, 11, 12, 1, sent=8, ready=11, dependencies=["a-0", "b-0"]),
    ]
    trace = made_trace(runs, workers=WORKERS)
    analyser = TraceAnalyser(with_transfers(trace, (10, 1.0), (200e6, 3.0)), progress=False)
    assert predicted(analyser) == pytest.approx(12)
    assert predicted(analyser, bandwidth=400e6) == pytest.approx(10.5)
    assert predicted(analyser, workers=1) == pytest.approx(13)
    assert gain(analyser.run, network=False) == pytest.approx(3)


def test_workers_that_come_and_go() -> None:
    # The second worker joined at 5 and ran the remaining tasks; the third left at 2, after one
    # task.
    tasks = [
        *(run(f"f{n}-0", 0, 2 * n, 2 * n + 2, 0) for n in range(3)),
        run("g-0", 0, 5, 7, 1, sent=5),
        run("h-0", 0, 0, 2, 2),
    ]
    workers = [WORKERS[0], {"joined": 5.0}, {"left": 2.0}]
    replay = replay_of(analyse(*tasks, workers=workers).run)
    assert replay.cluster.joined.tolist() == [0, 5, 0]
    # It ran no task after its first one.
    assert replay.cluster.left.tolist() == pytest.approx([np.inf, np.inf, 0.001])
    assert replay.cluster.most_workers == 2
    assert replay.cluster.with_workers(4).joined.tolist() == [0, 0, 5, 5, 0, 0]
    outcome = replay.outcome()
    assert (outcome.executing[outcome.worker == 1] >= 5).all()
    assert (outcome.executing[outcome.worker == 2] == 0).all()


def test_scaling_by_hand() -> None:
    table = analyse(*FIVE).scaling([1, 2, 5])
    assert table["Wall Time (s)"].tolist() == pytest.approx([12, 6, 4])
    assert table["Efficiency (%)"].tolist() == pytest.approx([100, 100, 60])
    assert table["Cost (worker-s)"].tolist() == pytest.approx([12, 12, 20])
    assert table["Least (s)"].tolist() == pytest.approx([12, 6, 4])
    assert table["Most without Overhead (s)"].tolist() == pytest.approx([12, 8, 5.6])
    assert table["Share of Recorded (%)"].tolist() == pytest.approx([50, 100, 250])
    assert analyse(*FIVE).scaling()["Workers"].tolist() == [1, 2, 3, 4, 6, 10, 20]


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        (
            [{**one, "run_queue": 0.11 * one["duration"]} for one in FIVE],
            "waited for a core for 11% of their time",
        ),
        # It is unknown why the second task began so late.
        (
            [run("a-0", 0, 0, 4), run("b-0", 0, 8, 9, 0, sent=8, ready=8)],
            "takes 5 s, but the run took 9 s. This error of -44% exceeds the limit of 15%",
        ),
        ([run("a-0", 0, 0, 4), run("b-0", 0, 4, np.inf)], "its files contain invalid times"),
        ([{**one, "source": "scheduler"} for one in FIVE], "no worker's file"),
        ([], "no task run"),
    ],
)
def test_what_cannot_be_predicted(runs: list[dict[str, Any]], why: str) -> None:
    analyser = analyse(*runs)
    tables = [analyser.what_if(workers=4), analyser.scaling([4])]
    for table, name in zip(tables, ["Predicted (s)", "Wall Time (s)"], strict=True):
        assert table[name].isna().all()
        assert why in table["Verdict"][0]
    assert np.isnan(gain(analyser.run))


def test_what_can_be_predicted_all_the_same() -> None:
    runs = [{**one, "run_queue": 0.09 * one["duration"]} for one in FIVE]
    assert predicted(analyse(*runs), workers=1) == pytest.approx(12)
    # Without the scheduler's file, a usual duration of messages is assumed.
    table = analyse(*FIVE, scheduler=False).what_if(workers=1)
    assert table["Predicted (s)"][0] == pytest.approx(12, rel=0.01)


@pytest.mark.parametrize(
    ("busy", "cpu", "refused"), [(97, 0.9, True), (97, 0.2, False), (50, 0.9, False)]
)
def test_a_host_without_cores_to_spare(busy: float, cpu: float, refused: bool) -> None:
    trace = made_trace([{**one, "cpu": cpu * one["duration"]} for one in FIVE], workers=WORKERS)
    times = trace.begin + np.arange(6.0)
    samples = pd.DataFrame({"time": times, "worker_id": 0, "host_cpu": float(busy)})
    trace = dataclasses.replace(trace, samples=samples)
    verdict = TraceAnalyser(trace).what_if(workers=1)["Verdict"][0]
    assert ("cores were busy for 97 %" in verdict) == refused


@pytest.mark.parametrize(
    ("held", "waited", "limit", "refused"),
    [(3.0, 0.0, 1, True), (3.0, 0.0, 8, False), (1.0, 0.0, 1, False), (0.5, 2.5, 8, True)],
)
def test_turns_at_a_lock(held: float, waited: float, limit: int, refused: bool) -> None:
    """The functions run for 12 s, and 10 % of that is 1.2 s."""
    trace = made_trace(FIVE, workers=WORKERS)
    lock = {"worker_id": 0, "kind": "Semaphore", "limit": limit, "waited": waited}
    locks = pd.DataFrame([{**lock, "time": trace.begin + held, "since": trace.begin}])
    names = {"name": pd.Categorical(["disk"])}
    analyser = TraceAnalyser(dataclasses.replace(trace, locks_held=locks.assign(**names)))
    for table in (analyser.what_if(workers=4), analyser.scaling([1, 4]).tail(1)):
        assert ("the Semaphore 'disk'" in table["Verdict"].iloc[0]) == refused
    # On the same threads, they take turns as recorded.
    assert predicted(analyser, speedup={"f": 1}) == pytest.approx(6)


class PlainSchedule:
    """Random graph on random workers, second by second: a thread runs the first ready task.

    There are at most three workers, or `most_workers`.
    """

    def __init__(self, seed: int, most_workers: int = 3) -> None:
        rng = random.Random(seed)
        self.count = rng.randint(1, 12)
        numbers = range(self.count)
        self.threads = [rng.randint(1, 2) for _ in range(rng.randint(1, most_workers))]
        self.durations = [rng.randint(1, 6) for _ in numbers]
        self.worker = [rng.randrange(len(self.threads)) for _ in numbers]
        self.inputs = [rng.sample(range(n), rng.randint(0, min(n, 3))) for n in numbers]
        self.starts = [-1] * self.count
        self.ends = [10**6] * self.count
        now = 0
        while -1 in self.starts:
            for number in numbers:
                ready = all(self.ends[one] <= now for one in self.inputs[number])
                if self.starts[number] < 0 and ready and self.is_free(number, now):
                    self.starts[number] = now
                    self.ends[number] = now + self.durations[number]
            now += 1

    def is_free(self, number: int, now: int) -> bool:
        worker = self.worker[number]
        places = zip(self.worker, self.starts, self.ends, strict=True)
        running = sum(at == worker and start >= 0 and end > now for at, start, end in places)
        return running < self.threads[worker]

    def trace(self) -> Run:
        runs = []
        for number, inputs in enumerate(self.inputs):
            more = {"sent": float(max([0, *(self.ends[one] for one in inputs)]))}
            more["dependencies"] = [f"f{one}-0" for one in inputs]
            times = float(self.starts[number]), float(self.ends[number])
            runs.append(run(f"f{number}-0", 0.0, *times, self.worker[number], **more))
        common = {"boot_id": "scheduler's", "joined": 0.0}
        workers = [{"nthreads": threads, **common} for threads in self.threads]
        return made_trace(runs, workers=workers)

    def chain(self) -> int:
        longest: list[int] = []
        for number in range(self.count):
            before = [longest[one] for one in self.inputs[number]]
            longest.append(self.durations[number] + max([0, *before]))
        return max(longest)


def assert_bounded(seed: int) -> None:
    """Assert for any cluster that inputs come first, threads run one task, and bounds hold."""
    made = PlainSchedule(seed)
    replay = replay_of(made.trace())
    for workers in (1, 2, 5):
        cluster = replay.cluster.with_workers(workers)
        outcome, again = (replay.outcome(cluster=cluster) for _ in range(2))
        assert outcome.known.tolist() == again.known.tolist()
        ends = outcome.executing + np.array(made.durations)
        assert (outcome.known >= ends - 1e-9).all()
        for number, inputs in enumerate(made.inputs):
            assert all(outcome.known[one] <= outcome.executing[number] + 1e-9 for one in inputs)
        for worker, threads in enumerate(cluster.threads.tolist()):
            own = np.flatnonzero(outcome.worker == worker)
            for begin in outcome.executing[own]:
                at_once = (outcome.executing[own] <= begin + 1e-9) & (ends[own] > begin + 1e-9)
                assert at_once.sum() <= threads
        work = sum(made.durations) / cluster.threads.sum()
        assert outcome.wall >= max(work, made.chain()) - 1e-9


@examples(10, long=3000)
@given(st.integers(0, 2**32))
def test_a_recorded_schedule_is_reproduced(seed: int) -> None:
    made = PlainSchedule(seed, most_workers=1)
    outcome = replay_of(made.trace()).outcome()
    assert outcome.executing.tolist() == pytest.approx(made.starts)
    assert outcome.known.tolist() == pytest.approx(made.ends)
    assert_bounded(seed)


@examples(10, long=102)
@given(ANY_RUNS, st.booleans())
def test_whatever_the_times_no_time_is_negative(runs: Any, scheduler: bool) -> None:
    analyser = TraceAnalyser(made_trace(runs, workers=WORKERS, scheduler=scheduler))
    replay = replay_of(analyser.run)
    if not replay.obstacle:
        for cluster in (replay.cluster, replay.cluster.with_workers(3)):
            outcome = replay.outcome(cluster=cluster)
            assert np.isfinite(outcome.known).all()
            assert (outcome.executing >= 0).all()
            assert (outcome.known >= outcome.executing).all()
    tables = [analyser.what_if(workers=3, spill=False), analyser.scaling([1, 3])]
    for table in tables:
        told = table[table.columns.intersection(["Predicted (s)", "Wall Time (s)"])].to_numpy()
        assert (told[np.isfinite(told)] >= 0).all()
        assert np.isfinite(told).all() == (not replay.refusal)


def queues(seed: int) -> list[dict[str, Any]]:
    """Return task runs in long queues on some workers, with disproportionate times."""
    chance = random.Random(seed)
    scale = chance.choice([1.0, 1e3, 1e9, 1e16, 1e100])
    latency = chance.choice([0.0, 0.01, scale, 1e9])
    free, runs = [0.0] * 3, []
    for number in range(chance.randint(5, 60)):
        worker = chance.randrange(3) if chance.random() < 0.3 else 0
        start = free[worker] + chance.choice([0, 0, 0.01, chance.random() * scale]) + latency
        free[worker] = stop = start + chance.choice([0, 0.01, 1, chance.random() * scale, scale])
        before = [one["key"] for one in runs if one["done"] <= start]
        key = f"f{chance.randrange(2)}-{number}"
        arrival = chance.choice([0, 0, start * chance.random()])
        count = min(len(before), chance.choice([0, 0, 1, 2]))
        more = {"dependencies": chance.sample(before, count)}
        more["size"] = chance.choice([0.0, 1e3, 1e8, 1e10, 1e18])
        runs.append(run(key, arrival, start, stop, worker, **more))
    return runs


# In the last example, a task returns to a worker, and is stolen before it starts there.
@pytest.mark.timeout(30)
@pytest.mark.parametrize("seed", [*range(4), 59])
def test_whatever_the_clocks_an_answer_comes(seed: int) -> None:
    analyser = analyse(*queues(seed), workers=[{**WORKERS[0], "joined": 0.0}] * 3)
    for answer in (analyser.what_if(workers=5), analyser.scaling()):
        assert (answer["Verdict"].str.len() > 0).all()


def test_a_task_behind_a_long_one_is_moved() -> None:
    # Six tasks use the result of a, whose worker is the first choice for all of them.
    runs = [run("a-0", 0, 0, 1, 0, size=1000.0)]
    runs += [run(f"b{n}-0", 0, 1 + n, 2 + n, 0, sent=1, dependencies=["a-0"]) for n in range(6)]
    replay = replay_of(made_trace(runs, workers=[{**WORKERS[0], "joined": 0.0}] * 2))
    outcome = replay.outcome()
    # Within 0.1 s, some are moved to the other worker.
    assert sorted(np.bincount(outcome.worker[1:])) == [3, 3]
    assert 4 <= outcome.wall <= 4.2


def test_messages_take_what_has_gathered() -> None:
    # While the first message is in transit, 60 inputs of 1 MB are requested, of which 50 MB fit
    # into a message. All of them are on the worker of their input, and c and d on that of the
    # largest.
    runs = [run("r-0", 0, 0, 1, 0), run("b-0", 0, 0, 1, 1, size=1e9)]
    inputs = [f"a{n}-0" for n in range(61)]
    runs += [run(key, 0, 1, 2, 0, sent=1, size=1e6, dependencies=["r-0"]) for key in inputs]
    runs += [
        run("c-0", 0, 5.62, 6.62, 1, sent=2, ready=5.62, dependencies=["b-0", "a0-0"]),
        run("d-0", 0, 5.62, 6.62, 1, sent=2, ready=5.62, dependencies=["b-0", *inputs[1:]]),
    ]
    trace = made_trace(runs, workers=[{**WORKERS[0], "nthreads": 61}] * 2)
    outcome = replay_of(with_transfers(trace, (10, 1.0), (200e6, 3.0))).outcome()
    # 1 s and 1 MB; 1 s and 50 MB; 1 s and the last 10 MB.
    assert outcome.executing[-2] == pytest.approx(2 + 1.01)
    assert outcome.executing[-1] == pytest.approx(2 + 1.01 + 1.5 + 1.1)


def test_tasks_wait_in_the_queue() -> None:
    # Twelve of one group on two threads: each worker has two at a time.
    runs = []
    for number in range(12):
        start = float(number // 2)
        times = {"sent": max(start - 1, 0), "queued": 0.0}
        runs.append(run(f"f-{number}", 0, start, start + 1, number % 2, **times))
    replay = replay_of(made_trace(runs, workers=WORKERS))
    assert replay.error == pytest.approx(0)
    # If the second task took 6.5 s, the fourth would wait for it on the same worker. The other
    # worker would run seven tasks in the meantime.
    outcome = replay.outcome(held=np.array([1, 6.5] + [1] * 10))
    starts = [0, 0, 1, 6.5, 2, 3, 4, 5, 6, 7, 7.5, 8]
    assert outcome.executing.tolist() == pytest.approx(starts)


def test_root_groups() -> None:
    runs = [run("a-0", 0, 0, 1)]
    runs += [run(f"b-{n}", 0, 1 + n, 2 + n, sent=1, dependencies=["a-0"]) for n in range(6)]
    runs += [run(f"c-{n}", 0, 7 + n, 8 + n, sent=7, dependencies=[f"b-{n}"]) for n in range(6)]
    # Tasks of b use the result of one task, and those of c the results of a group of six.
    sizes = replay_of(made_trace(runs, workers=WORKERS)).inputs.root_group_size.tolist()
    assert sizes == [1] + [6] * 6 + [0] * 6
