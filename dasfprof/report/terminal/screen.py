"""`Screen`: what fits on one screen of a terminal."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Callable

#: Lines that the shell's prompt, and what is left out, take.
_KEPT = 4
#: The fewest rows of a table that are worth its heading.
_FEWEST = 3
#: The share of the screen that the first answer may take.
_FOR_THE_FIRST = 0.55


class Screen:
    """The lines of a screen that are left.

    Parameters
    ----------
    taken
        Lines that were printed before.
    err
        Whether standard error is what is looked at.
    """

    def __init__(self, taken: int, *, err: bool = False) -> None:
        self._err = err
        self._left = shutil.get_terminal_size().lines - taken - _KEPT

    @classmethod
    def of_terminal(cls, taken: int, *, err: bool = False) -> Screen | None:
        """Return the screen that is printed to; None where that is a file or a pipe."""
        stream = sys.stderr if err else sys.stdout
        return cls(taken, err=err) if stream.isatty() else None

    @property
    def is_full(self) -> bool:
        """Whether no table fits any more."""
        return self._left < _FEWEST + 4

    def print(self, show: Callable[[int], None], rows: int, *, first: bool = False) -> bool:
        """Print with as many rows as fit; say whether any did.

        Parameters
        ----------
        show
            Prints with at most so many rows.
        rows
            How many there may be.
        first
            Whether it leaves room for what comes next, and has one row even where that is too long.
        """
        room = self._left * _FOR_THE_FIRST if first else self._left
        least = 1 if first else min(rows, _FEWEST)
        for count in range(rows, least - 1, -1):
            lines = self._lines_of(show, count)
            if lines <= room or (first and count == least):
                show(count)
                self._left -= lines
                return True
        return False

    def _lines_of(self, show: Callable[[int], None], rows: int) -> int:
        printed = io.StringIO()
        redirect = contextlib.redirect_stderr if self._err else contextlib.redirect_stdout
        with redirect(printed):
            show(rows)
        return printed.getvalue().count("\n")
