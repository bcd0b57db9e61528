"""What processes of busy hosts used, by program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run, once_per_run

#: Seconds between two looks beyond which a row is damaged.
_LONGEST = 1e5
_PROGRAM = ["host", "name", "owner", "ours"]


@dataclass(frozen=True)
class HostPrograms:
    """The programs that were seen on hosts."""

    #: A row a program of a host, the most CPU first: ``host, name, owner, ours`` (the run's own),
    #: ``processes`` (how many), ``seconds`` (of CPU), ``cores`` (on average over the looks at the
    #: host), ``memory`` (the most at a time, of all its processes).
    programs: pd.DataFrame
    #: How many looks there were at each host.
    looks: dict[str, int]

    def others(self) -> tuple[str, pd.DataFrame] | None:
        """Return the host that others' programs used most, and these; None if nobody looked."""
        if not self.looks:
            return None
        others = self.programs[~self.programs["ours"].to_numpy(dtype=bool)]
        cores = {host: float(others["cores"][others["host"] == host].sum()) for host in self.looks}
        host = max(cores, key=lambda each: cores[each])
        return host, others[others["host"] == host]


@once_per_run
def host_programs(run: Run) -> HostPrograms:
    """Sum up what was seen of the processes of each host."""
    trace = run.trace
    intervals = trace.host_processes["interval"].to_numpy(dtype=float)
    table = trace.host_processes[(intervals > 0) & (intervals < _LONGEST)]
    hosts = trace.workers["host"].to_numpy(dtype=object)[table["worker_id"].to_numpy()]
    seen = pd.DataFrame(
        {
            "host": _texts(hosts),
            **{name: _texts(table[name]) for name in ("name", "owner")},
            "ours": table["ours"].to_numpy(dtype=bool),
            "pid": table["pid"].to_numpy(),
            "time": table["time"].to_numpy(dtype=float),
            "interval": table["interval"].to_numpy(dtype=float),
            "memory": table["memory"].to_numpy(dtype=float),
        }
    )
    cpu = np.nan_to_num(table["cpu"].to_numpy(dtype=float))
    seen["seconds"] = cpu / 100 * seen["interval"]
    looks = seen.drop_duplicates(["host", "time"]).groupby("host", sort=False)["interval"]
    at_a_time = seen.groupby([*_PROGRAM, "time"], sort=False)["memory"].sum(min_count=1)
    groups = seen.groupby(_PROGRAM, sort=False)
    programs = pd.DataFrame(
        {
            "processes": groups["pid"].nunique(),
            "seconds": groups["seconds"].sum(),
            "memory": at_a_time.groupby(level=_PROGRAM, sort=False).max(),
        }
    ).reset_index()
    programs["cores"] = programs["seconds"] / programs["host"].map(looks.sum()).astype(float)
    programs = programs.sort_values("seconds", ascending=False, kind="stable", ignore_index=True)
    return HostPrograms(programs, {str(host): int(n) for host, n in looks.count().items()})


def _texts(column: Any) -> list[str]:
    """Return texts that tables can be grouped by: without lone surrogates."""
    return [
        text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else "unknown"
        for text in column.tolist()
    ]
