"""`Kernel`: what the kernel says of threads at each look of the sampler, and since the last one.

Linux counts for each thread its time on a core, and the time that it was runnable without one, in
``/proc/self/task/TID/schedstat``; ``/proc/self/task/TID/syscall`` has the call in which it is, with
its arguments. A thread that waits for the interpreter's lock waits for an address within the
interpreter. Files stay open from look to look, and are read without giving up the interpreter's
lock: another thread would take it, and keep it for its switch interval.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import threading
from collections.abc import Callable
from typing import NamedTuple

#: Counts of a second to which seconds are rounded.
RESOLUTION = 1024
#: Looks after which the files of a thread that no subject asks for are closed.
_FORGET_AFTER = 200
#: The most threads whose files are open.
_MOST = 256
_LENGTH = 200
#: The number of the system call `futex`, and within how many bytes of its begin the interpreter
#: has its lock.
_FUTEX = {"x86_64": b"202", "aarch64": b"98"}.get(platform.machine())
_EXTENT = 1 << 20
#: Of prctl(2).
_SET_TIMER_SLACK = 29


class Look(NamedTuple):
    """What is known of a thread."""

    #: Its identity.
    thread: int
    #: ``running``, ``lock``, ``waiting``; None: unknown.
    activity: str | None
    #: Seconds on a core, and runnable without one, since the last look; None: unknown.
    cpu: float | None
    run_queue: float | None


class _Thread:
    """The open files of a thread, and what they said."""

    __slots__ = ("cpu", "looked", "run_queue", "schedstat", "syscall", "wanted")

    def __init__(self, schedstat: int, syscall: int | None) -> None:
        self.schedstat, self.syscall = schedstat, syscall
        self.cpu = self.run_queue = 0
        #: Numbers of the look at which it was last read, and last asked for.
        self.looked = self.wanted = -1

    def close(self) -> None:
        os.close(self.schedstat)
        if self.syscall is not None:
            os.close(self.syscall)


class Kernel:
    """Reads the files of threads. Used by one thread."""

    def __init__(self) -> None:
        self._threads: dict[int, _Thread] = {}
        self._number = 0
        self._read = _reader()
        self._interpreter = _address_of_interpreter()

    def look(self, wanted: list[int]) -> dict[int, Look]:
        """Look at threads, given by their identities."""
        self._number += 1
        looks = {}
        for ident in wanted:
            thread = self._threads.get(ident) or self._open(ident)
            if thread is not None:
                thread.wanted = self._number
        for ident, thread in list(self._threads.items()):
            before, run_queue_before, is_next = thread.cpu, thread.run_queue, self._advance(thread)
            if is_next is None:
                self._threads.pop(ident).close()
            elif thread.wanted == self._number:
                looks[ident] = Look(
                    ident,
                    self._activity(thread),
                    (thread.cpu - before) / RESOLUTION if is_next else None,
                    (thread.run_queue - run_queue_before) / RESOLUTION if is_next else None,
                )
        return {
            ident: looks[ident] if ident in looks else Look(ident, None, None, None)
            for ident in wanted
        }

    def _advance(self, thread: _Thread) -> bool | None:
        """Read a thread's times; return whether it had been read at the last look.

        None if the thread has ended, or nobody has asked for it for long.
        """
        words = (self._read(thread.schedstat) or b"").split()
        if len(words) < 2 or self._number - thread.wanted > _FORGET_AFTER:
            return None
        thread.cpu = int(words[0]) * RESOLUTION // 1_000_000_000
        thread.run_queue = int(words[1]) * RESOLUTION // 1_000_000_000
        is_next = thread.looked == self._number - 1
        thread.looked = self._number
        return is_next and thread.cpu > 0  # 0: the kernel does not count

    def close(self) -> None:
        """Close all files."""
        while self._threads:
            self._threads.popitem()[1].close()

    def _open(self, ident: int) -> _Thread | None:
        native = {thread.ident: thread.native_id for thread in threading.enumerate()}.get(ident)
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
    interpreter's lock is waited for, as the lines of other threads go on.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # on other systems
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)


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
