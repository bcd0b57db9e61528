"""`Cause`: why work does not end, and how certain that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: certain: the evidence proves it. likely: it fits, and little else does. open: what is seen, which
#: a healthy run may show as well.
Certainty = Literal["certain", "likely", "open"]

CERTAINTIES: tuple[Certainty, ...] = ("certain", "likely", "open")


@dataclass(frozen=True)
class Cause:
    """One reason for which tasks do not end."""

    #: A name that stays, such as ``lock-cycle``.
    kind: str
    certainty: Certainty
    #: One plain sentence that names the cause.
    text: str
    #: The facts: tasks, seconds, lines.
    evidence: str
    #: What to do.
    suggestion: str
    #: The tasks that the cause itself holds up, the first ones by key.
    keys: tuple[str, ...] = ()
    #: Number of unfinished tasks that wait for it.
    waiting: int = 0
    function: str | None = None
    worker: str | None = None
    #: The user's line that waits or runs, as ``file:line function``.
    line: str | None = None
    #: Seconds for which it has been so, or at least for which its tasks have been under way; None:
    #: unknown.
    seconds: float | None = None
