"""The thread that samples the stacks of this process. `sample` adds a subject to sample.

One thread samples all subjects of a process, such as the threads of a worker's tasks. The thread
sleeps until the next sample is due, reads the stacks of the threads to sample, and writes them.

The sampler needs the GIL. It gets the GIL when another thread releases it in a call that waits, or
after the interpreter's switch interval (5 ms). Therefore, part of the time of Python lines is
attributed to the following line that releases the GIL or calls C code that keeps the GIL. This
error is at most 5 ms per call.

The times of samples are random. A sample may be late, for example because a call of C code kept the
GIL. A late sample represents all samples that were due until then, and contains the line of this
call.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from functools import partial
from itertools import cycle
from time import monotonic, thread_time, time
from typing import Any

from dasfprof.database.writer import Source
from dasfprof.recording.dask_internals.inspection.stacks import current_frames
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import FileRows
from dasfprof.recording.stack_samples.os_threads import RESOLUTION, OsThreads
from dasfprof.recording.stack_samples.sampled_threads import SamplingMode, Seen, Subject, Write
from dasfprof.schema.events import Schema

#: Maximum fraction of a core that sampling may take. If samples are expensive, there are fewer of
#: them.
BUDGET = 0.005
#: Times between two samples as multiples of their mean, in random order. They vary because a loop
#: of the program may take as long as the mean.
_SPACINGS = random.sample([0.5 + n / 100 for n in range(101)], 101)
#: Numbers of samples from one rare sample to the next, in random order.
_BETWEEN_RARE = random.sample(range(8, 25), 17)
#: The weight of the last sample in the moving average of the cost of samples.
_WEIGHT = 0.1
#: Threshold (number of samples in a row without a working thread) from which the process counts as
#: idle, and factor by which the time between samples of an idle process is longer.
_QUIET, _IDLE_FACTOR = 10, 4
#: Number of samples after which the files of a thread are closed if none of them included it.
_FORGET_AFTER = 200
#: Maximum seconds to wait for the last sample when sampling ends.
_LAST_SAMPLE = 2.0


class Schedule:
    """Determines when samples are due, and how much time each sample represents.

    All times are seconds on the monotonic clock.

    Parameters
    ----------
    interval
        The mean time between two samples. If samples are too expensive, the mean time is longer.
    now
        The time when sampling starts.
    """

    def __init__(self, interval: float, now: float) -> None:
        self.interval = interval
        self._cost = 0.0
        self._spacing = cycle(_SPACINGS)
        self._between_rare = cycle(_BETWEEN_RARE)
        self._answered = self._answered_rarely = now
        #: Time when the next sample is due.
        self.due = now + interval
        #: Number of samples in a row without a working thread.
        self.quiet = 0
        #: The number of this sample (`number`), of the last rare sample (`last_rare`), and of the
        #: next rare sample (`_next_rare`).
        self.number = self.last_rare = 0
        self._next_rare = next(self._between_rare)

    @property
    def is_rare(self) -> bool:
        """Whether this sample includes threads that are sampled rarely."""
        return self.number == self._next_rare

    def answer(self, now: float) -> tuple[float, float]:
        """Schedule the next sample, and return how many seconds the current sample represents.

        The first number applies to threads that are included in every sample. The second number
        applies to threads that are sampled rarely: the time since the last rare sample. It is 0 if
        the current sample is not rare.
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
        """Increase the number of the current sample by one."""
        if self.is_rare:
            self.last_rare = self.number
            # The sample that ends is a rare one.
            self._next_rare += next(self._between_rare)
        self.number += 1

    def took(self, seconds: float) -> None:
        """Update the average cost of samples with the CPU seconds of the last sample."""
        self._cost += _WEIGHT * (seconds - self._cost)


def _rounded(before: float, after: float) -> float:
    return (round(after * RESOLUTION) - round(before * RESOLUTION)) / RESOLUTION


class Sampler:
    """The sampling thread of a process. It ends when its last subject is removed.

    Parameters
    ----------
    interval
        Mean time (seconds) between two samples.
    """

    def __init__(self, interval: float) -> None:
        #: The sampled subjects. Changes replace the tuple, because the thread reads it without a
        #: lock.
        self.subjects: tuple[tuple[Subject, HookGuard], ...] = ()
        self.schedule = Schedule(interval, monotonic())
        self._os_threads = OsThreads()
        #: A lock that is released when the thread has to end. Waiting for a lock costs less than
        #: waiting for an event.
        self._running = threading.Lock()
        self._running.acquire()
        #: The thread. The creator of this object must start it.
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
        """Return the stacks of the threads that have to be sampled now."""
        sampled = {SamplingMode.ALWAYS}
        if self.schedule.is_rare:
            sampled.add(SamplingMode.RARELY)
        # Frames are released when this method returns, because a frame keeps the local objects of
        # its function alive.
        stacks, frames = [], None
        self.schedule.quiet += 1
        for subject, guard in self.subjects:
            with guard.catching("a sample of stacks"):
                threads = subject.threads()
                if threads:
                    self.schedule.quiet = 0
                modes = {thread: subject.mode(doing) for thread, doing in threads.items()}
                wanted = [thread for thread, mode in modes.items() if mode in sampled]
                if wanted and frames is None:
                    frames = current_frames()
                seen = subject.read(wanted, frames) if frames is not None else {}
                after = subject.threads() if seen else {}
                for thread, stack in seen.items():
                    doing = threads[thread]
                    # If not, the thread's activity changed while the stacks were read.
                    if after.get(thread) is doing:
                        stacks.append((subject, guard, thread, doing, modes[thread], stack))
        return stacks


class _ProcessSampler:
    """Holder of this process's only `Sampler`, which exists while there are subjects to sample."""

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
        """Drop the parent's sampler in a forked child, because the child has no sampling thread."""
        self._lock, self._sampler = threading.Lock(), None


_process = _ProcessSampler()


def sample(subject: Subject, frequency: float, guard: HookGuard) -> Callable[[], None]:
    """Sample a subject from now on.

    Parameters
    ----------
    frequency
        Samples per second. If the subjects of a process have different rates, all are sampled at
        the highest rate.

    Returns
    -------
    Callable
        A function that stops sampling the subject. It does nothing in a forked child, because the
        child has no sampling thread.
    """
    return partial(_process.remove, subject, _process.add(subject, frequency, guard))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forget)


def sample_into(
    rows: FileRows, frequency: float, schema: Schema, make: Callable[[FileRows, Write], Subject]
) -> Callable[[], object]:
    """Sample a subject from now on, and write the samples to a trace file.

    Parameters
    ----------
    rows
        Writes the stacks of the file.
    frequency
        Samples per second. 0 turns sampling off.
    schema
        The schema of the subject's rows.
    make
        A function that creates the subject. Its arguments are `rows` and a function that writes the
        subject's rows.

    Returns
    -------
    Callable
        A function that stops sampling the subject.
    """
    if not frequency:
        return lambda: None
    write = rows.writer.appender(Source.from_schema(schema, rows.constants))
    return sample(make(rows, write), frequency, rows.guard)
