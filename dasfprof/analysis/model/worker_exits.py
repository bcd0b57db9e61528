"""How the process of a worker ended, in words."""

from __future__ import annotations

import signal

import numpy as np

from dasfprof.analysis.trace import Trace
from dasfprof.text import clean

#: Signals of which one cause is the usual one.
_USUAL = {
    "SIGKILL": "often by the kernel as memory ran out, or by a batch system",
    "SIGSEGV": "most often a crash in a C library",
    "SIGBUS": "often a crash in a C library, or a full /dev/shm",
    "SIGILL": "often code for another CPU",
    "SIGFPE": "most often a crash in a C library",
    "SIGABRT": "most often a C library that gave up",
}
#: Signals by which people and programs end a process.
_REQUESTS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def exit_words(trace: Trace, life: int) -> str:
    """Say how the process of a life of a worker ended; empty where nothing tells."""
    row = trace.workers.iloc[life]
    if not np.isfinite(row["exit_code"]):
        return ""
    code = int(row["exit_code"])
    if isinstance(row["exit_reason"], str):
        return f"ended by its nanny: {clean(row['exit_reason']).rstrip('. ')}"
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # not of this system
        return f"killed by signal {-code}"
    usual = f" ({_USUAL[name]})" if name in _USUAL else ""
    return f"killed by {name}{usual}"


def crashed(trace: Trace, life: int) -> bool:
    """Return whether the process of a worker is known to have been killed, by no one's request."""
    code = float(trace.workers["exit_code"].iloc[life])
    return code < 0 and -code not in _REQUESTS
