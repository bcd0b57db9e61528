"""Frisky, a scheduler for Dask that takes no plugins: what can be told of it, and its own record.

It runs by itself (`frisky.Client`), or in the processes of a cluster of Dask's (`frisky.hijack`).
Its scheduler and workers are compiled, so nothing of dasfprof can be in them. It records spans of
its own, which `frisky.query_spans` documents: name, begin and end in Unix nanoseconds, keys of
tasks, worker. They become events in the run's files, as those of user code are.
"""

from __future__ import annotations

import importlib
import logging
import socket
import sys
from typing import Any

from dasfprof.database import FileDatabase
from dasfprof.schema.events import CompleteEvent

logger = logging.getLogger(__name__)

PACKAGE = "frisky"

TAKEN_OVER = (
    "run %r: Frisky has taken over this cluster (frisky.hijack), and tasks that go to its "
    "scheduler are not recorded, as that takes no plugins; processes, hosts and what goes to "
    "Dask's own scheduler are: run the program without frisky.hijack to record its tasks, or pass "
    "Frisky's client to dasfprof.profile() for its own record."
)
NATIVE = (
    "run %r: Frisky's scheduler takes no plugins, so that there are no task runs and workers, only "
    "what this process does and the spans that Frisky records itself, as events: run the program "
    "with a distributed.Client to record its tasks."
)

#: Spans that are read at most, the latest, and those that are of no work.
_MOST = 200_000
_IDLE = "worker.idle"
#: Where spans of the program itself are from.
_CLIENT = "client"


def is_frisky(client: object) -> bool:
    """Return whether an object is of Frisky, as its client is."""
    return type(client).__module__.partition(".")[0] == PACKAGE


def is_imported() -> bool:
    """Return whether this process may use Frisky."""
    return PACKAGE in sys.modules


def has_taken_over(dask_scheduler: Any) -> bool:
    """Return whether Frisky runs beside a scheduler of Dask. Runs there."""
    return any(is_frisky(plugin) for plugin in list(dask_scheduler.plugins.values()))


def write_spans(database: FileDatabase, client: Any, since: float, until: float) -> int:
    """Write what Frisky recorded of a time as events; return how many.

    Parameters
    ----------
    database
        Gets them.
    client
        Of Frisky.
    since, until
        Unix seconds.

    Raises
    ------
    Exception
        Whatever Frisky raises, as where its dashboard does not answer.
    """
    frisky = importlib.import_module(PACKAGE)
    spans = frisky.query_spans(
        start_ns=int(since * 1e9),
        end_ns=int(until * 1e9),
        limit=_MOST,
        dashboard_url=client.dashboard_link,
    )
    host, number = socket.gethostname(), 0
    for span in sorted(spans, key=lambda span: span["start_ns"]):
        name = str(span["name"])
        if name == _IDLE:
            continue
        begin, end = span["start_ns"] / 1e9, span["end_ns"] / 1e9
        where = _CLIENT if name.startswith(f"{_CLIENT}.") else str(span.get("worker") or PACKAGE)
        args = {"keys": [str(key) for key in span.get("keys") or ()]}
        database.record(
            CompleteEvent(
                name, begin, max(end - begin, 0.0), process_id=host, thread_id=where, args=args
            )
        )
        number += 1
    if len(spans) >= _MOST:
        logger.warning("Frisky recorded more: its last %s spans are in the trace", f"{_MOST:,}")
    return number
