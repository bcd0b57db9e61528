"""`FollowedFile`: reads a trace file while it is being written, each part of it once."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from dasfprof.database import frames, values
from dasfprof.database.block_codec import Batch, decode_block
from dasfprof.database.frames import inflate
from dasfprof.database.reader import TraceFile
from dasfprof.database.writing_process import boot_id
from dasfprof.errors import TraceError

#: Bytes that are read at a time; more where a frame is longer.
_PIECE = 1 << 24
#: No frame of a plugin, of 5000 events by default, is as long.
_LONGEST = 1 << 28

#: A msgpack map of more than three entries: kind, phase, and a name of less than 32 ASCII letters.
_NAME = re.compile(
    rb"[\x84-\x8f]\xa4kind\xa6events\xa5phase\xa1[XIBE]\xa4name[\xa1-\xbf]([ -~]+?)\xa4rows"
)

#: The args to decode of each kind of event, by its name; other kinds are passed over.
Wanted = Mapping[str, Collection[str]]


class FollowedFile:
    """A trace file that grows.

    A frame that is not whole yet is read when it is. What is damaged is passed over: the analysis
    of the whole run tells of it.

    Parameters
    ----------
    path
        The file. It may be missing or empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: The header's map; empty until it was read.
        self.header: dict[str, Any] = {}
        #: Whether the closing frame was read.
        self.closed = False
        #: Whether its writer went on in another segment.
        self.continues = False
        #: When the last frame that was read was made, by the clock of its host.
        self.clock: float | None = None
        #: When it last grew, by this process's monotonic clock.
        self.grew = time.monotonic()
        #: Bytes that were read.
        self.position = 0
        self._inode = 0

    def now(self) -> float:
        """Return the time, in Unix seconds, by the clock of the host that writes the file."""
        if self.clock is None or self.header.get("boot_id") == _this_boot():
            return time.time()
        return self.clock + time.monotonic() - self.grew

    def read_header(self) -> dict[str, Any]:
        """Return the header if it is there by now; read nothing else."""
        if not self.header:
            with suppress(OSError, TraceError):
                self.header = TraceFile(self.path).read_header()
        return self.header

    def read(self, wanted: Wanted) -> Iterator[Batch]:
        """Yield what was appended since the last call.

        Parameters
        ----------
        wanted
            The args of each kind of event that a caller needs.
        """
        try:
            facts = os.stat(self.path)
            if facts.st_ino != self._inode or facts.st_size < self.position:
                # The writer begins a new file where the old one was removed.
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
            begin, found = self.position, False
            for place, payload in frames.scan_frames(data, frames.Damage()):
                found = True
                self.position = begin + place + frames.HEAD_BYTES + len(payload)
                batch = self._take(payload, wanted)
                if batch is not None:
                    yield batch
            if found:
                length = _PIECE
            elif begin + len(data) < size:
                length *= 2
            else:
                # No frame ends here yet. What is longer than any that plugins write is damage.
                self.position = max(self.position, size - _LONGEST)
                return

    def _take(self, payload: memoryview, wanted: Wanted) -> Batch | None:
        try:
            plain = inflate(payload)
            if _name_at_begin(plain) not in (None, *wanted):
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
                there = block["args"]
                chosen = {name: there[name] for name in args if name in there}
                return decode_block({**block, "args": chosen}, len(plain))
        except values.DAMAGE_ERRORS:
            pass
        return None


def _name_at_begin(plain: bytes | memoryview) -> str | None:
    """Return the name of the events of a payload, if it is where our writer puts it.

    Most blocks are of kinds that nobody wants here, and unpacking them takes most of the time.
    """
    found = _NAME.match(plain)
    return None if found is None else found[1].decode("ascii", "replace")


_this_boot = cache(boot_id)
