"""What a client's program is busy with, found in the frames of its main thread."""

from __future__ import annotations

from itertools import islice
from types import FrameType
from typing import Any

#: Phases by module and function of Dask; those of whole modules, by their first words.
_FUNCTIONS = {
    ("distributed.utils", "sync"): "waiting",
    ("distributed.utils", "wait"): "waiting",  # within sync
    ("distributed.client", "__next__"): "waiting",  # of as_completed
    ("distributed.protocol.pickle", "dumps"): "pickling",
    ("distributed.client", "_graph_to_futures"): "sending",
}
_MODULES = (
    ("cloudpickle", "pickling"),
    ("dask.tokenize", "hashing"),
    ("dask.optimization", "optimising"),
    ("dask.array.optimization", "optimising"),
    ("dask.dataframe.optimize", "optimising"),
)
#: Functions of any module of Dask that optimise, by their first words.
_OPTIMISING = ("optimize", "simplify", "lower_", "fuse")

PROGRAM, BUILDING = "program", "building"
#: The most of a client's futures that are looked through, the latest first.
_MOST_FUTURES = 100


def has_pending(client: Any) -> bool:
    """Return whether the cluster has something to do for a client, as its latest futures tell."""
    try:
        latest = islice(reversed(client.futures.values()), _MOST_FUTURES)
        return any(future.status == "pending" for future in latest)
    except RuntimeError:  # they change meanwhile
        return True


def phase(frames: list[FrameType]) -> str:
    """Return the phase that the innermost call of Dask tells, see the schema's `CLIENT_SAMPLE`."""
    for frame in reversed(frames):
        module = frame.f_globals.get("__name__")
        found = _phase_of(module, frame.f_code.co_name) if isinstance(module, str) else None
        if found is not None:
            return found
    return PROGRAM


def _phase_of(module: str, function: str) -> str | None:
    known = _FUNCTIONS.get((module, function))
    if known is not None:
        return known
    for begin, phase in _MODULES:
        if module.startswith(begin):
            return phase
    if module.partition(".")[0] not in ("dask", "distributed"):
        return None
    return "optimising" if function.startswith(_OPTIMISING) else BUILDING
