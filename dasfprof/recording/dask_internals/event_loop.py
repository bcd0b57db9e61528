"""When the event loop of a worker or scheduler last turned, by Dask's own clock of it."""

from __future__ import annotations

from typing import Any

import dask
from dask.utils import parse_timedelta


def last_turn(server: Any) -> float | None:
    """Return when the loop last turned, Unix seconds; None if this Dask does not tell."""
    turned: float | None = getattr(server, "_last_tick", None)
    return turned


def turn_interval() -> float:
    """Return after how many seconds at most a loop that is free has turned again."""
    return float(parse_timedelta(dask.config.get("distributed.admin.tick.interval"), default="ms"))
