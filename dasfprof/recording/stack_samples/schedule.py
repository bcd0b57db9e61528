"""`Schedule`: when stacks are looked at, and for how long each look stands."""

from __future__ import annotations

import ctypes
import os
import random
import time
import weakref
from itertools import cycle
from typing import Any

from dasfprof.recording.dask_internals.patch import Patch
from dasfprof.recording.dask_internals.task_functions import has_actors, running_tasks
from dasfprof.recording.dask_internals.undocumented import on_turns, turn_interval
from dasfprof.recording.stack_samples.kernel import RESOLUTION

# --- Schedule: when stacks are looked at, and for how long each look stands -----------------------

#: The share of a core that looks may take; where they are dear, there are fewer.
SHARE = 0.005
#: Times between two looks, as parts of the mean one, in random order: a program's loop may have the
#: same length.
_PARTS = random.sample([0.5 + n / 100 for n in range(101)], 101)
#: Looks from one rare one to the next, in random order.
_BETWEEN = random.sample(range(8, 25), 17)
#: The part of the mean cost of looks that the last one has.
_WEIGHT = 0.1


class Schedule:
    """The times of looks, monotonic seconds.

    Parameters
    ----------
    interval
        The mean time between two looks, unless they are too dear.
    now
        The begin.
    """

    def __init__(self, interval: float, now: float) -> None:
        self.interval = interval
        self._cost = 0.0
        self._part = cycle(_PARTS)
        self._between = cycle(_BETWEEN)
        self._answered = self._answered_rarely = now
        #: When the next look is due.
        self.due = now + interval
        #: The numbers of this look, of the last rare one, and of the next.
        self.number = self.last_rare = 0
        self._next_rare = next(self._between)

    @property
    def is_rare(self) -> bool:
        """Whether threads are looked at now that rarely are."""
        return self.number == self._next_rare

    def answer(self, now: float) -> tuple[float, float]:
        """Return the seconds that a look stands for, for threads of each `Pace`, and go on.

        They are whole numbers of counts of `RESOLUTION`. The second is 0 unless the look is rare.
        """
        spacing = max(self.interval, self._cost / SHARE)
        due = self.due
        answered = due
        while due <= now:
            answered = due
            due += next(self._part) * spacing
        before, self._answered, self.due = self._answered, answered, due
        seconds, rare_seconds = _counts(before, answered), 0.0
        if self.is_rare:
            rare_seconds = _counts(self._answered_rarely, answered)
            self._answered_rarely = answered
        return seconds, rare_seconds

    def resume(self, now: float) -> None:
        """Go on after a rest, at any moment between two looks.

        The next stands for the time since the one before, as if that had taken place: what ends
        before the next look is then made up for by what does not.
        """
        # A moment lies rather within a long time between looks than within a short one.
        between = random.choices(_PARTS, _PARTS)[0] * max(self.interval, self._cost / SHARE)
        since_rare = self._answered - self._answered_rarely
        self.due = now + random.random() * between
        self._answered = self.due - between
        self._answered_rarely = self._answered - since_rare

    def go_on(self) -> None:
        """Number the next look."""
        if self.is_rare:
            self.last_rare = self.number
            self._next_rare += next(self._between)
        self.number += 1

    def took(self, seconds: float) -> None:
        """Take note of the CPU time of a look."""
        self._cost += _WEIGHT * (seconds - self._cost)


def _counts(before: float, after: float) -> float:
    return (round(after * RESOLUTION) - round(before * RESOLUTION)) / RESOLUTION


# --- REST: lets the sampler of this process sleep while nothing is under way ----------------------
#
# A look every 50 ms wakes a worker that does nothing twenty times a second. But the sampler must
# not miss the begin of a task, nor an event loop that stops turning, and those who see the first
# must not pay for it, and nobody sees the second. So a task that begins wakes it; and a timer of
# the kernel does, which each turn of the loop puts off without waking anybody.

#: Seconds without a turn, beyond what Dask's own clock of it takes, from which a loop is blocked.
BLOCKED = 0.05

_NANOSECONDS = 1_000_000_000


class _Timer:
    """A timer that can be put off without waking who waits for it: timerfd(2).

    Raises
    ------
    OSError
        If there is none here.
    """

    def __init__(self) -> None:
        try:
            functions = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock
            self._set = functions.timerfd_settime
            self._file = functions.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        except (AttributeError, TypeError) as error:
            raise OSError("no timerfd") from error
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "no timerfd")
        # Not before the last turn that might still set it.
        weakref.finalize(self, os.close, self._file)

    def set(self, seconds: float) -> None:
        """Let it end so many seconds from now, whatever was set before."""
        whole, part = divmod(round(seconds * _NANOSECONDS), _NANOSECONDS)
        # Seconds and nanoseconds of the interval, which is none, and until its end.
        self._set(self._file, 0, (ctypes.c_long * 4)(0, 0, whole, part), None)

    def wait(self) -> None:
        """Wait for its end."""
        os.read(self._file, 8)


class Rest:
    """The sleep of a sampler, in its own thread, and what ends it in others."""

    def __init__(self) -> None:
        #: Whether the sampler sleeps: then a task that begins has to `end` that.
        self.lasts = False
        self._seconds = BLOCKED + turn_interval()
        self._timer: _Timer | None = None

    def begin(self) -> bool:
        """Begin; return whether that is possible. Then look once more, and `wait`."""
        try:
            self._timer = self._timer or _Timer()
        except OSError:
            return False
        self.lasts = True
        self._timer.set(self._seconds)
        return True

    def wait(self) -> None:
        """Sleep until a task begins, or the loop has not turned for too long."""
        if self._timer is not None:
            self._timer.wait()

    def end(self) -> None:
        """End it now. A loop that just puts it off makes that its end, a moment later."""
        self.lasts = False
        if self._timer is not None:
            self._timer.set(1 / _NANOSECONDS)

    def forget(self) -> None:
        """Forget the parent's timer in a forked child: they would put off each other's."""
        self.lasts, self._timer = False, None

    def watch(self, server: Any) -> Patch | None:
        """Have the turns of a server's loop put the end off; None if this Dask has no such turns.

        To be removed at the end.
        """

        def turned() -> None:
            if self.lasts and self._timer is not None:
                if running_tasks(server) or has_actors(server):
                    self.end()
                else:
                    self._timer.set(self._seconds)

        return on_turns(server, turned)


#: That of the sampler of this process.
REST = Rest()
