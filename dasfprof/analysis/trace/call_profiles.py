"""The profiles of calls that workers wrote beside their trace files: which there are, and where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd


def call_profiles(events: pd.DataFrame, directories: Mapping[int, Path]) -> pd.DataFrame:
    """Return the last event of each worker and function, with the path of the file.

    Parameters
    ----------
    events
        All events.
    directories
        Of the files of each worker.
    """
    last = events.drop_duplicates(["worker_id", "name"], keep="last").reset_index(drop=True)
    files = zip(last.pop("file").astype(object), last["worker_id"].tolist(), strict=True)
    paths = [
        # Else it leads to another place than that of the trace.
        str(directories[worker] / name)
        if isinstance(name, str) and worker in directories and Path(name).name == name
        else None
        for name, worker in files
    ]
    return last.assign(path=pd.Series(paths, dtype=object))
