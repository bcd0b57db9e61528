"""Progress bars that appear when a person is watching, and stay silent otherwise."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import TypeVar

from dasfprof.config import setting
from dasfprof.errors import InvalidArgumentError

Item = TypeVar("Item")

#: Seconds of work that nobody has to be told of.
_DELAY = 0.5


def is_wanted(progress: bool | None = None) -> bool:
    """Return whether to show progress.

    Parameters
    ----------
    progress
        True or False decides; None leaves it to the config's ``dasfprof.progress``, and if that
        is null as well to whether standard error is a terminal or this is a notebook.
    """
    wanted = setting("progress", progress)
    if wanted is None:
        return sys.stderr.isatty() or "ipykernel" in sys.modules
    if not isinstance(wanted, bool):
        raise InvalidArgumentError(
            f"progress={wanted!r}: give True, False, or None for progress bars when a person is "
            "watching."
        )
    return wanted


def track(
    items: Iterable[Item], description: str, *, shown: bool, total: int, unit: str
) -> Iterator[Item]:
    """Return the items; if `shown`, with a bar that advances as they are taken, while it is long.

    It goes when the work is done, in a notebook as in a terminal.
    """
    if not shown:
        yield from items
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns in notebooks that have no ipywidgets
        from tqdm.auto import tqdm

        bar = tqdm(items, desc=description, total=total, unit=unit, delay=_DELAY, leave=False)
    with bar:
        yield from bar
