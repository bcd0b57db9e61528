"""`Schedule`: when stacks are looked at, and for how long each look stands."""

from __future__ import annotations

import random
from itertools import cycle

from dasfprof.recording.stack_samples.kernel import RESOLUTION

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
