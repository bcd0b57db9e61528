"""`OsThreads`: reads the state and the CPU time of this process's threads from the Linux kernel.

The file ``/proc/self/task/TID/schedstat`` contains the time that a thread spent on a CPU, and the
time for which it was runnable but waited for a CPU. ``/proc/self/task/TID/syscall`` contains the
thread's current system call with arguments. A thread that waits for the GIL waits at an address
within the interpreter. On other systems, the state and the times are unknown. `OsThreads` keeps the
files open, and reads them without releasing the GIL. Otherwise another thread would take the GIL
for its switch interval.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from dasfprof.system import PROC

#: Times are rounded to multiples of 1 / `RESOLUTION` seconds.
RESOLUTION = 1024
#: Maximum number of threads whose files are open at the same time.
_MOST = 256
#: Maximum number of bytes that are read from a file.
_LENGTH = 200
#: The number of the system call `futex`, or None on other processor architectures.
_FUTEX = {"x86_64": b"202", "aarch64": b"98"}.get(platform.machine())
#: Number of bytes from the start of the interpreter's state within which the GIL is located.
_EXTENT = 1 << 20


class ThreadState(NamedTuple):
    """The state of a thread at the time of a sample."""

    #: Python's identity of the thread.
    thread: int
    #: ``running``, ``lock`` (the thread waits for the GIL), ``waiting``, or None if unknown.
    activity: str | None
    #: Seconds since an earlier sample that the thread spent on a CPU, or None if unknown.
    cpu: float | None
    #: Seconds since an earlier sample that the thread waited for a CPU, or None if unknown.
    run_queue: float | None


class _Thread:
    """The open files of a thread, and its times at its last sample."""

    __slots__ = ("cpu", "doing", "run_queue", "sample", "schedstat", "syscall")

    def __init__(self, schedstat: int, syscall: int | None) -> None:
        self.schedstat, self.syscall = schedstat, syscall
        self.cpu = self.run_queue = 0
        #: The number of the thread's last sample, and the object that stood for its activity then.
        self.sample, self.doing = -1, None

    def close(self) -> None:
        os.close(self.schedstat)
        if self.syscall is not None:
            os.close(self.syscall)


class OsThreads:
    """Reads the state of this process's threads. Only one thread may use an instance."""

    def __init__(self) -> None:
        self._threads: dict[int, _Thread] = {}
        self._read = _reader()
        try:
            runtime = ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")
            self._interpreter: int | None = ctypes.addressof(runtime)
        except (ValueError, AttributeError):
            self._interpreter = None

    def state(self, ident: int, doing: Any, sample: int, since: int) -> ThreadState:
        """Return the state of a thread.

        Parameters
        ----------
        ident
            The identity of the thread.
        doing
            An object that stands for the current activity of the thread, such as a task's key.
        sample
            The number of this sample.
        since
            The number of an earlier sample. The times in the result count from that sample. They
            are None unless that was the last sample of the thread, and the activity was the same.
        """
        thread = self._threads.get(ident) or self._open(ident)
        if thread is None:
            return ThreadState(ident, None, None, None)
        words = (self._read(thread.schedstat) or b"").split()
        if len(words) < 3:  # The thread has ended.
            self._threads.pop(ident).close()
            return ThreadState(ident, None, None, None)
        cpu, run_queue = (int(word) * RESOLUTION // 1_000_000_000 for word in words[:2])
        # The text "0" means that the kernel does not count. The rounded `cpu` cannot be used for
        # this check, because it is also 0 for a thread that has only slept.
        counts = thread.sample == since and thread.doing is doing and words[0] != b"0"
        state = ThreadState(
            ident,
            self.activity(ident),
            (cpu - thread.cpu) / RESOLUTION if counts else None,
            (run_queue - thread.run_queue) / RESOLUTION if counts else None,
        )
        thread.cpu, thread.run_queue = cpu, run_queue
        thread.sample, thread.doing = sample, doing
        return state

    def activity(self, ident: int) -> str | None:
        """Return the current activity of a thread (see `ThreadState`), or None if unknown."""
        thread = self._threads.get(ident) or self._open(ident)
        if thread is None or thread.syscall is None:
            return None
        text = self._read(thread.syscall)
        if not text:
            return None
        if text.startswith(b"running"):
            return "running"
        if _FUTEX is None:  # A wait for the GIL cannot be distinguished from other waits.
            return None
        words = text.split(None, 2)
        if words[0] != _FUTEX or self._interpreter is None:
            return "waiting"
        is_interpreter = 0 <= int(words[1], 16) - self._interpreter < _EXTENT
        return "lock" if is_interpreter else "waiting"

    def forget(self, before: int) -> None:
        """Close the files of threads that were last sampled before the sample with this number."""
        for ident, thread in list(self._threads.items()):
            if thread.sample < before:
                self._threads.pop(ident).close()

    def close(self) -> None:
        """Close the files of all threads."""
        while self._threads:
            self._threads.popitem()[1].close()

    def _open(self, ident: int) -> _Thread | None:
        native = {thread.ident: thread.native_id for thread in threading.enumerate()}.get(ident)
        if ident == threading.main_thread().ident:
            native = os.getpid()  # After a fork, Python reports the parent's thread id.
        if native is None or len(self._threads) >= _MOST:
            return None
        schedstat = _open_file(native, "schedstat")
        if schedstat is None:
            return None
        thread = self._threads[ident] = _Thread(schedstat, _open_file(native, "syscall"))
        return thread


def _open_file(native: int, name: str) -> int | None:
    try:
        return os.open(f"{PROC}/self/task/{native}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _reader() -> Callable[[int], bytes | None]:
    """Return a function that reads a file, given its descriptor, or returns None."""
    try:
        pread = ctypes.PyDLL(None).pread  # Functions of a `PyDLL` keep the GIL.
    except (OSError, AttributeError, TypeError):
        return lambda _: None
    pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
    pread.restype = ctypes.c_ssize_t
    buffer = ctypes.create_string_buffer(_LENGTH)

    def read(descriptor: int) -> bytes | None:
        length = pread(descriptor, buffer, _LENGTH, 0)
        return buffer.raw[:length] if length > 0 else None

    return read
