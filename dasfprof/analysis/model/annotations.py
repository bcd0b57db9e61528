"""`annotation_texts`: what Dask was asked of task runs: their priority, retries, resources."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array
from dasfprof.text import elide

#: The annotations that Dask knows; those of users may hold anything.
_OF_DASK = ("priority", "retries", "resources", "workers", "allow_other_workers")
_LONGEST = 200


def annotation_texts(trace: Run) -> tuple[Array, list[str]]:
    """Number the annotations of the rows of `Trace.tasks`.

    Returns
    -------
    codes, texts
        Row ``i`` has ``texts[codes[i]]``; the first text is empty: it has none, or none is known.
    """
    places, values = distinct_annotations(trace)
    texts = {"": 0}
    codes = [texts.setdefault(_text(value), len(texts)) for value in values]
    return np.array([*codes, 0], dtype=np.int64)[places], list(texts)


def distinct_annotations(trace: Run) -> tuple[Array, list[object]]:
    """Return the place of each row's annotations, -1 where none are recorded, and these."""
    if "annotations" not in trace.tasks:
        return np.full(len(trace.tasks), -1, dtype=np.int64), []
    values = trace.tasks["annotations"].to_numpy(dtype=object)
    # Equal annotations are mostly one object.
    _, first, places = np.unique(
        np.fromiter(map(id, values), dtype=np.int64, count=len(values)),
        return_index=True,
        return_inverse=True,
    )
    return places, [values[row] for row in first.tolist()]


def _text(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    parts = [f"{name} {_plain(value[name])}" for name in _OF_DASK if value.get(name) is not None]
    return elide(", ".join(parts), _LONGEST)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={amount}" for name, amount in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
