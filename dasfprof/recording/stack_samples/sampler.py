"""`sample`: looks at the stacks of a subject's threads, when a look is due, into a file.

Those times are drawn beforehand, and do not depend on when looks take place: a look that waits for
the interpreter's lock takes place where a line gives it up, and what came a fixed time after that
would mostly be the same next line. A look answers all times that were due until then: what kept
it waiting is the line that it finds, such as a call of C code that kept the lock.

One thread does so for all subjects of a process. Each look is due at a random time, and has three
stages. The sampler wakes some milliseconds before that. It may get the interpreter's lock late, and
where a thread gives it up by itself. Subjects say what their threads do: if there is nothing slow,
that is all. Else from then on the lock is passed on fast, and faster for the last moment
(`quicken`). When the look is due it wakes again, gets the lock wherever its holder is, and takes
all stacks before it gives the lock up.

Some threads are looked at each time, others rarely (`Pace`): each look stands for the time since
the last that would have been one of its kind, so that shares are right for both. Where nothing is
under way for some looks, there are no more until something begins (`rest`).

Twenty times a second, the code of a look is in no cache of the processor: it takes ten times as
long as it does in a loop. So there is little of it, in few functions.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep, thread_time, time
from typing import Any

from dasfprof.database.writer import Source, TraceWriter
from dasfprof.recording.dask_internals.inspection.stacks import current_frames
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import StackRows
from dasfprof.recording.stack_samples.kernel import (
    QUICK,
    QUICKEST,
    RESOLUTION,
    Kernel,
    put_back,
    quicken,
    wake_in_time,
)
from dasfprof.recording.stack_samples.schedule import REST, Schedule
from dasfprof.recording.stack_samples.subjects import Pace, Seen, Subject, Write
from dasfprof.schema.events import Schema

#: A thread that was looked at: its subject and that one's guard, what it did, and how often.
_Found = tuple[Subject, HookGuard, int, Any, Pace]
#: Looks after which the files of a thread that was not looked at are closed.
_FORGET_AFTER = 200
#: Seconds between the first stage of a look and the look: Python's own switch interval. A sampler
#: that waits for the lock with that one is the first in the row when C code gives the lock up, and
#: finds the line of it too often; one that waits with a short interval joins the row anew each
#: time, and the thread that gave the lock up may be before it. As long as this, the two balance: a
#: line of C code with 75 % of the time had 82 with 3 ms, 71 with 6 ms, and 57 with 15 ms. Dask's
#: own threads often get the lock before the sampler. Had they taken looks that were overdue, fewer
#: would have been wrong; but shares were no nearer, as the faults went in both directions.
_LEAD = 0.005
#: Seconds after which a sampler that should have woken must have waited for the lock, or a core.
_PROMPT = 0.0005
#: Seconds between the second stage and the look: more than it takes to get the lock in the first.
_LAST_MOMENT = 0.0006
#: Seconds that the end of sampling waits for the current look.
_LAST_LOOK = 2.0
#: Looks in a row that find nothing under way, after which the sampler rests.
_QUIET = 10


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
        #: Looks in a row that found nothing under way.
        self._quiet = 0
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
        REST.end()
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
            if self._quiet >= _QUIET:
                self._rest()
        self._kernel.close()

    def _rest(self) -> None:
        """Sleep while there is nothing to look at, if someone says when there is."""
        loops = {subject.loop for subject, _ in self.subjects}
        if len(loops) > 1 or None in loops or not REST.begin():
            return
        if self._going_on.locked() and not self._paces():
            REST.wait()
        REST.lasts, self._quiet = False, 0
        self.schedule.resume(monotonic())

    def _look(self) -> None:
        schedule = self.schedule
        due, is_rare = schedule.due, schedule.is_rare
        self._kernel.is_prompt = monotonic() < due - _LEAD + _PROMPT
        found = self._paces()
        self._quiet = 0 if found else self._quiet + 1
        paces = {pace for *_, pace in found}
        calm = Pace.ALWAYS not in paces and not (is_rare and Pace.RARELY in paces)
        if not calm:
            try:
                for interval, ahead in ((QUICK, _LAST_MOMENT), (QUICKEST, 0.0)):
                    quicken(interval)
                    pause = due - ahead - monotonic()
                    if pause > 0:  # else it is late, and has the lock
                        sleep(pause)
            finally:
                put_back()
            seen = self._stacks()
        else:
            seen = self._calm_stacks(found) if Pace.CALMLY in paces else []
        now = round(time() * RESOLUTION) / RESOLUTION
        intervals = schedule.answer(max(due, monotonic()))
        for each in seen:
            self._write(now, intervals, calm, *each)
        if schedule.number % _FORGET_AFTER == 0:
            self._kernel.forget(schedule.number - _FORGET_AFTER)
        schedule.go_on()

    def _paces(self) -> list[_Found]:
        """Return how the threads of all subjects have to be looked at when the look is due."""
        found = []
        for subject, guard in self.subjects:
            try:
                for thread, doing in subject.threads().items():
                    pace = subject.pace(thread, doing, self._kernel, _LEAD)
                    found.append((subject, guard, thread, doing, pace))
            except Exception:
                guard.caught("a look at stacks")
        return found

    def _calm_stacks(self, found: list[_Found]) -> list[tuple[_Found, Seen]]:
        """Return the stacks of those threads that wait, while this one has the lock."""
        stacks = []
        for each in found:
            subject, guard, thread, _, pace = each
            try:
                seen = self._stack(subject, thread) if pace is Pace.CALMLY else None
            except Exception:
                guard.caught("a look at stacks")
                continue
            if seen is not None:
                stacks.append((each, seen))
        return stacks

    def _stack(self, subject: Subject, thread: int) -> Seen | None:
        """Return the stack of a thread that waits: the last one, if it has not run since."""
        if self._kernel.has_rested(thread):
            return subject.stacks.last
        return subject.stacks.see(current_frames().get(thread))

    def _write(
        self, now: float, intervals: tuple[float, float], calm: bool, found: _Found, seen: Seen
    ) -> None:
        subject, guard, thread, doing, pace = found
        is_rare, schedule = pace is Pace.RARELY, self.schedule
        since = schedule.last_rare if is_rare else schedule.number - 1
        try:
            has_rested = calm and self._kernel.has_rested(thread)
            look = self._kernel.look(thread, doing, schedule.number, since, has_rested)
            subject.write(now, intervals[is_rare], doing, seen, look)
        except Exception:
            guard.caught("a sample of a stack")

    def _stacks(self) -> list[tuple[_Found, Seen]]:
        """Return the stacks of all threads that were in the same call before and after the look.

        Frames are let go at once: they keep the objects of their functions alive.
        """
        due = {Pace.ALWAYS, Pace.CALMLY, *((Pace.RARELY,) if self.schedule.is_rare else ())}
        found = []
        frames = None
        for subject, guard in self.subjects:
            try:
                threads = subject.threads()
                paces = {
                    thread: subject.pace(thread, doing, self._kernel)
                    for thread, doing in threads.items()
                }
                stacks = {}
                for thread in (thread for thread, pace in paces.items() if pace in due):
                    if frames is None:
                        frames = current_frames()
                    stacks[thread] = subject.stacks.see(frames.get(thread))
                after = subject.threads() if stacks else {}
            except Exception:
                guard.caught("a look at stacks")
                continue
            for thread, seen in stacks.items():
                doing = threads[thread]
                if seen is not None and after.get(thread) is doing:
                    found.append(((subject, guard, thread, doing, paces[thread]), seen))
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
        if subject.turns is not None:
            subject.turns.remove()
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
        REST.forget()


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


@dataclass(frozen=True)
class SampleFile:
    """Starts samplings whose rows go into one file."""

    writer: TraceWriter
    #: Fields with the same value in every event.
    constants: dict[str, Any]
    #: The file's stacks.
    stacks: StackRows
    guard: HookGuard
    #: Looks a second; 0: nothing is sampled.
    frequency: float

    def sample(
        self, schema: Schema, make: Callable[[StackRows, Write], Subject]
    ) -> Callable[[], object]:
        """Sample a subject from now on.

        Parameters
        ----------
        schema
            Of its rows.
        make
            Makes the subject, given the file's stacks and what takes its rows.

        Returns
        -------
        Callable
            Stops it.
        """
        if not self.frequency:
            return lambda: None
        source, writer = Source.of(schema, self.constants), self.writer
        writer.add_source(source)
        write = partial(writer.append, source)
        return sample(make(self.stacks, write), self.frequency, self.guard)
