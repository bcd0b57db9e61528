"""`quicken` and `put_back`: for a moment the interpreter's lock is passed on fast.

A thread that wants the lock gets it where another thread gives it up: in a call that waits, or
when the holder is asked to, after the switch interval (5 ms). So a sampler would mostly see the
lines that give it up by themselves. With an interval that is short against the time between two
samples, it gets the lock wherever the holder is. What is left of it shifts a look to what the
holder does next, so it is short against the lines as well; but only just before the look, as the
threads of the program take turns that fast, too.

The interval is the process's. If the program has set another in the meantime, that one stays. The
child of a fork gets its parent's back.
"""

from __future__ import annotations

import os
from sys import getswitchinterval, setswitchinterval

#: Seconds, some time before a look and just before it; numbers that no program sets, so that a
#: program which reads the interval in between and sets it again later is noticed.
QUICK, QUICKEST = 0.000197, 0.000013
#: Half a microsecond: Python cuts off what is less than a whole one.
_ROUNDING = 5e-7


class _Program:
    """The program's own interval: also while `QUICK` is set, or if it was found and set again."""

    interval = 0.0


def quicken(interval: float = QUICK) -> None:
    """Set `QUICK` or `QUICKEST`, if the program's switch interval is longer."""
    found = getswitchinterval()
    if not _is_ours(found):
        _Program.interval = found
    if _Program.interval > interval:
        setswitchinterval(interval + _ROUNDING)


def put_back() -> None:
    """Set the program's own interval again, unless it has set another."""
    if _Program.interval and _is_ours(getswitchinterval()):
        setswitchinterval(_Program.interval + _ROUNDING)


def _is_ours(interval: float) -> bool:
    return abs(interval - QUICK) < _ROUNDING or abs(interval - QUICKEST) < _ROUNDING


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=put_back)
