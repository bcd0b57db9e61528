"""What functions read from storage and wrote to it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import known_texts, whole
from dasfprof.analysis.tables.questions import NO_PARTS, question
from dasfprof.database.columns import Array

#: What the protocol of local disks is called.
_DISK = "disk"


@question(
    "What functions read from storage and wrote to it",
    "balance",
    page="storage",
    expendable=("Unsized Calls", "Task Runs"),
    needs="storage",
    in_parts=NO_PARTS,
)
def storage(run: Run) -> pd.DataFrame:
    """Sum up what the threads of task runs read from storage and wrote to it, by function.

    Returns
    -------
    DataFrame
        A row a function and protocol, those with most seconds first, then those with most bytes:

        - ``Function``; ``Storage``: the protocol, as a file system of fsspec calls itself (s3, gs,
          https, ...); disk: the disks of the workers' hosts
        - ``Task Runs`` that moved anything
        - ``Reads``, ``Read (MB)``, ``Reading (s)``: calls of fsspec, the outermost of those within
          one another, their bytes, and the seconds of task threads in them; NA of disks, but for
          the bytes
        - ``Writes``, ``Written (MB)``, ``Writing (s)``
        - ``Unsized Calls``: whose bytes are unknown, and not among these: failed ones, and copies
          of directories

    Notes
    -----
    Bytes are those that fsspec handed over: a file that it has in its own cache counts nothing.
    The seconds lie within those of the tasks, and are their *Waiting for storage* but for what was
    computed in the calls. Left out is what other
    threads moved for a task, as Arrow's do, and file systems of Arrow itself: they tell nobody. Of
    disks the kernel counts what came from a block device or will be written to one: a file that is
    in its cache is read for nothing, and one that is written counts even if it is removed at once.
    It is asked after runs of a millisecond or more; what shorter ones moved in the 0.1 s before
    such a run, on its thread, may count as its own.
    """
    rows, (codes, names) = run.storage, run.keys.functions()
    keys = rows["key_id"].to_numpy(dtype=np.int64)
    function = [str(names[code]) for code in codes[keys].tolist()]
    protocol = known_texts(rows["protocol"])
    codes, pairs = pd.factorize(pd.Series(list(zip(function, protocol, strict=True)), dtype=object))
    groups = Groups(codes, len(pairs))
    on_disk = np.array([pair[1] == _DISK for pair in pairs], dtype=bool)

    def total(name: str, *, of_calls: bool = True) -> Array:
        sums = groups.sum(rows[name].to_numpy(dtype=float))
        return np.where(on_disk & of_calls, np.nan, sums)

    read, written = (total(name, of_calls=False) for name in ("read_size", "write_size"))
    seconds = total("reading") + total("writing")
    table = pd.DataFrame(
        {
            "Function": known_texts(pd.Series([pair[0] for pair in pairs], dtype=object)),
            "Storage": known_texts(pd.Series([pair[1] for pair in pairs], dtype=object)),
            "Task Runs": groups.sizes,
            "Reads": whole(total("reads")),
            "Read (MB)": read / 1e6,
            "Reading (s)": total("reading"),
            "Writes": whole(total("writes")),
            "Written (MB)": written / 1e6,
            "Writing (s)": total("writing"),
            "Unsized Calls": whole(total("unsized")),
        }
    )
    order = np.lexsort((-(read + written), -np.nan_to_num(seconds)))
    return table.take(order).reset_index(drop=True)
