"""Whether ``cluster_sizing(deadline=)`` meets deadlines, and at what cost: ``sizing_rates.py``.

The traces are of runs whose duration on any number of workers can be calculated: for equal tasks it
is ``ceil(tasks / workers) x seconds``, and for other tasks that of list scheduling, in which each
free worker takes the next task. Each run is recorded on four workers with one thread, and sized
for deadlines that 2 to 200 workers just meet. The choice is tested with other runs: the duration of
each is a few per cent longer or shorter, and random durations are drawn again.

Prints in how many of these runs the choice meets the deadline, and its cost relative to the
cheapest number of workers that meets it in nine of ten runs. "none" means that `cluster_sizing`
reported no sufficient number.
"""

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

#: Workers of the recorded run, numbers of workers that just meet a deadline, and maximum number.
RECORDED, JUST, MOST = 4, (2, 3, 5, 8, 13, 20, 32, 50, 80, 125, 200), 200
#: Factor of deadlines relative to the duration that nine of ten runs stay below, and standard
#: deviation of the durations of runs.
SLACK, VARIES = 1.02, 0.03
#: Seconds of tasks by stage. A stage starts when the previous one has finished.
Stages = Sequence[Sequence[float]]
#: Number of runs with which a choice is tested.
RUNS = 20


def alike(_: random.Random) -> Stages:
    return [[10.0] * 1000]


def alike_and_few(_: random.Random) -> Stages:
    """Return equal tasks, hardly one for each of 200 workers."""
    return [[30.0] * 240]


def then_a_chain(_: random.Random) -> Stages:
    """Return equal tasks, and a chain that depends on all of them."""
    return [[10.0] * 1000, *([5.0] for _ in range(4))]


def then_a_long_chain(_: random.Random) -> Stages:
    """Return equal tasks, and a chain that takes most of the time with at least 20 workers."""
    return [[10.0] * 400, *([20.0] for _ in range(10))]


def two_stages(_: random.Random) -> Stages:
    """Return equal tasks, and other tasks that depend on all of them."""
    return [[8.0] * 600, [0.1], [4.0] * 600]


def varying(lengths: random.Random) -> Stages:
    return [[lengths.gauss(10.0, 1.0) for _ in range(1000)]]


def random_lengths(lengths: random.Random) -> Stages:
    return [[1.0 + lengths.expovariate(1 / 4.0) for _ in range(1500)]]


_ALIKE = (alike, alike_and_few, then_a_chain, then_a_long_chain, two_stages)
FAMILIES: dict[str, Callable[[random.Random], Stages]] = {
    each.__name__: each for each in (*_ALIKE, varying, random_lengths)
}


def seconds_on(workers: int, stages: Stages) -> float:
    """Return the duration of a run on `workers` workers with one thread."""
    total = 0.0
    for stage in stages:
        if len(set(stage)) == 1:
            total += ceil(len(stage) / workers) * stage[0]
            continue
        free = [0.0] * workers
        for seconds in stage:
            heapq.heapreplace(free, free[0] + seconds)
        total += max(free)
    return total


def recorded(stages: Stages, directory: Path) -> TraceAnalyser:
    """Write the trace of a run on `RECORDED` workers, and return its analyser."""
    tasks: list[Task] = []
    begin, before = 0.0, []
    for index, stage in enumerate(stages):
        free = [(begin, worker) for worker in range(RECORDED)]
        for number, seconds in enumerate(stage):
            start, worker = free[0]
            key, stop = f"stage{index}-{number}", start + seconds
            times = {} if start == 0.0 else {"sent": start}
            tasks.append(Task(key, worker, start, stop, dependencies=before, **times))
            heapq.heapreplace(free, (stop, worker))
        begin, before = max(free)[0], [task.key for task in tasks[-len(stage) :]]
    return Plan(tasks, workers=RECORDED, threads=1).write(directory)


@dataclass(frozen=True)
class Sized:
    """Choice of `cluster_sizing` for a deadline."""

    #: Number of workers that just meets the deadline, and chosen number, or 0 without a choice.
    just: int
    chosen: int
    #: Fraction of runs that meet the deadline with the choice, and its cost relative to the
    #: cheapest.
    in_time: float
    cost: float


def sized(name: str, directory: Path, numbers: Sequence[int] = JUST) -> Iterator[Sized]:
    """Yield the choice for each deadline of a family."""
    family, chance = FAMILIES[name], random.Random(1)
    analyser = recorded(family(random.Random(0)), directory)
    runs = [(family(chance), chance.gauss(1.0, VARIES)) for _ in range(RUNS)]
    took = {
        workers: [factor * seconds_on(workers, stages) for stages, factor in runs]
        for workers in range(1, MOST + 1)
    }
    for just in numbers:
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
