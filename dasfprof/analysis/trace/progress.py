"""Progress bars. By default, they are only shown in terminals and notebooks."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import TypeVar

from dasfprof.config.options import setting
from dasfprof.errors import InvalidArgumentError

Item = TypeVar("Item")

#: Seconds of work after which a progress bar appears.
_DELAY = 0.5


def is_wanted(progress: bool | None = None) -> bool:
    """Return whether to show progress, by the argument or else the setting ``dasfprof.progress``.

    If both are None, progress is shown if standard error is a terminal, or in a notebook.
    """
    wanted = setting("progress", progress)
    if wanted is None:
        return sys.stderr.isatty() or "ipykernel" in sys.modules
    if not isinstance(wanted, bool):
        raise InvalidArgumentError(
            f"progress={wanted!r}: expected True, False, or None to show progress bars in "
            "terminals and notebooks."
        )
    return wanted


def track(
    items: Iterable[Item], description: str, *, shown: bool, total: int, unit: str
) -> Iterator[Item]:
    """Yield the items. If `shown`, show a progress bar when the iteration takes long."""
    if not shown:
        yield from items
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # In notebooks, tqdm warns if ipywidgets is missing.
        from tqdm.auto import tqdm

        # With leave=False, the bar disappears when the iteration ends, both in notebooks and in
        # terminals.
        bar = tqdm(items, desc=description, total=total, unit=unit, delay=_DELAY, leave=False)
    with bar:
        yield from bar
