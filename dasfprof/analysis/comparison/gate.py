"""A gate for changes: whether a side is certainly slower by more than is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dasfprof.analysis.comparison.comparison import RunComparison
from dasfprof.analysis.comparison.verdict import CERTAIN
from dasfprof.text import format_share


@dataclass(frozen=True)
class Gate:
    """What a gate says of a comparison."""

    #: The share by which the side after may be slower.
    limit: float
    #: Of what was seen, if it were slower by just that; NaN: nothing can be told.
    p: float
    #: Why, in a sentence.
    text: str

    @property
    def is_closed(self) -> bool:
        """Whether it is certain that the side after is slower by more than the limit."""
        return self.p < CERTAIN


def check_slower(comparison: RunComparison, limit: float) -> Gate:
    """Check whether the side after is slower by more than a share.

    Of 100 times that nothing changed it says so wrongly less than once, also with a limit of 0.
    """
    p, allowed = comparison.slower_than(limit), f"slower by more than {format_share(limit)}"
    verdict = comparison.verdict
    if verdict.kind == "cannot tell":
        return Gate(limit, p, f"Not certain to be {allowed}: {verdict.text}")
    seen = f"{abs(verdict.change) * 100:.1f} % {'slower' if verdict.change > 0 else 'faster'}"
    if math.isnan(p):
        return Gate(
            limit,
            p,
            f"Not certain to be {allowed}: {seen} as seen, but one run on a side is never "
            "certain. Record several on each, best five.",
        )
    if p < CERTAIN:
        return Gate(limit, p, f"Certain to be {allowed}: {seen}, p = {p:.2g}.")
    return Gate(limit, p, f"Not certain to be {allowed}: {seen} as seen, p = {p:.2g}.")
