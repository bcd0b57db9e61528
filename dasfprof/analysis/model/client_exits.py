"""When clients left, as the scheduler's states tell."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.under_way import RecordingEnd

#: The client that Dask lets hold the tasks of `fire_and_forget`.
FIRE_AND_FORGET = "fire-and-forget"
#: The ids of clients that tasks use begin so.
_OF_TASKS = "Client-worker-"
#: Seconds within which a client leaves that has given up what it waited for.
_AT_ONCE = 3.0


def is_persons(client: object) -> bool:
    """Return whether a client is that of a program, not one that Dask or a task made."""
    return client != FIRE_AND_FORGET and not str(client).startswith(_OF_TASKS)


def last_client_left(trace: Trace) -> float:
    """Return when the last client of a program left; NaN if one stayed, or nothing tells."""
    states = trace.scheduler_states
    for place in range(len(states) - 1, -1, -1):
        row = states.iloc[place]
        left = row.get("client") if row["occasion"] == "client-left" else None
        there = {client["client"] for client in row["clients"] or ()} - {left}
        if any(map(is_persons, there)):
            break
        if left and is_persons(left):
            return float(row["time"])
    return float("nan")


def left_with_work(states: pd.DataFrame) -> float:
    """Return when a client last left whose tasks had not ended; NaN if none did."""
    rows = states.to_dict("records")
    for place in range(len(rows) - 1, -1, -1):
        row = rows[place]
        if row["occasion"] != "client-left" or not row["unfinished"] > 0:
            continue
        waiting = {client["client"] for client in row["clients"] or () if client.get("unfinished")}
        staying = {
            client["client"] for later in rows[place + 1 :] for client in later["clients"] or ()
        }
        if not waiting or waiting - staying - {FIRE_AND_FORGET}:
            return float(row["time"])
    return float("nan")


def clients_stayed(trace: Trace, gave_up: float) -> bool:
    """Return whether no client left as work was given up, or later, while that was recorded."""
    states = trace.scheduler_states
    if not len(states) or trace.recording is not RecordingEnd.CLOSED:
        return False
    left = states["time"][(states["occasion"] == "client-left").to_numpy(dtype=bool)]
    return not (left >= gave_up - _AT_ONCE).any()
