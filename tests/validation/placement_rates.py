"""How often `why` recomputes the scheduler's choices: ``placement_rates.py``.

Runs programs of several shapes on real workers, with a look into the scheduler at each choice: the
rule that it followed, and the worker that it took. Prints for each shape in how many choices the
recomputed worker is the recorded one; in how many the rule takes any of several equal workers, of
which it is one; in how many the record cannot tell apart which the rule takes; how many differ; and
how many are said to be untold. Beside it, in how many the recomputed rule is the one followed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask.array as da
import dask.bag as db
import numpy as np
from distributed import Client, LocalCluster
from distributed.scheduler import SchedulerState as DaskState
from distributed.stealing import WorkStealing

import dasfprof
from dasfprof.analysis.simulation.decisions import Decision, Rule, decisions_of

#: What `agreement` says, in the order in which it is printed.
SAYS = ("same", "tied", "unsure", "other", "untold")


# --- A look into the scheduler --------------------------------------------------------------------


class Watched:
    """What the scheduler of this process chose: the rule and the worker's address, by key."""

    def __init__(self) -> None:
        self.choices: dict[str, list[tuple[str, str]]] = {}
        #: By key and address, as the rule saw them: seconds of work, bytes to move, seconds.
        self.costs: dict[str, dict[str, tuple[float, float, float]]] = {}

    @contextmanager
    def looking(self) -> Iterator[Watched]:
        names = ("decide_worker_non_rootish", "decide_worker_rootish_queuing_disabled")
        kept = {name: getattr(DaskState, name) for name in (*names, "_add_to_processing")}
        thief = WorkStealing.move_task_request

        def add(state: Any, task: Any, worker: Any, **told: Any) -> Any:
            inputs = task.dependencies
            self.costs[str(task.key)] = {
                each.address: (
                    each.occupancy,
                    sum(x.get_nbytes() for x in inputs if each not in (x.who_has or ())),
                    state.worker_objective(task, each)[0],
                )
                for each in state.workers.values()
            }
            self._followed.setdefault(str(task.key), "queue")
            self.choices.setdefault(str(task.key), []).append(
                (self._followed.pop(str(task.key)), worker.address)
            )
            return kept["_add_to_processing"](state, task, worker, **told)

        def following(name: str) -> Callable[..., Any]:
            def follow(state: Any, task: Any) -> Any:
                self._followed[str(task.key)] = name
                return kept[name](state, task)

            return follow

        self._followed: dict[str, str] = {}
        self.asked_to_move = 0

        def move(stealing: Any, task: Any, victim: Any, to: Any) -> Any:
            self.asked_to_move += 1
            return thief(stealing, task, victim, to)

        try:
            for name in names:
                setattr(DaskState, name, following(name))
            DaskState._add_to_processing = add
            WorkStealing.move_task_request = move
            yield self
        finally:
            for name, own in kept.items():
                setattr(DaskState, name, own)
            WorkStealing.move_task_request = thief


#: Rules by the methods of Dask that follow them.
METHODS = {
    "queue": (Rule.FEWEST,),
    "decide_worker_rootish_queuing_disabled": (Rule.BESIDE,),
    "decide_worker_non_rootish": (Rule.SOONEST, Rule.ALLOWED, Rule.IDLE),
}


# --- Programs -------------------------------------------------------------------------------------


def load(i: int, seconds: float = 0.01, size: int = 200_000) -> np.ndarray:
    time.sleep(seconds)
    return np.full(size // 8, i, dtype=float)


def join(*parts: Any, seconds: float = 0.01) -> Any:
    time.sleep(seconds)
    return sum(part.sum() for part in parts) + np.zeros(100_000 // 8)


def map_reduce(client: Client) -> None:
    parts = client.map(load, range(48), pure=False)
    client.submit(
        join,
        *[client.submit(join, *parts[i : i + 6], pure=False) for i in range(0, 48, 6)],
        pure=False,
    ).result()


def tree(client: Client) -> None:
    level = [client.submit(load, i, pure=False) for i in range(8)]
    while len(level) > 1:
        level = [
            client.submit(join, *level[i : i + 2], pure=False) for i in range(0, len(level), 2)
        ]
    level[0].result()


def shuffle(client: Client) -> None:
    x = da.random.random((900, 900), chunks=(300, 900))
    x.rechunk((900, 300), method="tasks").sum(axis=0).compute()
    db.range(200, npartitions=8).groupby(lambda n: n % 5, shuffle="tasks").count().compute()


def restricted(client: Client) -> None:
    there = list(client.nthreads())
    parts = client.map(load, range(12), workers=there[:2], pure=False)
    loose = [
        client.submit(join, part, workers=[there[2]], allow_other_workers=True, pure=False)
        for part in parts
    ]
    client.gather(client.map(join, loose, resources={"disk": 1}, pure=False))


def large_group(client: Client) -> None:
    x = da.ones((60, 400), chunks=(1, 400)).map_blocks(lambda block: load(0)[:400][None] + block)
    x.sum().compute()


def stolen(client: Client) -> None:
    first = next(iter(client.nthreads()))
    held = client.submit(load, 1, workers=[first], pure=False)
    # Of groups so small that they are not sent anywhere at once.
    keys = [f"join{i % 4}-{uuid4()}" for i in range(24)]
    client.gather([client.submit(join, held, seconds=0.2, key=key) for key in keys])


def uneven(client: Client) -> None:
    parts = [
        client.submit(load, i, 0.02 * (i % 5), 2_000_000 * (i % 3), pure=False) for i in range(20)
    ]
    client.gather([client.submit(join, *parts[i : i + 5], pure=False) for i in range(16)])


PROGRAMS: dict[str, Callable[[Client], None]] = {
    each.__name__: each
    for each in (map_reduce, tree, shuffle, restricted, large_group, stolen, uneven)
}


def recorded(
    program: Callable[[Client], None], directory: Path, workers: int = 4
) -> tuple[dasfprof.TraceAnalyser, Watched]:
    """Run a program on a cluster of its own, looked at, and open its trace."""
    watched = Watched()
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=":0",
            resources={"disk": 1},
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        named = {"directory": directory, "name": program.__name__}
        with dasfprof.profile(client, **named) as run, watched.looking():
            program(client)
    return run.analyser(), watched


def choices_of(analyser: dasfprof.TraceAnalyser) -> dict[str, list[Decision]]:
    """Recompute all choices of a run, by key."""
    whole = analyser.run.whole
    texts = whole.keys.texts(whole.tasks["key_id"].to_numpy())
    found = decisions_of(whole, range(len(whole.tasks)))
    return {str(texts[row]): decisions for row, decisions in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--others", action="store_true", help="print the choices that differ")
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    given = parser.parse_args()
    whole: Counter[str] = Counter()
    print(f"{'':14}{'choices':>8}" + "".join(f"{say:>8}" for say in SAYS) + "   rule of sent")
    for name in given.programs:
        counts: Counter[str] = Counter()
        for _ in range(given.times):
            with tempfile.TemporaryDirectory() as place:
                analyser, watched = recorded(PROGRAMS[name], Path(place), given.workers)
                found = choices_of(analyser)
                address = analyser.trace.workers["address"]
                for key, decisions in found.items():
                    counts += Counter(one.agreement for one in decisions)
                    if given.others:
                        differ = [one for one in decisions if one.agreement == "other"]
                        print(*(f"{key} {address[one.worker]} {one}\n" for one in differ), end="")
                    sent = [one for one in decisions if one.victim < 0]
                    looked = zip(sent, watched.choices.get(key, []), strict=False)
                    for one, (followed, where) in looked:
                        assert address[one.worker] == where, key
                        counts["sent"] += 1
                        counts["rule"] += one.rule in (None, *METHODS[followed])
        whole += counts
        print(_row(name, counts), flush=True)
    print(_row("all", whole))


def _row(name: str, counts: Counter[str]) -> str:
    number = sum(counts[say] for say in SAYS)
    told = "".join(f"{counts[say]:>8}" for say in SAYS)
    return f"{name:14}{number:>8}{told}   {counts['rule']} of {counts['sent']}"


if __name__ == "__main__":
    main()
