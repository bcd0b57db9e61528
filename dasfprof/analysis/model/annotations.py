"""`annotation_texts`: what Dask was asked of task runs: their priority, retries, resources."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.text import elide

#: The annotations that Dask knows; those of users may hold anything.
_OF_DASK = ("priority", "retries", "resources", "workers", "allow_other_workers")
_LONGEST = 200


def annotation_texts(trace: Trace) -> tuple[Array, list[str]]:
    """Number the annotations of the rows of `Trace.tasks`.

    Returns
    -------
    codes, texts
        Row ``i`` has ``texts[codes[i]]``; the first text is empty: it has none, or none is known.
    """
    texts = {"": 0}
    if "annotations" not in trace.tasks:
        return np.zeros(len(trace.tasks), dtype=np.int64), [""]
    # Equal annotations are mostly one object.
    known: dict[int, int] = {}
    codes = np.empty(len(trace.tasks), dtype=np.int64)
    for row, value in enumerate(trace.tasks["annotations"].tolist()):
        code = known.get(id(value))
        if code is None:
            code = known[id(value)] = texts.setdefault(_text(value), len(texts))
        codes[row] = code
    return codes, list(texts)


def _text(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    parts = [f"{name} {_plain(value[name])}" for name in _OF_DASK if value.get(name) is not None]
    return elide(", ".join(parts), _LONGEST)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={amount}" for name, amount in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
