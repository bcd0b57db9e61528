"""The sizes of memory at which a worker acts, as the headers of its files tell them."""

from __future__ import annotations

#: What each size is of, by its name in a header: bytes, 0 if there is none. `Trace.workers` has
#: columns of these names, NaN where there is none or nothing tells.
MEMORY_SIZES = {
    "memory_limit": "that it may take",
    "memory_target": "of results, from which on it writes some to disk",
    "memory_spill": "of its process, from which on it writes results to disk",
    "memory_pause": "of its process, from which on it begins no task",
}
