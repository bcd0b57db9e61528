"""Compare the time that advice saves with the potential savings that its finding reports.

Programs that have a variant with ``--advised`` run unchanged and as advised, in turn, under the
profiler. The potential savings are those of the finding whose suggestion the variant follows. The
time saved is measured by the programs, from their first submission.
"""

import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from expectations import declaration
from run import ADVISED, Recorded, programs, record


@dataclass(frozen=True)
class Outcome:
    """Outcome of a suggestion: medians, in seconds."""

    rule: str
    #: Durations of the program, unchanged and as advised.
    before: float
    after: float
    #: Potential savings, or NaN without a finding or a figure.
    promised: float
    #: Fraction of the machine's cores that other programs used meanwhile.
    busy_elsewhere: float

    @property
    def gained(self) -> float:
        return self.before - self.after


def advised_programs() -> list[str]:
    return [name for name in programs() if declaration(name).advised]


def compare(name: str, directory: Path, times: int) -> Outcome:
    """Run a program and its variant in turn."""
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
