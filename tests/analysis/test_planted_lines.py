"""Lines that take known times are named with the right shares, by samples of real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import planted_lines
import pytest
from distributed import Client, LocalCluster
from planted_lines import FEW, PROGRAMS, marks

import dasfprof
from dasfprof.analysis.stack_samples.places import all_stacks
from dasfprof.analysis.stack_samples.task_samples import Samples

#: Points by which a share may be off, beside what so few samples allow.
ONE_THREAD, SEVERAL = 5.0, 10.0
STARVED = 15.0


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=3, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(lambda: __import__("pandas"))
        yield client


def shares(client: Client, name: str, directory: Path, threads: int, seconds: float) -> None:
    """Compare the shares of a program's lines with those of a stopwatch."""
    with dasfprof.profile(client, directory=directory, stack_frequency=20) as run:
        futures = [
            client.submit(planted_lines.planted, name, seconds, pure=False) for _ in range(threads)
        ]
        told = client.gather(futures)
    trace = run.analyser().trace
    samples, places = Samples.of(trace.task_samples), marks(name)
    file = planted_lines.__file__
    found = dict.fromkeys(places.values(), 0.0)
    for stack, interval in zip(samples.stack.tolist(), samples.interval.tolist(), strict=True):
        lines = [frame.line for frame in all_stacks(trace)[stack] if frame.file == file]
        mark = next((places[line] for line in lines if line in places), None)
        if mark is not None:  # between the lines: the stopwatch
            found[mark] += interval
    # Of one thread the wall clock; with several, what waits for the lock does so at any line.
    of_cpu = 1 if threads > 1 else 0
    true = {mark: sum(one[mark][of_cpu] for one in told) for mark in found}
    total, total_true = sum(found.values()), sum(true.values())
    allowed = SEVERAL if threads > 1 else ONE_THREAD
    if np.nansum(samples.run_queue) > 0.3 * total:  # a busy host: the sampler had no core either
        allowed += STARVED
    effective = total**2 / (samples.interval**2).sum()
    for mark in found:
        share, expected = found[mark] / total * 100, true[mark] / total_true * 100
        chance = 2.6 * (expected * (100 - expected) / effective) ** 0.5
        assert abs(share - expected) <= allowed + chance, (mark, found, true)


@pytest.mark.parametrize("name", FEW)
def test_lines_of_one_thread(client: Client, tmp_path: Path, name: str) -> None:
    shares(client, name, tmp_path, 1, 6.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_of_all_programs(client: Client, tmp_path: Path, name: str) -> None:
    shares(client, name, tmp_path, 1, 30.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["python_and_c", "python_lines", "numpy_and_python"])
def test_lines_of_three_threads(client: Client, tmp_path: Path, name: str) -> None:
    shares(client, name, tmp_path, 3, 30.0)


@pytest.mark.parametrize("name", ["sleeps"])
def test_computing_and_waiting_of_a_line(client: Client, tmp_path: Path, name: str) -> None:
    """A line that sleeps computes nothing; the other one waits for nothing."""
    with dasfprof.profile(client, directory=tmp_path, stack_frequency=20) as run:
        (told,) = client.gather([client.submit(planted_lines.planted, name, 6.0, pure=False)])
    table = run.analyser().hot_lines("planted")
    line = {mark: number for number, mark in marks(name).items()}["sleep"]
    (sleeping,) = table[table["Line"] == line].to_dict("records")
    assert sleeping["Waiting (s)"] > 0.6 * sleeping["Time (s)"]
    (task,) = (row for row in run.analyser().trace.tasks.to_dict("records"))
    counted = table["Computing (s)"].sum() / table["Time (s)"].sum()
    assert counted == pytest.approx(task["cpu"] / task["duration"], abs=0.1)
    assert told["python"][1] > told["sleep"][1]
