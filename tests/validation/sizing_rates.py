"""Whether ``cluster_sizing(deadline=)`` is in time, and how dear: ``sizing_rates.py``.

Traces are made of runs whose time on any number of workers follows without a replay: of tasks that
are alike it is ``ceil(tasks / workers) x seconds``, of others that of a list from which each free
worker takes the next. Each is recorded on four workers of one thread, and sized for deadlines that
2 to 200 workers just meet. The runs that have to be in time are others: each is longer or shorter
by some per cent as a whole, and random lengths are drawn again.

Prints in how many of these runs the choice is in time, and what it costs more than the cheapest
number of workers with which nine of ten are; "none" where no number is said to be.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, nan
from pathlib import Path

from traces import Plan, Task

from dasfprof import TraceAnalyser

#: Workers of the recorded run, those of which a deadline is the time, and the most there are.
RECORDED, JUST, MOST = 4, (2, 3, 5, 8, 13, 20, 32, 50, 80, 125, 200), 200
#: A deadline is so many times what nine of ten runs on so many workers stay below; and by which
#: standard deviation runs differ as a whole.
SLACK, VARIES = 1.02, 0.03
#: Seconds of stages, each of which begins when the one before it has ended.
Stages = Sequence[Sequence[float]]
#: Runs of random lengths that have to be in time.
RUNS = 20


def alike(_: random.Random) -> Stages:
    """Tasks that are alike."""
    return [[10.0] * 1000]


def alike_and_few(_: random.Random) -> Stages:
    """Tasks of which 200 workers have hardly one each."""
    return [[30.0] * 240]


def then_a_chain(_: random.Random) -> Stages:
    """Tasks that are alike, and a chain that needs them all."""
    return [[10.0] * 1000, *([5.0] for _ in range(4))]


def then_a_long_chain(_: random.Random) -> Stages:
    """Tasks that are alike, and a chain that takes most of the time from 20 workers on."""
    return [[10.0] * 400, *([20.0] for _ in range(10))]


def two_stages(_: random.Random) -> Stages:
    """Tasks that are alike, and other ones that need them all."""
    return [[8.0] * 600, [0.1], [4.0] * 600]


def varying(lengths: random.Random) -> Stages:
    """Tasks that differ by a tenth."""
    return [[lengths.gauss(10.0, 1.0) for _ in range(1000)]]


def random_lengths(lengths: random.Random) -> Stages:
    """Tasks of which many are short and few are long."""
    return [[1.0 + lengths.expovariate(1 / 4.0) for _ in range(1500)]]


_ALIKE = (alike, alike_and_few, then_a_chain, then_a_long_chain, two_stages)
FAMILIES: dict[str, Callable[[random.Random], Stages]] = {
    each.__name__: each for each in (*_ALIKE, varying, random_lengths)
}


def seconds_on(workers: int, stages: Stages) -> float:
    """Give the seconds of a run on so many workers of one thread."""
    whole = 0.0
    for stage in stages:
        if len(set(stage)) == 1:
            whole += ceil(len(stage) / workers) * stage[0]
            continue
        free = [0.0] * workers
        for seconds in stage:
            heapq.heapreplace(free, free[0] + seconds)
        whole += max(free)
    return whole


def recorded(stages: Stages, directory: Path) -> TraceAnalyser:
    """Write the trace of a run on the recorded workers."""
    tasks: list[Task] = []
    begin, before = 0.0, []
    for place, stage in enumerate(stages):
        free = [(begin, worker) for worker in range(RECORDED)]
        for number, seconds in enumerate(stage):
            start, worker = free[0]
            key, stop = f"stage{place}-{number}", start + seconds
            about = {} if start == 0.0 else {"sent": start}
            tasks.append(Task(key, worker, start, stop, dependencies=before, **about))
            heapq.heapreplace(free, (stop, worker))
        begin, before = max(free)[0], [task.key for task in tasks[-len(stage) :]]
    return Plan(tasks, workers=RECORDED, threads=1).write(directory)


@dataclass(frozen=True)
class Sized:
    """What was chosen for a deadline."""

    #: The workers that just meet it, and those chosen; 0: none are said to meet it.
    just: int
    chosen: int
    #: The share of runs in time on these, and their cost as a share of the cheapest.
    in_time: float
    cost: float


def sized(name: str, directory: Path, those: Sequence[int] = JUST) -> Iterator[Sized]:
    """Ask for the cluster of each deadline of a family."""
    family, chance = FAMILIES[name], random.Random(1)
    analyser = recorded(family(random.Random(0)), directory)
    runs = [(family(chance), chance.gauss(1.0, VARIES)) for _ in range(RUNS)]
    took = {
        workers: [factor * seconds_on(workers, stages) for stages, factor in runs]
        for workers in range(1, MOST + 1)
    }
    for just in those:
        deadline = SLACK * sorted(took[just])[ceil(0.9 * RUNS) - 1]
        in_time = {
            workers: sum(each <= deadline for each in times) / RUNS
            for workers, times in took.items()
        }
        cost = {workers: workers * statistics.mean(times) for workers, times in took.items()}
        cheapest = min(cost[workers] for workers, share in in_time.items() if share >= 0.9)
        best = analyser.cluster_sizing(deadline=deadline, price=1.0).iloc[0]
        chosen = int(best["Workers"])
        if best["At Most (s)"] > deadline:
            yield Sized(just, 0, nan, nan)
        else:
            yield Sized(just, chosen, in_time[chosen], cost[chosen] / cheapest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    every: list[Sized] = []
    print(f"{'':18}{'just':>6}{'chosen':>8}{'in time':>9}{'dearer':>9}")
    for name in parser.parse_args().families:
        with tempfile.TemporaryDirectory() as place:
            for one in sized(name, Path(place)):
                told = f"{one.chosen:8}{one.in_time:9.0%}{one.cost - 1:9.1%}"
                print(f"{name:18}{one.just:6}{told if one.chosen else 'none':>8}", flush=True)
                every.append(one)
    chosen = [one for one in every if one.chosen]
    met = statistics.mean(one.in_time for one in chosen)
    near = sum(one.cost <= 1.15 for one in chosen)
    print(
        f"{len(every)} deadlines, none chosen for {len(every) - len(chosen)}; {met:.1%} of runs in "
        f"time; {near} of {len(chosen)} within 15 % of the cheapest"
    )


if __name__ == "__main__":
    main()
