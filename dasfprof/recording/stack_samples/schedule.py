"""`Schedule`: when looks are due, and the time that each stands for.

Those times are drawn beforehand, and do not depend on when looks take place: a look that waits for
the interpreter's lock takes place where a line gives it up, and what came a fixed time after that
would mostly be the same next line. A look answers all times that were due until then: what kept
it waiting is the line that it finds, such as a call of C code that kept the lock.
"""

from __future__ import annotations

import random
from itertools import cycle

from dasfprof.recording.stack_samples.kernel import RESOLUTION

#: The share of a core that looks may take; where they are dear, there are fewer.
SHARE = 0.005
#: Times between two looks, as parts of the mean one, in random order: a program's loop may have the
#: same length.
_PARTS = random.sample([0.5 + n / 100 for n in range(101)], 101)
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
        self._answered = now
        #: When the next look is due.
        self.due = now + interval

    def answer(self, now: float) -> float:
        """Return the seconds that a look stands for: a whole number of counts of `RESOLUTION`."""
        spacing = max(self.interval, self._cost / SHARE)
        due = self.due
        answered = due
        while due <= now:
            answered = due
            due += next(self._part) * spacing
        before, self._answered, self.due = self._answered, answered, due
        return (round(answered * RESOLUTION) - round(before * RESOLUTION)) / RESOLUTION

    def took(self, seconds: float) -> None:
        """Take note of the CPU time of a look."""
        self._cost += _WEIGHT * (seconds - self._cost)
