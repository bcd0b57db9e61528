"""`AssumedCluster`: the workers for which a graph is estimated."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from os.path import isdir
from shutil import disk_usage

from dask.system import cpu_count
from dask.utils import parse_bytes

from dasfprof.errors import InvalidArgumentError


@dataclass(frozen=True)
class AssumedCluster:
    """Workers for which the cost of a graph is estimated.

    `threads` has the number of threads of each worker. `memory_limit` is the memory of each worker
    in bytes, or None if unknown.
    """

    threads: list[int]
    memory_limit: float | None
    #: Free bytes on the disk to which the current client's workers spill, or None if unknown.
    free_disk: int | None = None


def assumed_cluster(
    workers: int | Sequence[int] | None, memory_limit: int | float | str | None
) -> AssumedCluster:
    """Return the workers that the user gave or, by default, the workers of the current client."""
    threads, limit, free = _of_client()
    if isinstance(workers, int):
        each = threads[0] if threads else max(cpu_count() // max(workers, 1), 1)
        threads = [each] * workers
    elif workers is not None:
        threads = list(workers)
    threads = [cpu_count()] if workers is None and not threads else threads
    if not threads or not all(isinstance(number, int) and number > 0 for number in threads):
        raise InvalidArgumentError(
            f"workers={workers!r}: expected a number of workers, such as 4, or the threads of "
            "each, such as [2, 2, 2, 2]."
        )
    if memory_limit is not None:
        try:
            limit = float(parse_bytes(memory_limit))
        except (ValueError, TypeError):
            limit = nan
        if not 0 < limit < float("inf"):
            raise InvalidArgumentError(
                f"memory_limit={memory_limit!r}: expected a number of bytes, or a text such as "
                "'4 GiB'."
            )
    return AssumedCluster(threads, limit, free)


def _of_client() -> tuple[list[int], float | None, int | None]:
    """Return threads, memory limit and free disk space of the current client's workers.

    The threads are a list with the number of threads of each worker. The memory limit and the disk
    space are the lowest of any worker, in bytes, or None if unknown.
    """
    try:
        distributed = sys.modules["distributed"]
        client = distributed.default_client()
        threads = [] if client.asynchronous else [int(n) for n in client.nthreads().values()]
        workers = client.scheduler_info(n_workers=-1)["workers"].values() if threads else ()
        here = {"127.0.0.1", distributed.utils.get_ip()}
    except Exception:  # There is no client, or its scheduler does not answer.
        return [], None, None
    limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
    # Disk space is known only for workers on this host.
    places = [worker["local_directory"] for worker in workers if worker["host"] in here]
    free = [disk_usage(place).free for place in places if isdir(place)]
    return threads, min(limits, default=None), min(free, default=None)
