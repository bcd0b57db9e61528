"""Advice that is followed, rule by rule: what findings promise, and what doing as they say gains.

``followed.py [--times 3] [NAME ...]`` runs small programs as they are and as
advised, in turns, under the profiler. Their tasks sleep, so that what else the machine does matters
little. Of each rule there is one for which its advice is right, and one that looks alike, of which
the rule must promise nothing. ``advised.py`` does the same with whole programs of the corpus, also
for what takes the CPU, disks and the network.

Promised are the seconds at stake of the rule's finding; gained is what the program itself measures.
Medians of all turns.
"""

from __future__ import annotations

import argparse
import logging
import pickle
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster, get_worker
from distributed import wait as wait_for
from fsspec import AbstractFileSystem

import dasfprof
from dasfprof import TraceAnalyser


@dataclass(frozen=True)
class Followed:
    """A program, and how its cluster is, as it is and as advised."""

    rule: str
    run: Callable[[Client, bool], object]
    #: Workers and threads of each; as advised the same unless given.
    cluster: tuple[int, int] = (2, 2)
    advised_cluster: tuple[int, int] | None = None
    #: Whether workers are processes of their own.
    processes: bool = False
    #: Bytes that a worker may take, as it is; 0: as many as there are.
    memory: int = 0


#: Rules about what lies between processes, or is each process's own.
_OF_PROCESSES = (
    *("per-process-lock", "large-gathers", "large-objects-in-graph", "transfer-bound"),
    *("gil-contention", "garbage-collection", "spilling"),
)
#: By name; those of `ALIKE` must not have a promise of their rule.
PROGRAMS: dict[str, Followed] = {}
ALIKE: dict[str, Followed] = {}


Run = Callable[[Client, bool], object]


def gains(rule: str, *clusters: tuple[int, int], memory: int = 0) -> Callable[[Run], Run]:
    """Register a program for which the advice of a rule is right."""
    return _registered(PROGRAMS, rule, clusters, memory)


def alike(rule: str, *clusters: tuple[int, int]) -> Callable[[Run], Run]:
    """Register a program that looks like one of a rule's, and is none."""
    return _registered(ALIKE, rule, clusters)


def _registered(
    programs: dict[str, Followed], rule: str, clusters: tuple[Any, ...], memory: int = 0
) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        cluster, advised, *_ = (*clusters, *((2, 2), None)[len(clusters) :])
        own = rule in _OF_PROCESSES
        programs[run.__name__] = Followed(rule, run, cluster, advised, own, memory)
        return run

    return register


def wait(number: int, seconds: float = 0.1, *_: Any) -> int:
    """Sleep."""
    time.sleep(seconds)
    return number


def fetch(number: int, seconds: float, *_: Any) -> int:
    """Sleep, as one that waits for a service of the network."""
    time.sleep(seconds)
    return number


# --- blocked-tasks: more threads ------------------------------------------------------------------


@gains("blocked-tasks", (2, 1), (2, 10))
def service(client: Client, _: bool) -> None:
    client.gather(client.map(fetch, range(40), seconds=0.15))


@alike("blocked-tasks")
def a_thread_for_each(client: Client, _: bool) -> None:
    for turn in range(4):
        client.gather(client.map(fetch, range(4 * turn, 4 * turn + 4), seconds=0.4))


# --- io-bound: read less --------------------------------------------------------------------------


class SlowStore(AbstractFileSystem):
    """A storage that gives 20 MB a second; a path ends in the bytes that it has."""

    protocol = "slow-store"

    def cat_file(self, path: str, start: int = 0, end: int | None = None, **_: Any) -> bytes:
        """Return zeros."""
        size = (int(path.rpartition("-")[2]) if end is None else end) - (start or 0)
        time.sleep(0.002 + size / 20e6)
        return bytes(size)


def read(number: int, columns: int, megabytes: float = 1.0) -> int:
    """Read columns one by one."""
    size = int(megabytes * 1e6)
    return sum(len(SlowStore().cat_file(f"{number}-{each}-{size}")) for each in range(columns))


@gains("io-bound")
def reads_all_columns(client: Client, advised: bool) -> None:
    """Read eight columns of each file, of which one is needed."""
    client.gather(client.map(read, range(40), columns=1 if advised else 8))


@alike("io-bound")
def reads_little_and_waits(client: Client, _: bool) -> None:
    client.gather(client.map(reads_and_waits, range(40)))


def reads_and_waits(number: int) -> int:
    """Wait for something that is no storage, mostly."""
    time.sleep(0.2)
    return read(number, 1, 0.2)


# --- client-bound: submit in one go ---------------------------------------------------------------


@gains("client-bound")
def works_between(client: Client, advised: bool) -> None:
    """The client works on what each round gives, before the next; as advised, tasks do."""
    works = []
    for n in range(6):
        parts = client.map(wait, range(4 * n, 4 * n + 4))
        if advised:
            works.append(client.submit(fetch, n, 0.4, parts))
        else:
            client.gather(parts)
            time.sleep(0.4)
    client.gather(works or client.map(wait, range(100, 104)))


@alike("client-bound")
def thinks_meanwhile(client: Client, _: bool) -> None:
    futures = []
    for n in range(6):
        futures += client.map(wait, range(20 * n, 20 * n + 20))
        time.sleep(0.3)
    client.gather(futures)


# --- no-workers: let them join first --------------------------------------------------------------


@gains("no-workers", (0, 2))
def submits_before_they_join(client: Client, advised: bool) -> None:
    if advised:
        client.cluster.scale(2)
        client.wait_for_workers(2)
    _begin_here()
    futures = client.map(wait, range(100, 120))
    if not advised:
        time.sleep(1.0)
        client.cluster.scale(2)
    client.gather(futures)


@alike("no-workers", (0, 2))
def joins_before(client: Client, _: bool) -> None:
    time.sleep(0.5)
    submits_before_they_join(client, True)


# --- too-few-tasks: more partitions ---------------------------------------------------------------


@gains("too-few-tasks")
def five_for_four(client: Client, advised: bool) -> None:
    """Work of 5 s in as many tasks; as advised in three for each thread."""
    count = 15 if advised else 5
    client.gather(client.map(wait, range(count), seconds=5 / count))


@alike("too-few-tasks")
def as_many_as_threads(client: Client, _: bool) -> None:
    client.gather(client.map(wait, range(4), seconds=1.5))


# --- serial-chain: a tree -------------------------------------------------------------------------


@gains("serial-chain")
def fold(client: Client, advised: bool) -> None:
    """Combine 16 results one after the other; as advised pairwise."""
    parts, number = client.map(wait, range(16)), 1000
    while len(parts) > 1:
        width = len(parts) // 2 if advised else 1
        pairs, rest = parts[: 2 * width], parts[2 * width :]
        done = [
            client.submit(wait, (number := number + 1), 0.15, *pairs[2 * n : 2 * n + 2])
            for n in range(width)
        ]
        parts = [*done, *rest]
    parts[0].result()


@alike("serial-chain")
def chains_side_by_side(client: Client, _: bool) -> None:
    ends: list[Any] = [None] * 4
    for n in range(12):
        ends = [client.submit(wait, 4 * n + k, 0.15, end) for k, end in enumerate(ends)]
    client.gather(ends)


# --- poor-placement and imbalance: let them run anywhere ------------------------------------------


@gains("poor-placement")
def pinned(client: Client, advised: bool) -> None:
    first = None if advised else [min(client.nthreads())]
    client.gather(client.map(wait, range(40), workers=first))


@alike("poor-placement")
def pinned_evenly(client: Client, _: bool) -> None:
    addresses = sorted(client.nthreads())
    futures = [client.submit(wait, n, workers=[addresses[n % len(addresses)]]) for n in range(60)]
    client.gather(futures)


# --- slow-worker: another one in its place --------------------------------------------------------


def on_slow(number: int, seconds: float, times: float, slow: str) -> int:
    """Sleep, longer on one of the workers."""
    time.sleep(seconds * (times if get_worker().address == slow else 1.0))
    return number


@gains("slow-worker", (4, 1))
def one_is_slow(client: Client, advised: bool) -> None:
    slow, times = max(client.nthreads()), 1.0 if advised else 4.0
    client.gather(client.map(on_slow, range(100), seconds=0.15, times=times, slow=slow))


@alike("slow-worker", (4, 1))
def all_are_slow(client: Client, _: bool) -> None:
    client.gather(client.map(wait, range(60), seconds=0.15))


# --- stragglers, data-skew: split evenly ----------------------------------------------------------


@gains("stragglers")
def one_takes_long(client: Client, advised: bool) -> None:
    """The last of forty takes 2 s: as advised, as long as the others."""
    seconds = [0.1] * 39 + [0.1 if advised else 2.0]
    client.gather(client.map(wait, range(40), seconds))


@alike("stragglers")
def one_takes_long_at_first(client: Client, _: bool) -> None:
    """The others are not done before it: nobody waits for it."""
    client.gather(client.map(wait, range(60), [0.6] + [0.1] * 59))


def partition(number: int, megabytes: float) -> Any:
    """Make a partition, in a time that grows with it."""
    time.sleep(megabytes / 10)
    return np.ones(int(megabytes * 125_000))


@gains("data-skew")
def one_is_fat(client: Client, advised: bool) -> None:
    """Twenty of 1 MB and one of 20 MB; as advised, all of 1 MB."""
    sizes = [1.0] * 40 if advised else [1.0] * 20 + [20.0]
    wait_for(client.map(partition, range(len(sizes)), sizes))


@alike("data-skew")
def fat_and_fast(client: Client, _: bool) -> None:
    sizes = [2.0] * 40
    wait_for(client.map(partition, range(len(sizes)), sizes))


# --- slowing-functions, dominant-function, warm-up: what a function does --------------------------

CALLS = {"count": 0, "each adds": 0.0}


def remembers(part: Any) -> float:
    """Take longer with each call, unless it forgets what was before."""
    CALLS["count"] += 1
    time.sleep(0.05 + CALLS["each adds"] * CALLS["count"])
    return float(part[0])


@gains("slowing-functions")
def grows_with_calls(client: Client, advised: bool) -> None:
    CALLS.update({"count": 0, "each adds": 0.0 if advised else 0.004})
    parts = [np.full(1000, float(number)) for number in range(80)]
    client.gather(client.map(remembers, parts, pure=False))


@alike("slowing-functions")
def later_ones_have_more_to_do(client: Client, _: bool) -> None:
    client.gather(client.map(wait, range(80), [0.05 + 0.004 * number for number in range(80)]))


@gains("dominant-function")
def one_function(client: Client, advised: bool) -> None:
    """As advised it is twice as fast."""
    loaded = client.map(wait, range(24), seconds=0.03)
    client.gather([client.submit(fetch, n, 0.2 if advised else 0.4) for n in range(24)] + loaded)


@alike("dominant-function")
def two_functions(client: Client, _: bool) -> None:
    client.gather(client.map(wait, range(24)) + client.map(fetch, range(24), seconds=0.1))


LOADED: set[str] = set()


def uses_a_model(number: int, seconds: float) -> int:
    """Load at the first use on a worker, and have the model then."""
    _load(seconds, get_worker())
    time.sleep(0.1)
    return number


def _load(seconds: float, dask_worker: Any) -> None:
    with _LOADING[dask_worker.address]:
        if dask_worker.address not in LOADED:
            time.sleep(seconds)
            LOADED.add(dask_worker.address)


#: Of each worker.
_LOADING: dict[str, threading.Lock] = defaultdict(threading.Lock)


@gains("warm-up")
def loads_at_first_use(client: Client, advised: bool) -> None:
    if advised:
        client.run(_load, 0.8)
    _begin_here()
    client.gather(client.map(uses_a_model, range(40), seconds=0.8))


@alike("warm-up")
def nothing_to_load(client: Client, _: bool) -> None:
    loads_at_first_use(client, True)


# --- recomputation: persist -----------------------------------------------------------------------


@gains("recomputation")
def computes_twice(client: Client, advised: bool) -> None:
    parts = [dask.delayed(wait)(n, 0.15, dask_key_name=f"load-{n}") for n in range(20)]
    if advised:
        parts = list(client.persist(parts))
    for turn in range(2):
        name = f"use-{turn}"
        client.compute(dask.delayed(wait)(turn, 0.05, parts, dask_key_name=name)).result()


@alike("recomputation")
def computes_once(client: Client, _: bool) -> None:
    computes_twice(client, True)


# --- retried-tasks: let them not fail -------------------------------------------------------------

TRIED: set[int] = set()


def fails_at_first(number: int, before: float, after: float, fails: int) -> int:
    """Sleep, and raise then in the first attempts of some tasks; sleep on otherwise."""
    time.sleep(before)
    if number % fails == 0 and number not in TRIED:
        TRIED.add(number)
        raise OSError("not yet")
    time.sleep(after)
    return number


@gains("retried-tasks")
def each_fails_once(client: Client, advised: bool) -> None:
    _try_again(client, advised, 16, before=0.3, after=0.0, fails=1)


@alike("retried-tasks")
def fails_at_once(client: Client, _: bool) -> None:
    _try_again(client, False, 24, before=0.0, after=0.2, fails=3)


def _try_again(client: Client, advised: bool, count: int, **how: Any) -> None:
    TRIED.clear()
    TRIED.update(range(count) if advised else ())
    client.gather(client.map(fails_at_first, range(count), retries=2, pure=False, **how))


# --- repeated-gathers: gather lists ---------------------------------------------------------------


@gains("repeated-gathers")
def a_result_at_a_time(client: Client, advised: bool) -> None:
    futures = client.map(wait, range(1500), seconds=0.0)
    wait_for(futures)
    _begin_here()
    _ = client.gather(futures) if advised else [future.result() for future in futures]


@alike("repeated-gathers")
def each_as_it_is_done(client: Client, _: bool) -> None:
    for future in client.map(wait, range(40)):
        future.result()


# --- tokenising: names of one's own ---------------------------------------------------------------


@gains("slow-tokenization")
def hashes_arrays(client: Client, advised: bool) -> None:
    arrays = [np.full(12_000_000, float(n)) for n in range(6)]
    _begin_here()
    client.gather(
        [client.submit(wait, n, 0.05, array, pure=not advised) for n, array in enumerate(arrays)]
    )


@alike("slow-tokenization")
def names_of_their_own(client: Client, _: bool) -> None:
    hashes_arrays(client, True)


# --- large-gathers: reduce them there -------------------------------------------------------------


def block(number: int, megabytes: float) -> Any:
    """Make a large result."""
    return np.full(int(megabytes * 125_000), float(number))


def total(part: Any) -> float:
    """Reduce a large result."""
    return float(part.sum())


@gains("large-gathers", (2, 1))
def fetches_blocks(client: Client, advised: bool) -> None:
    """Add up 600 MB in the client; as advised, in tasks."""
    parts = client.map(block, range(12), megabytes=50.0)
    wait_for(parts)
    _begin_here()
    if advised:
        sum(client.gather(client.map(total, parts)))
    else:
        sum(map(total, client.gather(parts)))


@alike("large-gathers", (2, 1))
def leaves_blocks_there(client: Client, _: bool) -> None:
    fetches_blocks(client, True)


# --- large-objects-in-graph: scatter --------------------------------------------------------------


def look_up(number: int, table: Any) -> int:
    """Use a large table, or one that was pickled."""
    return len(pickle.loads(table) if isinstance(table, bytes) else table) + number


@gains("large-objects-in-graph", (2, 1))
def sends_a_dict(client: Client, advised: bool) -> None:
    table = {number: str(number) for number in range(100_000)}
    _begin_here()
    given = client.scatter(pickle.dumps(table), broadcast=True) if advised else table
    client.gather([client.submit(look_up, n, given, pure=False) for n in range(20)])


@alike("large-objects-in-graph", (2, 1))
def sends_small_lists(client: Client, _: bool) -> None:
    table = list(range(100))
    client.gather([client.submit(look_up, n, table, pure=False) for n in range(60)])


# --- transfer-bound: fewer workers with more threads ----------------------------------------------


def both(left: Any, right: Any) -> float:
    """Use two large results."""
    return float(left[0] + right[0])


@gains("transfer-bound", (2, 1), (1, 2))
def each_with_each(client: Client, _: bool) -> None:
    """Each of eight blocks with each other: half of them are moved."""
    parts = client.map(block, range(8), megabytes=40.0)
    wait_for(parts)
    pairs = [(left, right) for left in parts for right in parts if left.key < right.key]
    client.gather([client.submit(both, *pair) for pair in pairs])


@alike("transfer-bound", (2, 1))
def each_by_itself(client: Client, _: bool) -> None:
    parts = client.map(block, range(24), megabytes=25.0)
    client.gather(client.map(total, parts))


# --- spilling: more memory ------------------------------------------------------------------------


@gains("spilling", (2, 1), memory=400_000_000)
def keeps_more_than_fits(client: Client, _: bool) -> None:
    """Go over 800 MB twice with room for 480 MB."""
    parts = client.map(block, range(40), megabytes=20.0)
    for _ in range(2):
        client.gather(client.map(total, parts, pure=False))


@alike("spilling", (2, 1))
def keeps_what_fits(client: Client, advised: bool) -> None:
    keeps_more_than_fits(client, advised)


# --- tasks-too-small: batches ---------------------------------------------------------------------


def waits_of(numbers: list[int]) -> int:
    """Do what many tasks would do."""
    return sum(wait(number, 0.0) for number in numbers)


@gains("tasks-too-small")
def tiny_tasks(client: Client, advised: bool) -> None:
    """A thousand tasks that do nothing; as advised twelve."""
    if advised:
        client.gather(client.map(waits_of, [list(range(n, 1000, 12)) for n in range(12)]))
    else:
        client.gather(client.map(wait, range(1000), seconds=0.0))


@alike("tasks-too-small")
def short_tasks(client: Client, _: bool) -> None:
    client.gather(client.map(wait, range(120), seconds=0.03))


# --- gil-contention: processes; garbage-collection: arrays ----------------------------------------


def counts_in_python(number: int) -> int:
    """Compute in pure Python."""
    found = number
    for step in range(1_500_000):
        found = (found + step) % 1_000_003
    return found


@gains("gil-contention", (1, 2), (2, 1))
def two_threads_of_python(client: Client, _: bool) -> None:
    client.gather(client.map(counts_in_python, range(24), pure=False))


@alike("gil-contention", (1, 2))
def two_threads_that_sleep(client: Client, _: bool) -> None:
    client.gather(client.map(fetch, range(24), seconds=0.1))


def parse(number: int, objects: bool) -> Any:
    """Make many objects that hold others, or as many numbers."""
    if not objects:
        return np.arange(150_000) + number
    return [[number, {"at": place}] for place in range(150_000)]


@gains("garbage-collection", (2, 1))
def keeps_objects(client: Client, advised: bool) -> None:
    wait_for(client.map(parse, range(24), objects=not advised))


@alike("garbage-collection", (2, 1))
def keeps_arrays(client: Client, _: bool) -> None:
    wait_for(client.map(parse, range(24), objects=False))


# --- per-process-lock: processes ------------------------------------------------------------------

LOCK = threading.Lock()


def locked(number: int, in_lock: float, outside: float) -> int:
    """Sleep with a lock of the process, and without."""
    with LOCK:
        time.sleep(in_lock)
    time.sleep(outside)
    return number


@gains("per-process-lock", (2, 3), (6, 1))
def one_lock(client: Client, _: bool) -> None:
    client.gather(client.map(locked, range(40), in_lock=0.08, outside=0.0))


@alike("per-process-lock", (1, 4))
def no_lock(client: Client, _: bool) -> None:
    client.gather(client.map(fetch, range(60), seconds=0.15))


# --- how a program is run -------------------------------------------------------------------------

_BEGUN = [0.0]


def _begin_here() -> None:
    """Measure the program from here on: what comes before is none of its work."""
    _BEGUN[0] = time.perf_counter()


def run(program: Followed, advised: bool, directory: Path) -> tuple[float, Any]:
    """Run a program under the profiler; return its seconds and its findings."""
    workers, threads = (advised and program.advised_cluster) or program.cluster
    LOADED.clear()
    directory.mkdir(parents=True)
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=program.processes,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            # Workers of one process share it.
            memory_limit=0 if not program.processes else 2**32 if advised else program.memory,
        ) as cluster,
        Client(cluster) as client,
    ):
        if workers:
            client.wait_for_workers(workers)
            client.run(wait, 0, 0.0)  # loads this module, which is none of the program's work
        with dasfprof.profile(client, directory=directory):
            _begin_here()
            program.run(client, advised)
            seconds = time.perf_counter() - _BEGUN[0]
    return seconds, TraceAnalyser(sorted(directory.glob("*.msgpack")), progress=False).diagnose()


def promise(rule: str, findings: Any) -> float:
    """Return the seconds at stake of a rule's finding; NaN if there is none."""
    own = findings[findings["Rule"] == rule]["Seconds at stake (s)"]
    return float(own.iloc[0]) if len(own) else float("nan")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="NAME")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    columns = ("before", "after", "gained", "promised", "by gain")
    with tempfile.TemporaryDirectory() as directory:  # what Python and Dask load once
        run(ALIKE["two_functions"], False, Path(directory) / "first")
    print(f"{'rule':22}{'program':28}{''.join(f'{column:>10}' for column in columns)}")
    for name, program in {**PROGRAMS, **ALIKE}.items():
        if options.programs and name not in options.programs:
            continue
        with tempfile.TemporaryDirectory() as directory:
            place, seconds, promised = Path(directory), ([], []), []
            for turn in range(options.times):
                for advised in (False, True) if name in PROGRAMS else (False,):
                    took, findings = run(program, advised, place / f"{turn}-{advised}")
                    seconds[advised].append(took)
                    if not advised:
                        promised.append(promise(program.rule, findings))
        before, told = statistics.median(seconds[0]), statistics.median(promised)
        line = f"{program.rule:22}{name:28}{before:10.2f}"
        if name in ALIKE:
            print(f"{line}{'alike':>20}{told:10.2f}", flush=True)
            continue
        after = statistics.median(seconds[1])
        by_gain = told / (before - after)
        print(f"{line}{after:10.2f}{before - after:10.2f}{told:10.2f}{by_gain:10.0%}", flush=True)


if __name__ == "__main__":
    # So that workers find its functions by their names, with the locks that they share.
    from followed import main as main_by_name

    main_by_name()
