"""The tracks of the timelines: one for each thread of each worker."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array


class ThreadTracks:
    """One track for each thread, the threads of a worker in the order of their first task.

    Parameters
    ----------
    trace
        The trace.
    placed, starts
        The rows of `Trace.tasks` that have a time, and when they start.
    threads
        How many threads each named worker has: those that ran nothing have tracks too. Default:
        only threads that ran something have.
    """

    def __init__(
        self, run: Run, placed: Array, starts: Array, threads: Array | None = None
    ) -> None:
        named = run.named
        tasks = run.tasks
        names = named.titles()
        by_name = sorted(range(len(names)), key=lambda number: natural_order(names[number]))
        workers = np.argsort(np.array(by_name, dtype=np.int64))[named.numbers(tasks)[placed]]
        codes = tasks["thread"].cat.codes.to_numpy()[placed].astype(np.int64)
        most = int(codes.max(initial=0)) + 2
        if threads is not None:
            most += int(threads.max(initial=0))
        codes, pairs = pd.factorize(workers * most + codes + 1)
        if threads is not None:
            pairs = np.append(pairs, _unused(pairs, most, threads[by_name]))
        first_start = np.full(len(pairs), np.inf)
        np.minimum.at(first_start, codes, starts)
        of_pair, thread_of_pair = np.divmod(pairs, most)
        # A worker's coroutines, which run in its event loop, come last.
        in_order = np.lexsort((first_start, thread_of_pair == 0, of_pair))
        place = np.argsort(in_order)
        track = place[codes]
        #: Rows of `placed` by track and start.
        self.order = np.lexsort((starts, track))
        #: Where the rows of each track begin, and the end.
        self.offsets = np.r_[0, np.cumsum(np.bincount(track, minlength=len(pairs)))]
        #: Names of the workers that have tracks, and their hosts.
        self.workers: list[str] = []
        self.hosts: list[str] = []
        #: For each track ``worker`` (place in `workers`), ``thread`` (from 0; None: the worker's
        #: coroutines) and ``first`` (its first row).
        self.facts: list[dict[str, Any]] = []
        last, thread = -1, 0
        for number, pair in enumerate(in_order.tolist()):
            if of_pair[pair] != last:
                last, thread = int(of_pair[pair]), 0
                self.workers.append(str(names[by_name[last]]))
                self.hosts.append(str(named.hosts[by_name[last]]))
            coroutines = thread_of_pair[pair] == 0
            self.facts.append(
                {
                    "worker": len(self.workers) - 1,
                    "thread": None if coroutines else thread,
                    "first": int(self.offsets[number]),
                }
            )
            thread += 1

    def busy_shares(self, starts: Array, durations: Array, span: float, bins: int) -> list[str]:
        """Return for each track the busy share of each part of the run, a digit from 0 to 9."""
        edges = np.linspace(0.0, span, bins + 1)
        shares = []
        for begin, end in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            busy = busy_until(edges, starts[begin:end], durations[begin:end])
            share = np.clip(np.diff(busy) / (span / bins or 1.0), 0.0, 1.0)
            tenths = np.ceil(share * 9).astype(np.uint8) + ord("0")
            shares.append(tenths.tobytes().decode("ascii"))
        return shares


def _unused(pairs: Array, most: int, threads: Array) -> Array:
    """Number the threads that each worker has beyond those of some pairs."""
    workers, codes = np.divmod(pairs, most)
    used = np.bincount(workers[codes > 0], minlength=len(threads))
    unused = np.maximum(threads - used, 0)
    worker = np.repeat(np.arange(len(threads)), unused)
    within = np.arange(len(worker)) - np.repeat(np.cumsum(unused) - unused, unused)
    numbers: Array = worker * most + most - 1 - within
    return numbers


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key that puts numbers in names in their order: 2 before 10."""
    parts = re.split(r"([0-9]{1,15})", str(name))
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def busy_until(times: Array, starts: Array, durations: Array) -> Array:
    """Sum the seconds that tasks, ordered by start, had run until each of some times."""
    ends = np.sort(starts + durations)
    order_sums = np.r_[0.0, np.cumsum(starts)]
    end_sums = np.r_[0.0, np.cumsum(ends)]
    begun = np.searchsorted(starts, times)
    ended = np.searchsorted(ends, times)
    # The sum of min(time, end) - start over the tasks that have begun.
    busy: Array = (begun - ended) * times + end_sums[ended] - order_sums[begun]
    return busy
