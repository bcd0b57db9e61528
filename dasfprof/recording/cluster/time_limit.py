"""`within`: waits for a call for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def within(limit: float, call: Coroutine[Any, Any, Any]) -> Any:
    """Wait for a call no longer than the limit, even if it ignores its cancellation.

    Raises
    ------
    asyncio.TimeoutError
        If the call takes longer.
    """
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    finally:
        if not task.done():
            task.add_done_callback(_ignore_outcome)
            task.cancel()
    if not done:
        raise asyncio.TimeoutError(f"no answer in {limit:g} s")
    return task.result()


def _ignore_outcome(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a call that nothing awaits, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
