"""Does what findings advise, and compares what was gained with what was promised.

A program that has a variant with ``--advised`` runs unchanged and as advised, in turns, under the
profiler. Promised are the seconds at stake of the finding whose suggestion the variant follows;
gained is what the programs themselves measure from their first submission on.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from expectations import declaration
from run import ADVISED, Recorded, programs, record


@dataclass(frozen=True)
class Outcome:
    """What became of a suggestion; medians, in seconds."""

    rule: str
    #: How long the program took as it is, and as advised.
    before: float
    after: float
    #: The seconds at stake; NaN where the finding was not there, or gave none.
    promised: float
    #: The share of the machine's cores that other programs used meanwhile.
    busy_elsewhere: float

    @property
    def gained(self) -> float:
        """The seconds that the program was shorter."""
        return self.before - self.after


def advised_programs() -> list[str]:
    """List the programs that have a variant."""
    return [name for name in programs() if declaration(name).advised]


def compare(name: str, directory: Path, times: int) -> Outcome:
    """Run a program and its variant in turns."""
    rule = declaration(name).advised
    assert rule is not None
    before, after, promised, busy = [], [], [], []
    for _ in range(times):
        plain, advised = record(name, directory), record(name, directory, ADVISED)
        before.append(_seconds(plain))
        after.append(_seconds(advised))
        busy += [plain.busy_elsewhere, advised.busy_elsewhere]
        found = plain.findings[plain.findings["Rule"] == rule]["Seconds at stake (s)"]
        promised.append(float(found.iloc[0]) if len(found) else float("nan"))
    medians = (statistics.median(column) for column in (before, after, promised, busy))
    return Outcome(rule, *medians)


def _seconds(done: Recorded) -> float:
    found = re.search(r"^([0-9.]+) seconds$", done.printed, re.MULTILINE)
    assert found, done.printed
    return float(found[1])
