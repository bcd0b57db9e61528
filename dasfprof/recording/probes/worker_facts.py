"""The facts about a worker in the headers of its files."""

from __future__ import annotations

import socket
from typing import Any

from dasfprof.recording.dask_internals.worker_state import memory_sizes


def worker_facts(worker: Any) -> dict[str, Any]:
    """Return a worker's facts for the headers of its files, with the label used in events."""
    host = socket.gethostname()
    return {
        "id": worker.id,
        "name": worker.name,
        "address": worker.address,
        "label": f"worker-{host}-{worker.name}",
        "nthreads": worker.state.nthreads,
        **memory_sizes(worker),
    }
