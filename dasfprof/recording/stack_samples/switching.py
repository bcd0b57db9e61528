"""`quicken` and `put_back`: for a moment the interpreter's lock is passed on fast.

A thread that wants the lock gets it where another thread gives it up: in a call that waits, or
when the holder is asked to, after the switch interval (5 ms). So a sampler would mostly see the
lines that give it up by themselves. With an interval that is short against the time between two
samples, it gets the lock wherever the holder is.

The interval is the process's. If the program has set another in the meantime, that one stays. The
child of a fork gets its parent's back.
"""

from __future__ import annotations

import os
from sys import getswitchinterval, setswitchinterval

#: Seconds; a number that no program sets, so that a program which reads the interval in between
#: and sets it again later is noticed.
QUICK = 0.000197
_LEAST, _MOST = QUICK - 5e-7, QUICK + 5e-7


class _Program:
    """The program's own interval: also while `QUICK` is set, or if it was found and set again."""

    interval = 0.0


def quicken() -> None:
    """Set a short switch interval, if the program's is longer."""
    found = getswitchinterval()
    if not _LEAST < found < _MOST:
        _Program.interval = found
    if _Program.interval > QUICK:
        setswitchinterval(QUICK)


def put_back() -> None:
    """Set the program's own interval again, unless it has set another."""
    if _Program.interval and _LEAST < getswitchinterval() < _MOST:
        setswitchinterval(_Program.interval)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=put_back)
