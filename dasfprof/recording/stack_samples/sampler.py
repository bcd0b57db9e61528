"""`sample`: looks at the stacks of a subject's threads, from now on until it is told to stop.

One thread does so for all subjects of a process. Each look is due at a random time, and has three
stages. The sampler wakes some milliseconds before that. It may get the interpreter's lock late, and
where a thread gives it up by itself; from then on the lock is passed on fast, and faster for the
last moment (`quicken`). When the look is due it wakes again, gets the lock wherever its holder is,
and takes all stacks before it gives the lock up.

Twenty times a second, the code of a look is in no cache of the processor: it takes ten times as
long as it does in a loop. So there is little of it, in few functions.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic, sleep, thread_time, time
from typing import Any

from dasfprof.recording.dask_internals.inspection.stacks import current_frames
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.stack_samples.kernel import RESOLUTION, Kernel, wake_in_time
from dasfprof.recording.stack_samples.schedule import Schedule
from dasfprof.recording.stack_samples.stacks import Seen
from dasfprof.recording.stack_samples.subjects import Subject
from dasfprof.recording.stack_samples.switching import QUICK, QUICKEST, put_back, quicken

#: Seconds between the first stage of a look and the look: more than a switch interval.
_LEAD = 0.006
#: Seconds between the second stage and the look: more than it takes to get the lock in the first.
_LAST_MOMENT = 0.0006
#: Seconds that the end of sampling waits for the current look.
_LAST_LOOK = 2.0


class Sampler:
    """The thread that looks. It ends with its last subject.

    Parameters
    ----------
    interval
        Seconds between two looks.
    """

    def __init__(self, interval: float) -> None:
        #: Replaced as a whole, as the thread reads it without a lock.
        self.subjects: tuple[tuple[Subject, HookGuard], ...] = ()
        self._kernel = Kernel()
        self.schedule = Schedule(interval, monotonic())
        #: Held until the thread has to end: a lock takes less to wait for than an event.
        self._going_on = threading.Lock()
        self._going_on.acquire()
        self._thread = threading.Thread(target=self._run, name="dasfprof-stacks", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._going_on.release()
        if self._thread is not threading.current_thread():
            self._thread.join(_LAST_LOOK)

    def _run(self) -> None:
        wake_in_time()
        schedule, spent = self.schedule, thread_time()
        while not self._going_on.acquire(timeout=max(0.0, schedule.due - _LEAD - monotonic())):
            try:
                self._look()
            except Exception:
                for _, guard in self.subjects[:1]:
                    guard.caught("a look at stacks")
            before, spent = spent, thread_time()
            schedule.took(spent - before)
        self._kernel.close()

    def _look(self) -> None:
        due = self.schedule.due
        try:
            for interval, ahead in ((QUICK, _LAST_MOMENT), (QUICKEST, 0.0)):
                quicken(interval)
                pause = due - ahead - monotonic()
                if pause > 0:  # else it is late, and has the lock
                    sleep(pause)
        finally:
            put_back()
        now = round(time() * RESOLUTION) / RESOLUTION
        interval = self.schedule.answer(monotonic())
        found = self._stacks()
        if found:
            looks = self._kernel.look([sample[2] for sample in found])
            for subject, guard, thread, doing, seen in found:
                try:
                    subject.write(now, interval, doing, seen, looks[thread])
                except Exception:
                    guard.caught("a sample of a stack")

    def _stacks(self) -> list[tuple[Subject, HookGuard, int, Any, Seen]]:
        """Return the stacks of all threads that were in the same call before and after the look.

        Frames are let go at once: they keep the objects of their functions alive.
        """
        found: list[tuple[Subject, HookGuard, int, Any, Seen]] = []
        frames = None
        for subject, guard in self.subjects:
            try:
                threads = subject.threads()
                if not threads:
                    continue
                if frames is None:
                    frames = current_frames()
                see = subject.stacks.see
                stacks = [see(frames.get(thread)) for thread in threads]
                after = subject.threads()
            except Exception:
                guard.caught("a look at stacks")
                continue
            for (thread, doing), seen in zip(threads.items(), stacks, strict=True):
                if seen is not None and after.get(thread) is doing:
                    found.append((subject, guard, thread, doing, seen))
        return found


class _Process:
    """The sampler of this process, while there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sampler: Sampler | None = None

    def add(self, subject: Subject, frequency: float, guard: HookGuard) -> Sampler:
        with self._lock:
            sampler = self._sampler
            if sampler is None:
                sampler = self._sampler = Sampler(1 / frequency)
                sampler.start()
            sampler.schedule.interval = min(sampler.schedule.interval, 1 / frequency)
            sampler.subjects = (*sampler.subjects, (subject, guard))
            return sampler

    def remove(self, subject: Subject, sampler: Sampler) -> None:
        with self._lock:
            if sampler is not self._sampler:  # of the parent of a forked process
                return
            sampler.subjects = tuple(each for each in sampler.subjects if each[0] is not subject)
            if not sampler.subjects:
                self._sampler = None
                sampler.stop()

    def forget(self) -> None:
        """Forget the parent's sampler in a forked child, which has no such thread."""
        self._lock, self._sampler = threading.Lock(), None


_process = _Process()


def sample(subject: Subject, frequency: float, guard: HookGuard) -> Callable[[], None]:
    """Sample a subject from now on.

    Parameters
    ----------
    subject
        What to look at.
    frequency
        Looks a second. Where the subjects of a process ask for different ones, all get the highest.
    guard
        Handles errors.

    Returns
    -------
    Callable
        Stops it. In a forked child, which has no such thread, it does nothing.
    """
    return partial(_process.remove, subject, _process.add(subject, frequency, guard))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forget)
