"""``%dasfprof_compare``: two sides of runs, compared in a notebook."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from dasfprof.errors import DasfprofError

if TYPE_CHECKING:
    from dasfprof.analysis.comparison import RunComparison

_ROWS = 8


def dasfprof_compare(line: str) -> RunComparison:
    """Compare two sides of runs; print the verdict and what made the difference, and return it.

    ::

        %dasfprof_compare BEFORE AFTER
        %dasfprof_compare BEFORE... -- AFTER...

    Each is what `dasfprof.open_run` takes, or a directory with several runs.
    """
    sources = shlex.split(line)
    if "--" in sources:
        place = sources.index("--")
        before, after = sources[:place], sources[place + 1 :]
    else:
        before, after = sources[:1], sources[1:]
    if not before or not after or ("--" not in sources and len(after) > 1):
        raise UsageError(
            "%dasfprof_compare takes two sources, or several of each side with -- between them."
        )
    from dasfprof import compare
    from dasfprof.report.terminal.comparison import print_comparison

    try:
        comparison = compare(before, after)
    except DasfprofError as error:
        raise UsageError(str(error)) from error
    print_comparison(comparison, _ROWS)
    return comparison
