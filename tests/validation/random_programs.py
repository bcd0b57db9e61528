"""Random programs on real clusters, and findings that their events contradict.

``random_programs.py [--seed N] [--number N] [--killed] [DIRECTORY]`` runs programs with consecutive
seeds. Their tasks sleep, compute, fail, are retried, cancelled or released, secede, and submit
other tasks. There are actors, shuffles, and large results. Clusters grow, shrink and are restarted,
and workers are killed. It prints the findings that the refuters contradict, and keeps the traces of
these programs. With ``--killed``, each program is killed while it runs, with its scheduler and
workers.
"""

import argparse
import logging
import multiprocessing
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, secede, wait, worker_client
from refuters import refute

import dasfprof
from dasfprof import TraceAnalyser

#: Seconds for which a program waits for its tasks. Tasks without workers never finish.
_PATIENCE = 20.0
#: Seconds within which a program that will be killed must have started to record.
_START = 120.0


def mixed(seed: float, *_: Any) -> Any:
    """Do something that depends on the seed, so that runs of the function differ a lot."""
    chosen = random.Random(seed)
    kind = chosen.random()
    if kind < 0.3:
        time.sleep(chosen.choice([0.001, 0.02, 0.1, 0.3, 2.0]))
    elif kind < 0.6:
        until = time.process_time() + chosen.choice([0.001, 0.01, 0.1])
        while time.process_time() < until:
            pass
    elif kind < 0.7:
        return np.ones(chosen.choice([10, 100_000, 2_000_000]))
    elif kind < 0.75:
        secede()
        time.sleep(0.05)
    elif kind < 0.8:
        raise ValueError(seed)
    elif kind < 0.82:
        with worker_client() as client:
            return client.submit(short, 1).result()
    return seed


def short(number: int) -> int:
    time.sleep(0.01)
    return number


def large(_: int) -> Any:
    return np.ones(4_000_000)


def flaky(_: int) -> int:
    if random.random() < 0.5:
        raise OSError("flaky")
    time.sleep(0.02)
    return 1


class Counter:
    number = 0

    def count(self) -> int:
        self.number += 1
        time.sleep(0.005)
        return self.number


class Program:
    """Random steps of a client."""

    def __init__(self, chosen: random.Random, cluster: Any, client: Client) -> None:
        self.chosen, self.cluster, self.client = chosen, cluster, client
        self.futures: list[Any] = []

    def run(self) -> None:
        steps, weights = zip(*self.steps().items(), strict=True)
        for _ in range(self.chosen.randint(3, 12)):
            (step,) = self.chosen.choices(steps, weights)
            step()
            if self.chosen.random() < 0.6 and self.futures:
                wait(self.futures, timeout=_PATIENCE)
                if self.chosen.random() < 0.3:
                    self.futures = []
        if self.chosen.random() < 0.7 and self.futures:
            wait(self.futures, timeout=_PATIENCE)

    def steps(self) -> dict[Callable[[], object], float]:
        """Return the steps, and the weights with which they are chosen."""
        return {
            self.layers: 35,
            self.failures: 15,
            self.arrays: 10,
            self.actors: 5,
            self.scattered: 10,
            self.give_up: 10,
            lambda: time.sleep(self.chosen.random()): 5,
            self.kill: 3,
            self.another_client: 2,
            self.shuffle: 2,
            self.restart: 1,
            self.large_results: 1,
            self.scale: 1,
        }

    def layers(self) -> None:
        number = self.chosen.random
        layer = [
            self.client.submit(mixed, number(), pure=False, priority=self.chosen.choice([0, 0, 5]))
            for _ in range(self.chosen.randint(1, 60))
        ]
        for _ in range(self.chosen.randint(0, 3)):
            layer = [
                self.client.submit(mixed, number(), *self.chosen.choices(layer, k=2), pure=False)
                for _ in range(self.chosen.randint(1, 40))
            ]
        self.futures += layer

    def failures(self) -> None:
        retries = self.chosen.choice([0, 1, 3])
        numbers = range(self.chosen.randint(1, 40))
        self.futures += self.client.map(flaky, numbers, retries=retries, pure=False)

    def arrays(self) -> None:
        array = da.random.random((self.chosen.choice([200, 2000]), 500), chunks=(100, 250))
        self.futures.append(self.client.compute((array + array.mean()).sum()))

    def actors(self) -> None:
        actor = self.client.submit(Counter, actor=True, pure=False).result()
        for _ in range(self.chosen.randint(1, 10)):
            actor.count().result()

    def scattered(self) -> None:
        data = list(range(self.chosen.randint(1, 20)))
        sent = self.client.scatter(data, broadcast=self.chosen.random() < 0.5)
        self.futures += self.client.map(short, sent, pure=False)

    def give_up(self) -> None:
        given_up = self.chosen.sample(self.futures, len(self.futures) // 2)
        if self.chosen.random() < 0.5:
            self.client.cancel(given_up)
        else:
            ids = set(map(id, given_up))
            self.futures = [future for future in self.futures if id(future) not in ids]

    def kill(self) -> None:
        """Kill a worker's process, unless it is this process."""
        pid = getattr(self.chosen.choice(list(self.cluster.workers.values())), "pid", None)
        if pid is not None and pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
            time.sleep(2 * self.chosen.random())

    def another_client(self) -> None:
        """Let another client connect, submit tasks, and leave with or without their results."""
        with Client(self.cluster.scheduler_address) as other:
            futures = other.map(short, range(self.chosen.randint(1, 30)), pure=False)
            if self.chosen.random() < 0.5:
                other.gather(futures)

    def shuffle(self) -> None:
        columns = {"a": np.arange(20_000) % 97, "b": np.random.random(20_000)}
        frame = dd.from_pandas(pd.DataFrame(columns), npartitions=6)
        self.futures.append(self.client.compute(frame.shuffle("a").groupby("a").b.sum()))

    def restart(self) -> None:
        self.client.restart(timeout=_PATIENCE)
        self.futures = []

    def large_results(self) -> None:
        """Create results that do not fit into the memory of a small worker."""
        self.futures += self.client.map(large, range(self.chosen.randint(4, 20)), pure=False)

    def scale(self) -> None:
        if len(self.cluster.workers) > 1:
            self.cluster.scale(len(self.cluster.workers) + self.chosen.choice([-1, 1]))


def run(seed: int, directory: Path) -> None:
    """Record the program of a seed. Any outcome is accepted."""
    chosen = random.Random(seed)
    processes = chosen.random() < 0.6
    with (
        suppress(TimeoutError),  # a busy machine may not close the cluster in time
        LocalCluster(
            n_workers=chosen.randint(1, 3),
            threads_per_worker=chosen.randint(1, 3),
            processes=processes,
            memory_limit=chosen.choice(["400MB", "2GB"]) if processes else "2GB",
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=directory),
        suppress(Exception),
    ):
        Program(chosen, cluster, client).run()


def run_and_kill(seed: int, directory: Path) -> None:
    """Record the program of a seed, and kill it with all its processes shortly after its start."""
    program = multiprocessing.get_context("spawn").Process(
        target=_as_a_group, args=(seed, directory)
    )
    program.start()
    limit = time.monotonic() + _START
    while program.is_alive() and not any(directory.glob("*TracePlugin*")):
        if time.monotonic() > limit:
            program.kill()  # its cluster did not start: there is no trace
        time.sleep(0.05)
    program.join(10 * random.Random(seed).random())
    if program.is_alive() and program.pid is not None:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    program.join()


def _as_a_group(seed: int, directory: Path) -> None:
    os.setsid()
    logging.disable(logging.CRITICAL)
    run(seed, directory)


def against(directory: Path) -> list[str]:
    """Return the contradictions between a trace and its findings, and the rules that failed."""
    analyser = TraceAnalyser(sorted(directory.glob("*.msgpack")), progress=False)
    lost = [note.text for note in analyser.trace.notes if note.kind == "caught-errors"]
    return [*lost, *refute(directory, analyser.findings())]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=Path("random-programs"))
    parser.add_argument("--seed", type=int, default=1, help="of the first")
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--killed", action="store_true", help="kill each on its way")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    refuted = 0
    for seed in range(options.seed, options.seed + options.number):
        directory = options.directory / str(seed)
        shutil.rmtree(directory, ignore_errors=True)
        try:
            (run_and_kill if options.killed else run)(seed, directory)
            found = against(directory)
        except Exception:
            found = [traceback.format_exc()]
        refuted += bool(found)
        for text in found:
            print(f"{seed}: {text}", flush=True)
        if not found:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"{refuted} of {options.number} programs have findings that their events contradict")


if __name__ == "__main__":
    main()
