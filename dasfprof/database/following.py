"""`FollowedFile`: reads a trace file that a process is writing. Each part is read only once."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from dasfprof.database import frames, values
from dasfprof.database.blocks import Batch, decode_block
from dasfprof.database.frames import inflate
from dasfprof.database.reader import TraceFile
from dasfprof.errors import TraceError
from dasfprof.system import PROC


class Writer(str, Enum):
    """Whether a process is still writing a file that has no closing frame."""

    ALIVE = "still being written"
    """The process is running and may write more."""
    ENDED = "ended without closing"
    """The process has ended. How is not known."""
    UNKNOWN = "still being written on another host, or ended without closing"
    """It ran on another host or in another container, or the header does not contain it."""


def process_facts() -> dict[str, Any]:
    """Return the facts that identify this process among the processes of all hosts."""
    pid = os.getpid()
    facts = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": pid}
    return {**facts, "pid_namespace": _pid_namespace(), "process_started": _started(pid)}


def writer_of(header: dict[str, Any]) -> Writer:
    """Return whether the process that wrote a file is still running, from the file's header."""
    pid, started = header.get("pid"), header.get("process_started")
    if type(pid) is not int or pid <= 0 or header.get("boot_id") != boot_id():
        return Writer.UNKNOWN
    # Another container may use the same process ids.
    if started is None or header.get("pid_namespace") != _pid_namespace():
        return Writer.UNKNOWN
    return Writer.ALIVE if _started(pid) == started else Writer.ENDED


@cache
def boot_id() -> str:
    """Return an id that changes when the host is booted. Processes with equal ids share a clock."""
    try:
        return Path(PROC, "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _pid_namespace() -> str:
    try:
        return os.readlink(f"{PROC}/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> float | None:
    """Return the start time of a process, or None if the process is not running.

    The unit is clock ticks since boot on Linux, and Unix seconds elsewhere.
    """
    try:
        # The process name is in parentheses and may contain any characters.
        state, *fields = Path(PROC, str(pid), "stat").read_text().rpartition(")")[2].split()
        # Changes of the wall clock do not affect ticks since boot.
        return None if state in "ZX" else float(fields[18])
    except (OSError, ValueError, IndexError):
        pass
    if Path(PROC, "self/stat").exists():
        return None
    import psutil  # takes 10 ms, and only systems without /proc need it

    try:
        return psutil.Process(pid).create_time()
    except (psutil.Error, OverflowError):
        return None


#: Number of bytes that are read at a time. If a frame is longer, more bytes are read.
_PIECE = 1 << 24
#: Maximum length of a frame that a plugin writes. By default, it contains up to 5000 events.
_LONGEST = 1 << 28

#: Pattern of the start of a payload with events, as dasfprof writes it: kind, phase, and a name of
#: fewer than 32 ASCII characters.
_NAME = re.compile(
    rb"[\x84-\x8f]\xa4kind\xa6events\xa5phase\xa1[XIBE]\xa4name[\xa1-\xbf]([ -~]+?)\xa4rows"
)

#: For each kind of event to read, by its name: the args to decode. Other kinds are skipped.
Wanted = Mapping[str, Collection[str]]


class FollowedFile:
    """A growing trace file, which may still be missing or empty.

    Incomplete frames are not read yet, and damaged parts are skipped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Map of the header, or an empty map if the header was not read yet.
        self.header: dict[str, Any] = {}
        #: Whether the closing frame was read.
        self.closed = False
        #: Whether the closing frame says that the process continued in another segment.
        self.continues = False
        #: Time when the last frame that was read was created, by the clock of the writing host.
        self.clock: float | None = None
        #: Time when the file was last found to have grown, by this process's monotonic clock.
        self.grew = time.monotonic()
        #: Number of bytes that were read.
        self.position = 0
        self._inode = 0

    def now(self) -> float:
        """Return the time, in Unix seconds, by the clock of the host that writes the file."""
        if self.clock is None or self.header.get("boot_id") == boot_id():
            return time.time()
        return self.clock + time.monotonic() - self.grew

    def read_header(self) -> dict[str, Any]:
        """Read only the header, and return it. Return an empty map if it does not exist yet."""
        if not self.header:
            with suppress(OSError, TraceError):
                self.header = TraceFile(self.path).read_header()
        return self.header

    def read(self, wanted: Wanted) -> Iterator[Batch]:
        """Yield batches of the events that were appended to the file since the last call.

        `wanted` has the kinds of events to read, each with the names of the args to decode.
        """
        try:
            facts = os.stat(self.path)
            if facts.st_ino != self._inode or facts.st_size < self.position:
                # The file was removed or truncated, and the writer has started again.
                self._inode, self.position = facts.st_ino, 0
            if facts.st_size == self.position:
                return
            self.grew = time.monotonic()
            with self.path.open("rb") as file:
                yield from self._read_from(file, facts.st_size, wanted)
        except OSError:
            return

    def _read_from(self, file: Any, size: int, wanted: Wanted) -> Iterator[Batch]:
        length = _PIECE
        while self.position < size:
            file.seek(self.position)
            data = file.read(min(length, size - self.position))
            begin, has_frame = self.position, False
            for offset, payload in frames.scan_frames(data, frames.Damage()):
                has_frame = True
                self.position = begin + offset + frames.HEAD_BYTES + len(payload)
                batch = self._decode(payload, wanted)
                if batch is not None:
                    yield batch
            if has_frame:
                length = _PIECE
            elif begin + len(data) < size:
                length *= 2
            else:
                # The remaining bytes are an incomplete frame. If they are longer than any frame of
                # a plugin, they are damaged.
                self.position = max(self.position, size - _LONGEST)
                return

    def _decode(self, payload: memoryview, wanted: Wanted) -> Batch | None:
        """Return the events of a frame, or None if it contains no events of a wanted kind."""
        try:
            plain = inflate(payload)
            # Check the kind before unpacking, because unpacking takes most of the time, and most
            # blocks contain kinds that are not needed.
            name = _NAME.match(plain)
            if name is not None and name[1].decode("ascii", "replace") not in wanted:
                return None
            block = values.unpack(plain)
            if not isinstance(block, dict):
                return None
            clock = block.get("clock")
            if isinstance(clock, list) and clock and isinstance(clock[0], float):
                self.clock = clock[0]
            kind, args = block.get("kind"), wanted.get(str(block.get("name")))
            if kind == "header":
                self.header = self.header or block
            elif kind == "end":
                self.closed, self.continues = True, block.get("continues") is True
            elif kind == "events" and args is not None:
                selected = {name: block["args"][name] for name in args if name in block["args"]}
                return decode_block({**block, "args": selected}, len(plain))
        except values.DAMAGE_ERRORS:
            pass
        return None
