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
    if "annotations" not in trace.tasks:
        return np.zeros(len(trace.tasks), dtype=np.int64), [""]
    values = trace.tasks["annotations"].to_numpy(dtype=object)
    # Equal annotations are mostly one object.
    _, first, places = np.unique(
        np.fromiter(map(id, values), dtype=np.int64, count=len(values)),
        return_index=True,
        return_inverse=True,
    )
    texts = {"": 0}
    codes = [texts.setdefault(_text(values[row]), len(texts)) for row in first.tolist()]
    return np.array(codes, dtype=np.int64)[places], list(texts)


def _text(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    parts = [f"{name} {_plain(value[name])}" for name in _OF_DASK if value.get(name) is not None]
    return elide(", ".join(parts), _LONGEST)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={amount}" for name, amount in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
