"""Which programs used busy hosts, those of others too."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.host_processes import host_programs
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text, whole
from dasfprof.analysis.trace import Trace


def has_host_processes(trace: Trace) -> bool:
    """Return whether processes of a host were looked at."""
    return len(trace.host_processes) > 0


@question("Programs on busy hosts", "reports", needs=has_host_processes)
def host_processes(run: Run) -> pd.DataFrame:
    """List the programs that used much of a busy host, the run's own and others'.

    A host's processes are looked at every 5 s while its cores are busy for half of the time or
    more: those that one worker of the host can see. Of each the kernel's name (15 characters) and
    its owner are recorded, no command line.

    Returns
    -------
    DataFrame
        A row a program of a host, the most CPU first: ``Node``, ``Process`` (its name), ``Owner``,
        ``Whose`` (``run``: a process of the run, or what it started; ``other``), ``Processes``
        (how many), ``Cpu Seconds`` (in the time between looks), ``Cores`` (on average over it),
        ``Memory Used (MB)`` (resident; the most at a look), ``Looks`` (at the host).
    """
    found = host_programs(run)
    table = found.programs
    looks = np.array([found.looks[host] for host in table["host"]], dtype=float)
    whose = np.where(table["ours"].to_numpy(dtype=bool), "run", "other").astype(object)
    return pd.DataFrame(
        {
            "Node": text(table["host"].to_numpy(dtype=object)),
            "Process": text(table["name"].to_numpy(dtype=object)),
            "Owner": text(table["owner"].to_numpy(dtype=object)),
            "Whose": text(whose),
            "Processes": table["processes"].to_numpy(dtype=np.int64),
            "Cpu Seconds": table["seconds"].to_numpy(dtype=float),
            "Cores": table["cores"].to_numpy(dtype=float),
            "Memory Used (MB)": table["memory"].to_numpy(dtype=float) / 1e6,
            "Looks": whole(looks),
        }
    )
