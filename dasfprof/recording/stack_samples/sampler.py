"""The thread that samples the stacks of this process: `sample` starts it for a subject.

One thread samples all subjects of a process, such as the threads of a worker's tasks. It sleeps
until the next sample is due, reads the stacks of all slow threads, and writes them.

A sampler needs the GIL. It gets the GIL when a thread releases it in a call that waits, or after
the interpreter's switch interval (5 ms). So a line that releases the GIL, and C code that keeps it,
are assigned part of the time of the Python lines before them, up to 5 ms per call.

The times of samples are random. A late sample represents all samples that were due until then, for
example while a call of C code kept the GIL. It finds the line of this call.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from time import monotonic, thread_time, time
from typing import Any

from dasfprof.database.writer import Source, TraceWriter
from dasfprof.recording.dask_internals.inspection.stacks import current_frames
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import StackRows
from dasfprof.recording.stack_samples.os_threads import RESOLUTION, OsThreads
from dasfprof.recording.stack_samples.sampled_threads import SamplingMode, Seen, Subject, Write
from dasfprof.schema.events import Schema

#: Maximum fraction of a core that sampling may take. Where samples are expensive, there are fewer.
BUDGET = 0.005
#: Times between two samples as multiples of their mean, in random order, because a loop of the
#: program may take as long as the mean.
_SPACINGS = random.sample([0.5 + n / 100 for n in range(101)], 101)
#: Samples from one rare one to the next, in random order.
_BETWEEN_RARE = random.sample(range(8, 25), 17)
#: The weight of the last sample in the mean cost of samples.
_WEIGHT = 0.1
#: Threshold (samples in a row without a working thread): the process is idle. Factor by which the
#: time between samples is longer then.
_QUIET, _IDLE_FACTOR = 10, 4
#: Number of samples after which the files of a thread that was not sampled are closed.
_FORGET_AFTER = 200
#: Timeout (seconds) of the wait for the last sample when sampling ends.
_LAST_SAMPLE = 2.0


class Schedule:
    """The times of samples (monotonic seconds), and the time that each represents.

    Parameters
    ----------
    interval
        The mean time between two samples, unless they are too expensive.
    now
        The start.
    """

    def __init__(self, interval: float, now: float) -> None:
        self.interval = interval
        self._cost = 0.0
        self._spacing = cycle(_SPACINGS)
        self._between_rare = cycle(_BETWEEN_RARE)
        self._answered = self._answered_rarely = now
        #: When the next sample is due.
        self.due = now + interval
        #: Number of samples in a row without a working thread.
        self.quiet = 0
        #: The numbers of this sample, of the last rare one, and of the next.
        self.number = self.last_rare = 0
        self._next_rare = next(self._between_rare)

    @property
    def is_rare(self) -> bool:
        """Whether this sample includes threads that are sampled rarely."""
        return self.number == self._next_rare

    def answer(self, now: float) -> tuple[float, float]:
        """Return the seconds that a sample and a rare sample represent, and set the next time.

        They are multiples of 1 / `RESOLUTION`. The second is 0 unless the sample is rare.
        """
        mean = max(self.interval, self._cost / BUDGET)
        if self.quiet >= _QUIET:
            mean *= _IDLE_FACTOR
        answered = due = self.due
        while due <= now:
            answered = due
            due += next(self._spacing) * mean
        before, self._answered, self.due = self._answered, answered, due
        seconds, rare_seconds = _rounded(before, answered), 0.0
        if self.is_rare:
            rare_seconds = _rounded(self._answered_rarely, answered)
            self._answered_rarely = answered
        return seconds, rare_seconds

    def go_on(self) -> None:
        """Number the next sample."""
        if self.is_rare:
            self.last_rare = self.number
            self._next_rare += next(self._between_rare)
        self.number += 1

    def took(self, seconds: float) -> None:
        """Record the CPU time of a sample."""
        self._cost += _WEIGHT * (seconds - self._cost)


def _rounded(before: float, after: float) -> float:
    return (round(after * RESOLUTION) - round(before * RESOLUTION)) / RESOLUTION


class Sampler:
    """The sampling thread. It ends with its last subject.

    Parameters
    ----------
    interval
        Mean time (seconds) between two samples.
    """

    def __init__(self, interval: float) -> None:
        #: Replaced as a whole, as the thread reads it without a lock.
        self.subjects: tuple[tuple[Subject, HookGuard], ...] = ()
        self.schedule = Schedule(interval, monotonic())
        self._os_threads = OsThreads()
        #: Held until the thread has to end. Waiting for a lock costs less than for an event.
        self._running = threading.Lock()
        self._running.acquire()
        #: Started by the creator.
        self.thread = threading.Thread(target=self._run, name="dasfprof-stacks", daemon=True)

    def stop(self) -> None:
        """Stop sampling."""
        self._running.release()
        if self.thread is not threading.current_thread():
            self.thread.join(_LAST_SAMPLE)

    def _run(self) -> None:
        schedule, spent = self.schedule, thread_time()
        while not self._running.acquire(timeout=max(0.0, schedule.due - monotonic())):
            try:
                self._sample()
            except Exception:
                for _, guard in self.subjects[:1]:
                    guard.caught("a sample of stacks")
            before, spent = spent, thread_time()
            schedule.took(spent - before)
        self._os_threads.close()

    def _sample(self) -> None:
        schedule = self.schedule
        stacks = self._stacks()
        now = round(time() * RESOLUTION) / RESOLUTION
        intervals = schedule.answer(max(schedule.due, monotonic()))
        for subject, guard, thread, doing, mode, seen in stacks:
            is_rare = mode is SamplingMode.RARELY
            since = schedule.last_rare if is_rare else schedule.number - 1
            with guard.catching("a sample of a stack"):
                state = self._os_threads.state(thread, doing, schedule.number, since)
                subject.write(now, intervals[is_rare], doing, seen, state)
        if schedule.number % _FORGET_AFTER == 0:
            self._os_threads.forget(schedule.number - _FORGET_AFTER)
        schedule.go_on()

    def _stacks(self) -> list[tuple[Subject, HookGuard, int, Any, SamplingMode, Seen]]:
        """Return the stacks of the threads that have to be sampled now.

        Threads whose activity changed meanwhile are left out. Frames are released immediately,
        because they keep the objects of their functions alive.
        """
        sampled = {SamplingMode.ALWAYS}
        if self.schedule.is_rare:
            sampled.add(SamplingMode.RARELY)
        stacks, frames = [], None
        self.schedule.quiet += 1
        for subject, guard in self.subjects:
            with guard.catching("a sample of stacks"):
                threads = subject.threads()
                if threads:
                    self.schedule.quiet = 0
                modes = {
                    thread: subject.mode(thread, doing, self._os_threads)
                    for thread, doing in threads.items()
                }
                wanted = [thread for thread, mode in modes.items() if mode in sampled]
                if wanted and frames is None:
                    frames = current_frames()
                seen = subject.read(wanted, frames) if frames is not None else {}
                after = subject.threads() if seen else {}
                for thread, stack in seen.items():
                    doing = threads[thread]
                    if after.get(thread) is doing:
                        stacks.append((subject, guard, thread, doing, modes[thread], stack))
        return stacks


class _ProcessSampler:
    """The sampler of this process, while there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sampler: Sampler | None = None

    def add(self, subject: Subject, frequency: float, guard: HookGuard) -> Sampler:
        with self._lock:
            sampler = self._sampler
            if sampler is None:
                sampler = self._sampler = Sampler(1 / frequency)
                sampler.thread.start()
            sampler.schedule.interval = min(sampler.schedule.interval, 1 / frequency)
            sampler.subjects = (*sampler.subjects, (subject, guard))
            return sampler

    def remove(self, subject: Subject, sampler: Sampler) -> None:
        with self._lock:
            if sampler is not self._sampler:  # It belongs to the parent of a forked process.
                return
            sampler.subjects = tuple(each for each in sampler.subjects if each[0] is not subject)
            if not sampler.subjects:
                self._sampler = None
                sampler.stop()

    def forget(self) -> None:
        """Remove the parent's sampler in a forked child, which has no such thread."""
        self._lock, self._sampler = threading.Lock(), None


_process = _ProcessSampler()


def sample(subject: Subject, frequency: float, guard: HookGuard) -> Callable[[], None]:
    """Sample a subject from now on.

    Parameters
    ----------
    subject
        What to sample.
    frequency
        Samples per second. Where the subjects of a process have different rates, all get the
        highest.
    guard
        Handles errors.

    Returns
    -------
    Callable
        Stops sampling. It does nothing in a forked child, which has no such thread.
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
    #: Samples per second. If it is 0, nothing is sampled.
    frequency: float

    def sample(
        self, schema: Schema, make: Callable[[StackRows, Write], Subject]
    ) -> Callable[[], object]:
        """Sample a subject from now on.

        Parameters
        ----------
        schema
            The schema of its rows.
        make
            Returns the subject, given the file's stacks and the function that takes its rows.

        Returns
        -------
        Callable
            Stops sampling.
        """
        if not self.frequency:
            return lambda: None
        source, writer = Source.from_schema(schema, self.constants), self.writer
        writer.add_source(source)
        write = partial(writer.append, source)
        return sample(make(self.stacks, write), self.frequency, self.guard)
