"""`Kernel`: what the kernel says of threads, and how fast their lock is passed on.

Linux counts for each thread its time on a core, and the time that it was runnable without one, in
``/proc/self/task/TID/schedstat``; ``/proc/self/task/TID/syscall`` has the call in which it is, with
its arguments. A thread that waits for the interpreter's lock waits for an address within the
interpreter. Files stay open from look to look, and are read without giving up the interpreter's
lock: another thread would take it, and keep it for its switch interval.

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

import contextlib
import ctypes
import os
import platform
import struct
import threading
from collections.abc import Callable
from sys import getswitchinterval, setswitchinterval
from typing import Any, NamedTuple

#: Counts of a second to which seconds are rounded.
RESOLUTION = 1024
#: The most threads whose files are open.
_MOST = 256
_LENGTH = 200
#: Of a thread's schedstat.
_NUMBERS = 3
#: The number of the system call `futex`, and within how many bytes of its begin the interpreter
#: has its lock.
_FUTEX = {"x86_64": b"202", "aarch64": b"98"}.get(platform.machine())
_EXTENT = 1 << 20
#: Of prctl(2).
_SET_TIMER_SLACK = 29
#: The number of the system call `sched_setattr`, its first structure, and nanoseconds of a slice,
#: which a thread may have for itself since Linux 6.12.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")
_SLICE = 100_000


class Look(NamedTuple):
    """What is known of a thread."""

    #: Its identity.
    thread: int
    #: ``running``, ``lock``, ``waiting``; None: unknown.
    activity: str | None
    #: Seconds on a core, and runnable without one, since an earlier look; None: unknown.
    cpu: float | None
    run_queue: float | None


class _Thread:
    """The open files of a thread, and what they said."""

    __slots__ = (
        *("activity", "cpu", "doing", "has_rested", "looked"),
        *("run_queue", "schedstat", "slices", "syscall"),
    )

    def __init__(self, schedstat: int, syscall: int | None) -> None:
        self.schedstat, self.syscall = schedstat, syscall
        self.cpu = self.run_queue = 0
        #: How often it had got a core, and what it did then.
        self.slices = b""
        self.activity: str | None = None
        #: Whether it waited then, and had not run since, as its activity was last asked for.
        self.has_rested = False
        #: The number of its last look, and what it did then.
        self.looked, self.doing = -1, None

    def close(self) -> None:
        os.close(self.schedstat)
        if self.syscall is not None:
            os.close(self.syscall)


class Kernel:
    """Reads the files of threads. Used by one thread."""

    def __init__(self) -> None:
        #: Whether the calling thread got the interpreter's lock as soon as it wanted it.
        self.is_prompt = True
        self._threads: dict[int, _Thread] = {}
        self._read = _reader()
        self._interpreter = _address_of_interpreter()

    def look(
        self, ident: int, doing: Any, number: int, since: int, has_rested: bool = False
    ) -> Look:
        """Look at a thread, given by its identity.

        Parameters
        ----------
        ident, doing
            The thread, and what it does: an object.
        number, since
            Of this look, and of the one from which seconds are counted. They are unknown if the
            thread was not looked at then, or did something else.
        has_rested
            Whether it is known to have waited since its last look.
        """
        thread = self._thread(ident)
        if has_rested and thread is not None:
            rested = 0.0 if thread.looked == since and thread.doing is doing else None
            thread.looked, thread.doing = number, doing
            return Look(ident, thread.activity, rested, rested)
        words = self._times(ident, thread)
        if thread is None or words is None:
            return Look(ident, None, None, None)
        cpu, run_queue = (int(word) * RESOLUTION // 1_000_000_000 for word in words[:2])
        # 0: the kernel does not count. A thread that has only slept has less than the resolution.
        counts = thread.looked == since and thread.doing is doing and words[0] != b"0"
        before = thread.cpu, thread.run_queue
        activity = self._activity(thread)
        thread.cpu, thread.run_queue, thread.slices = cpu, run_queue, words[-1]
        thread.looked, thread.doing, thread.activity = number, doing, activity
        return Look(
            ident,
            activity,
            (cpu - before[0]) / RESOLUTION if counts else None,
            (run_queue - before[1]) / RESOLUTION if counts else None,
        )

    def has_rested(self, ident: int) -> bool:
        """Return whether a thread, just asked for its activity, has waited since its last look."""
        thread = self._threads.get(ident)
        return thread is not None and thread.has_rested

    def activity(self, ident: int) -> str | None:
        """Return what a thread does at this instant, see `Look`."""
        thread = self._thread(ident)
        words = self._times(ident, thread)
        if thread is None or words is None:
            return None
        is_same = words[-1] == thread.slices != b"0"  # 0: the kernel does not count
        thread.has_rested = is_same and thread.activity == "waiting"
        return "waiting" if thread.has_rested else self._activity(thread)

    def forget(self, before: int) -> None:
        """Close the files of threads whose last look has a lower number."""
        for ident, thread in list(self._threads.items()):
            if thread.looked < before:
                self._threads.pop(ident).close()

    def _times(self, ident: int, thread: _Thread | None) -> list[bytes] | None:
        """Return the numbers of a thread's schedstat; None if it has ended or there is no file."""
        if thread is None:
            return None
        words = (self._read(thread.schedstat) or b"").split()
        if len(words) >= _NUMBERS:
            return words
        self._threads.pop(ident).close()
        return None

    def _thread(self, ident: int) -> _Thread | None:
        return self._threads.get(ident) or self._open(ident)

    def close(self) -> None:
        """Close all files."""
        while self._threads:
            self._threads.popitem()[1].close()

    def _open(self, ident: int) -> _Thread | None:
        native = {thread.ident: thread.native_id for thread in threading.enumerate()}.get(ident)
        if ident == threading.main_thread().ident:
            native = os.getpid()  # after a fork Python says that of the parent's
        if native is None or len(self._threads) >= _MOST:
            return None
        schedstat = _open_file(native, "schedstat")
        if schedstat is None:
            return None
        thread = self._threads[ident] = _Thread(schedstat, _open_file(native, "syscall"))
        return thread

    def _activity(self, thread: _Thread) -> str | None:
        text = self._read(thread.syscall) if thread.syscall is not None else None
        if not text:
            return None
        if text.startswith(b"running"):
            return "running"
        words = text.split(None, 2)
        if _FUTEX is None:  # any wait may be that for the lock
            return None
        if words[0] == _FUTEX and self._interpreter is not None:
            place = int(words[1], 16) - self._interpreter
            if 0 <= place < _EXTENT:
                return "lock"
        return "waiting"


def wake_in_time() -> None:
    """Have the waits of the calling thread end when they are due, where the kernel can.

    It may put off the timers of a thread by 50 us if nothing else is said: too long where the
    interpreter's lock is waited for, as the lines of other threads go on. And it may let a thread
    that wakes wait for the slice of another, 3 ms and more, unless its own is shorter.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # on other systems
        kernel = ctypes.CDLL(None)
        kernel.prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)
        if _SCHED_SETATTR is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            wanted = (_SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, _SLICE, 0, 0)
            kernel.syscall(_SCHED_SETATTR, 0, _SCHED_ATTR.pack(*wanted), 0)


def _open_file(native: int, name: str) -> int | None:
    try:
        return os.open(f"/proc/self/task/{native}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _reader() -> Callable[[int], bytes | None]:
    """Return a function that reads a file by its descriptor; None if it cannot be read."""
    try:
        pread = ctypes.PyDLL(None).pread  # keeps the interpreter's lock
    except (OSError, AttributeError):
        return lambda _: None
    pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
    pread.restype = ctypes.c_ssize_t
    buffer = ctypes.create_string_buffer(_LENGTH)

    def read(descriptor: int) -> bytes | None:
        length = pread(descriptor, buffer, _LENGTH, 0)
        return buffer.raw[:length] if length > 0 else None

    return read


def _address_of_interpreter() -> int | None:
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    except (ValueError, AttributeError):
        return None


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
