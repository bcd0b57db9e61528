"""`StackReader`: the numbers of threads' stacks, with as little work as possible for known ones."""

from __future__ import annotations

from collections.abc import Callable
from opcode import opmap
from types import CodeType, FrameType

from dasfprof.recording.dask_internals.inspection.stacks import stack_of
from dasfprof.recording.notes.rows import UNKNOWN_STACK, StackRows

#: The most frames that are walked through; a deeper stack is unknown.
_DEEPEST = range(5000)
#: The most stacks that are remembered by their places in code.
_MOST = 4096

#: The instruction at the begin of calls, from Python 3.11 on.
_BEGIN = opmap.get("RESUME")

#: The number of a stack, and what `StackReader.describe` says of it.
Seen = tuple[int, str | None]


class StackReader:
    """Finds the numbers of stacks in a file.

    Parameters
    ----------
    rows
        The file's stacks.
    begins
        The functions in whose innermost call stacks begin, if there are any: a thread that is in
        none of them is left out.
    describe
        Says a word of a stack, given its frames from the outermost on.
    """

    def __init__(
        self,
        rows: StackRows,
        begins: tuple[CodeType, ...] = (),
        describe: Callable[[list[FrameType]], str] | None = None,
    ) -> None:
        self._rows = rows
        self._begins = begins
        self._begin_ids = frozenset(map(id, begins))
        self._describe = describe
        #: By identity of code and place in it, from the innermost frame on. The code is kept, or
        #: another might get its identity.
        self._known: dict[tuple[int, ...], tuple[Seen, list[CodeType]]] = {}
        #: What was returned last.
        self.last: Seen | None = None

    def see(self, frame: FrameType | None) -> Seen | None:
        """Return what is known of a stack, given its innermost frame; None if it is left out."""
        self.last = self._look(frame)
        return self.last

    def _look(self, frame: FrameType | None) -> Seen | None:
        place = self._place(frame)
        if place is None:
            return None
        if not place:
            return UNKNOWN_STACK, None
        known = self._known.get(place)
        return known[0] if known is not None else self._see_new(frame, place)

    def _place(self, frame: FrameType | None) -> tuple[int, ...] | None:
        """Return codes and places in them; empty for a stack that is too deep or has no frame."""
        begins = self._begin_ids
        place: list[int] = []
        for _ in _DEEPEST:
            if frame is None:
                return None if begins else tuple(place)
            code = id(frame.f_code)
            if code in begins:
                return tuple(place)
            place += code, frame.f_lasti
            frame = frame.f_back
        return ()

    def _see_new(self, frame: FrameType | None, place: tuple[int, ...]) -> Seen:
        innermost, frames = frame, []
        for _ in range(len(place) // 2):
            if frame is not None:
                frames.append(frame)
                frame = frame.f_back
        codes = [each.f_code for each in frames]
        if len(frames) > 1 and not _has_run(codes[0], place[1]):
            del frames[0]
        frames.reverse()
        word = self._describe(frames) if self._describe is not None else None
        seen = self._rows.number(stack_of(frames)), word
        # Between two looks at its frames the thread may have run on.
        if self._place(innermost) == place and seen[0] != UNKNOWN_STACK:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[place] = seen, codes
        return seen


def _has_run(code: CodeType, place: int) -> bool:
    """Return whether a call has run anything, given the place of its instruction.

    A thread gives the interpreter's lock to the sampler between some instructions, of which the
    first of a call is one. What it did until then is the caller's.
    """
    if _BEGIN is None:
        return place >= 0
    return code.co_code[place : place + 2] != bytes((_BEGIN, 0))
