"""Predictions from runs of real clusters, compared with other real runs."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clusters import new_client
from distributed import Client, Lock, Semaphore

import dasfprof
from dasfprof import Trace, TraceAnalyser
from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation import replay_of
from dasfprof.analysis.simulation.replay import find_shared

pytestmark = pytest.mark.whole_program

#: Tolerance of predictions, for a busy machine.
ALLOWED = 0.15
#: Maximum ratio of a prediction to the duration of another run, which may be delayed.
HELD_UP = 1.5
#: Seconds of sleep of 12 loads, 12 merges, a chain of two, and a pause of the client.
LOADS, MERGES, CHAIN, PAUSE = sum(0.2 + 0.02 * n for n in range(12)), 12 * 0.15, 0.2 + 0.3, 0.5


def load(seconds: float) -> float:
    return merge(seconds)


def merge(seconds: float, *inputs: Any) -> float:
    time.sleep(seconds)
    return seconds


def pipeline(client: Client, factor: float, pause: float) -> None:
    level = client.map(load, [factor * (0.2 + 0.02 * n) for n in range(12)], pure=False)
    while len(level) > 1:
        pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
        level = [client.submit(merge, 0.15, *pair, pure=False) for pair in pairs]
    client.gather(level)
    time.sleep(pause)
    end = client.submit(merge, 0.2, pure=False)
    client.submit(merge, 0.3, end, pure=False).result()


def run(directory: Path, workers: int, *factors: float) -> list[Path]:
    """Run the pipeline once per factor on a new cluster."""
    paths = []
    with new_client(n_workers=workers, threads_per_worker=1) as client:
        pipeline(client, 0.1, 0.0)  # the first run of a function on a worker takes longer
        for factor in factors:
            paths.append(directory / f"{workers}-{factor}")
            with dasfprof.profile(client, directory=paths[-1]):
                pipeline(client, factor, PAUSE)
    return paths


def run_of(path: Path) -> Run:
    return Run.from_trace(Trace.from_database(path))


def wall_of(path: Path) -> float:
    return replay_of(run_of(path)).inputs.wall


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the pipeline on two workers, also with slower loading, and on one worker."""
    directory = tmp_path_factory.mktemp("runs")
    return run(directory, 2, 1.0, 2.0) + run(directory, 1, 1.0)


def test_real_runs_are_predicted(recorded: list[Path]) -> None:
    """Predictions are between the sum of the sleeps and the duration of the real run, if longer."""
    two, slower, one = recorded
    trace = run_of(two)
    replay = replay_of(trace)
    # If the machine was so busy that the run took far longer, there may be no prediction.
    asleep = (LOADS + MERGES) / 2 + CHAIN + PAUSE
    if abs(replay.error) >= ALLOWED and replay.inputs.wall > 1.25 * asleep:
        assert TraceAnalyser(trace).what_if(workers=1)["Predicted (s)"].isna().all()
        return
    assert abs(replay.error) < ALLOWED
    overslept = max(1.0, trace.tasks["duration"].sum() / (LOADS + MERGES + CHAIN))
    wall = replay.inputs.wall / replay.base
    on_one = wall * replay.outcome(cluster=replay.cluster.with_workers(1)).wall
    least = LOADS + MERGES + CHAIN + PAUSE
    assert least * (1 - ALLOWED) < on_one
    assert on_one < max(least, wall_of(one)) * overslept * HELD_UP
    half = wall * replay.outcome(held=replay.held(factor=replay.factors({"load": 0.5}))).wall
    least = (2 * LOADS + MERGES) / 2 + CHAIN + PAUSE
    assert least * (1 - ALLOWED) < half
    assert half < max(least, wall_of(slower)) * overslept * HELD_UP


def locked(seconds: float) -> None:
    with Lock("shared"):
        time.sleep(seconds)


def briefly_locked(seconds: float) -> None:
    time.sleep(seconds)
    with Lock("brief"):
        pass


def with_lease(seconds: float, semaphore: Semaphore) -> None:
    with semaphore:
        time.sleep(seconds)


def test_what_runs_take_turns_at_is_not_predicted(tmp_path: Path) -> None:
    """A single thread never waits for a lock, so only the use of the lock shows it."""
    paths = {}
    with new_client(n_workers=1, threads_per_worker=1, resources={"disk": 1}) as client:
        one, many = (Semaphore(max_leases=leases, name=f"{leases}") for leases in (1, 100))
        calls: dict[str, Callable[[], list[Any]]] = {
            "lock": lambda: client.map(locked, [0.04] * 10, pure=False),
            "semaphore": lambda: client.map(with_lease, [0.04] * 10, semaphore=one, pure=False),
            "resource": lambda: client.map(load, [0.04] * 10, resources={"disk": 1}, pure=False),
            "brief": lambda: client.map(briefly_locked, [3.0] * 2, pure=False),
            # Long compared with the scheduler's response time on a busy machine.
            "enough": lambda: client.map(with_lease, [0.5] * 6, semaphore=many, pure=False),
        }
        for name, call in calls.items():
            paths[name] = tmp_path / name
            with dasfprof.profile(client, directory=paths[name]):
                client.gather(call())

    def told(name: str) -> str:
        return "; ".join(one.description for one in find_shared(run_of(paths[name])))

    assert "the Lock 'shared'" in told("lock")
    assert "the Semaphore '1'" in told("semaphore")
    assert "the resource 'disk'" in told("resource")
    assert told("brief") == ""
    (leases,) = find_shared(run_of(paths["enough"]))
    assert leases.limit == 100 and not leases.binds(8)
