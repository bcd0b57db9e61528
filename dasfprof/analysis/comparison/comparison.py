"""`compare` and its result: everything that differs between two groups of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.comparison.functions import By, compare_functions, share_in_common
from dasfprof.analysis.comparison.runs import ComparedRun, compare_memory, compare_surroundings
from dasfprof.analysis.comparison.time_spent import (
    Evidence,
    Parts,
    compare_places,
    make_waterfall,
    path_parts,
    thread_parts,
)
from dasfprof.analysis.comparison.verdict import (
    Verdict,
    in_words,
    judge,
    least_of_single_runs,
    notes_in_words,
    others_in_words,
    walls,
)
from dasfprof.analysis.diagnosis.registry import SEVERITIES, Finding
from dasfprof.analysis.model.steps import NO_STEP
from dasfprof.analysis.numeric.significance import CERTAIN, p_value
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import By as Place
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import count_of, format_share

#: Threshold (fraction of thread time in common functions): with less, the groups are runs of
#: different pipelines.
_SAME_PIPELINE = 0.5


class Comparison:
    """Two groups of runs of a pipeline, before and after a change.

    Runs that did not end are left out if their group contains runs that ended. `notes` lists them.
    All seconds are means over the runs of a group.
    """

    def __init__(self, before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> None:
        #: All runs of each group, including incomplete runs.
        self.runs_before, self.runs_after = list(before), list(after)
        self._before = [run for run in before if run.is_complete] or list(before)
        self._after = [run for run in after if run.is_complete] or list(after)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the runs after the change are faster or slower, and how certain that is.

        Runs are compared by wall time, from the first submission to the last finish of a task.
        """
        return judge(self._before, self._after, self._least_of_single_runs)

    def slower_than(self, limit: float) -> float:
        """Test whether the runs after the change are slower by more than the fraction `limit`.

        The result is a p-value: the probability of such measurements if the runs were in fact
        slower by exactly this fraction. It is NaN if no test is possible. For example, a test needs
        at least two runs per group.
        """
        first, second = walls(self._before), walls(self._after)
        if self.verdict.kind == "cannot tell" or min(len(first), len(second)) < 2:
            return math.nan
        return p_value(first * (1 + limit), second, greater=True)

    def waterfall(self, by: By = "function") -> pd.DataFrame:
        """Divide the difference in wall time into parts, along the critical path.

        Parameters
        ----------
        by
            ``"function"`` or ``"step"``.

        Returns
        -------
        DataFrame
            One row per category of time and function (or step), largest difference first:
            ``Class``, ``Function`` (or ``Step``), ``Before (s)``, ``After (s)``,
            ``Difference (s)``, ``Meaning``. The differences sum to the difference of the wall
            times.
        """
        return self._summed(path_parts, by)

    def thread_time(self, by: By = "function") -> pd.DataFrame:
        """Divide the difference in thread time between the groups into parts.

        The table is like that of `waterfall`, but covers every second of every thread. Threads that
        have no task are counted as ``(idle)``.
        """
        return self._summed(thread_parts, by)

    @cached_property
    def functions(self) -> pd.DataFrame:
        """The functions of both groups.

        One row per function, largest difference in total seconds first: ``Function``; ``Tasks``
        (``new``, ``gone``, ``more``, ``fewer``, ``same``, or ``not clear`` if the function is
        missing in a group with runs that did not end); ``Task Runs Before`` and ``After`` (per
        run); ``Change (%)`` of the median duration; ``p`` of this change, corrected for the number
        of functions (Holm); ``Changed`` (``slower``, ``faster``, ``uncertain``). Further columns
        contain for each group: median and 95th percentile of the duration, median size of a result,
        throughput of input, percentage of time on the CPU, maximum memory of a process while the
        function ran (by samples), and total seconds per run.

        If there are several runs per group, Welch's test compares the logarithms of the runs'
        medians. If there is one run per group, the Mann-Whitney test compares the tasks of the two
        runs. In this case, differences that two runs may have by chance do not count as changes.
        """
        return compare_functions(*self._traces, self._least_of_single_runs)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The steps of both groups, with the columns of `functions`.

        The table is empty if no run has steps.
        """
        table = compare_functions(*self._traces, self._least_of_single_runs, "step")
        return table if set(table["Step"]) - {NO_STEP} else table.head(0)

    @cached_property
    def memory(self) -> pd.DataFrame:
        """The memory of workers.

        The columns are ``What``, ``Before (MB)``, ``After (MB)``, ``Change (%)``. Figures that were
        not sampled in every run are left out.
        """
        return compare_memory(*self._traces)

    def hot_lines(self, by: Place = "line") -> pd.DataFrame:
        """Compare where tasks spent their time, in the runs with stack samples.

        Parameters
        ----------
        by
            ``"line"``, ``"function"`` or ``"library"``, as in `TraceAnalyser.hot_lines`. If a line
            moved within its file, it counts as another line. Its function stays the same.

        Returns
        -------
        DataFrame
            One row per line, function or library, largest difference first: ``File``, ``Line``,
            ``Code`` (or ``Library``), ``Before (s)``, ``After (s)``, ``Difference (s)``. The table
            is empty if one of the groups has no samples.
        """
        _check(by, Place)
        return compare_places(*self._traces, by)

    @cached_property
    def findings(self) -> pd.DataFrame:
        """The findings of both groups.

        One row per rule and function: ``Status``, ``Severity``, ``Finding``,
        ``Seconds at stake (s)`` in the last run that has the finding, ``Runs Before`` and
        ``Runs After`` (number of runs that have the finding), ``Rule``, ``Function``. The status is
        ``same`` if most runs of both groups have the finding, and ``gone`` or ``new`` if most runs
        of only one group have it. It is ``now and then`` if at most half of the runs of each group
        have it, and ``not clear`` if the runs of one group ended too early to show it.
        """
        return compare_findings(self.runs_before, self.runs_after)

    @cached_property
    def surroundings(self) -> pd.DataFrame:
        """Differences between the groups in anything except durations.

        The columns are ``What`` (versions, settings, hosts, workers, threads, graph, sizes),
        ``Before``, ``After``, and ``Could explain it``. The last column is ``yes`` if
        such a difference has an effect in the observed direction (``in part at most`` if it is too
        small to explain all of it), ``possibly`` if it may have an effect in either direction,
        ``no`` if it has the opposite effect, and empty if the runs are neither faster nor slower.
        ``yes`` is not a proof.
        """
        differs = self.verdict.kind in ("faster", "slower")
        change = self.verdict.change if differs else 0.0
        return compare_surroundings(self._before, self._after, change)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The runs: ``Side``, ``Run``, ``Wall Time (s)``, ``Task Runs``, ``Remarks``."""
        rows = [
            (side, run.name, run.seconds, len(run.trace.tasks), "; ".join(run.faults))
            for side, runs in (("before", self.runs_before), ("after", self.runs_after))
            for run in runs
        ]
        columns = ["Side", "Run", "Wall Time (s)", "Task Runs", "Remarks"]
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def notes(self) -> list[str]:
        """Caveats about the runs and the comparison."""
        runs, used = [*self.runs_before, *self.runs_after], [*self._before, *self._after]
        left_out = [run for run in runs if not any(run is used_run for used_run in used)]
        return notes_in_words(runs, left_out, self._evidence)

    @cached_property
    def sentences(self) -> list[str]:
        """The verdict and the causes of the difference, as sentences."""
        sentences = in_words(self.verdict, self.surroundings, self.functions, self.waterfall())
        if not self.same_pipeline:
            sentences.insert(0, others_in_words(share_in_common(self.functions)))
        return sentences

    def __str__(self) -> str:
        return " ".join(self.sentences)

    def __repr__(self) -> str:
        sides = f"{count_of(len(self._before), 'run')} and {count_of(len(self._after), 'run')}"
        return f"RunComparison of {sides}: {self.verdict.kind}"

    @cached_property
    def typical(self) -> tuple[ComparedRun, ComparedRun]:
        """The typical run of each group: its wall time is nearest to the median of the group."""

        def nearest(side: list[ComparedRun]) -> ComparedRun:
            seconds = np.nan_to_num([run.seconds for run in side])
            return side[int(np.argmin(np.abs(seconds - np.median(seconds))))]

        return nearest(self._before), nearest(self._after)

    @property
    def same_pipeline(self) -> bool:
        """Whether each group spent at least half of its time in functions that both groups have."""
        return share_in_common(self.functions) >= _SAME_PIPELINE

    @cached_property
    def _least_of_single_runs(self) -> float:
        if not len(self._before) == len(self._after) == 1:
            return 0.0
        return least_of_single_runs(self._before[0], self._after[0])

    @cached_property
    def _traces(self) -> tuple[list[Run], list[Run]]:
        return [run.trace for run in self._before], [run.trace for run in self._after]

    @cached_property
    def _evidence(self) -> Evidence:
        return Evidence.from_runs([*self._traces[0], *self._traces[1]])

    def _summed(self, parts_of: Callable[[Run, By, Evidence], Parts], by: By) -> pd.DataFrame:
        _check(by, By)
        before, after = ([parts_of(trace, by, self._evidence) for trace in s] for s in self._traces)
        return make_waterfall(before, after, by.capitalize())


def _check(by: str, choices: Any) -> None:
    if by not in get_args(choices):
        raise InvalidArgumentError(f"by={by!r}: pass one of {', '.join(get_args(choices))}.")


#: A kind of finding: its rule, and the function that it is about, or None.
_What = tuple[str, str | None]
_STATUSES = ("new", "gone", "same", "now and then", "not clear")


def compare_findings(before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> pd.DataFrame:
    """Return the findings in the runs of both groups. See `RunComparison.findings`."""
    rows = []
    for status, (rule, function), old, new in _by_status(before, after):
        shown = (new or old)[-1] if status != "gone" else old[-1]
        runs = f"{len(old)} of {len(before)}", f"{len(new)} of {len(after)}"
        about = shown.severity, shown.text, shown.seconds
        rows.append((status, *about, *runs, rule, function))
    rows.sort(key=lambda row: (_STATUSES.index(row[0]), SEVERITIES.index(row[1])))
    columns = ("Status", "Severity", "Finding", "Seconds at stake (s)", "Runs Before")
    return pd.DataFrame(rows, columns=[*columns, "Runs After", "Rule", "Function"])


#: Effect that a change of the program may have on a finding.
ChangeOfFinding = Literal["gone", "smaller", "new"]
#: Threshold (fraction of the potential savings): the decrease counts as "smaller".
_SMALLER = 0.2


@dataclass(frozen=True)
class ChangedFinding:
    """A finding that a change of the program removed, reduced, or added."""

    status: ChangeOfFinding
    rule: str
    function: str | None
    finding: str
    #: Potential savings in seconds, medians over the runs of each group. NaN if unknown, or if the
    #: group does not have the finding.
    before: float
    after: float
    #: Rule of the finding that causes this finding, or None.
    cause: str | None

    @property
    def removed(self) -> float:
        """The decrease of the potential savings, in seconds."""
        return self.before - (0.0 if self.status == "gone" else self.after)


def changed_findings(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun]
) -> list[ChangedFinding]:
    """Return the findings that differ between two groups of runs, most seconds first.

    Findings of severity "info" are left out.
    """
    changed = []
    for status, what, *sides in _by_status(before, after):
        seconds = [np.array([finding.seconds for finding in side]) for side in sides]
        old, new = (float(np.median(side)) if len(side) else math.nan for side in seconds)
        # Potential savings vary between runs. The finding is only smaller if all runs after the
        # change have less than all runs before it.
        is_smaller = status == "same" and seconds[1].max() < seconds[0].min()
        kind = "smaller" if is_smaller and new <= (1 - _SMALLER) * old else status
        if kind in get_args(ChangeOfFinding):
            last = sides[kind == "new"][-1]
            if last.severity != "info":
                about = last.text, old, new, last.cause and last.cause.rule
                changed.append(ChangedFinding(kind, *what, *about))  # type: ignore[arg-type]
    return sorted(changed, key=lambda finding: -max(np.nan_to_num([finding.before, finding.after])))


def _by_status(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun]
) -> Iterator[tuple[str, _What, list[Finding], list[Finding]]]:
    """Yield, per rule and function: the status, rule and function, findings before and after."""
    first, second = _by_what(before), _by_what(after)
    for what in dict.fromkeys([*second, *first]):
        old, new = first.get(what, []), second.get(what, [])
        yield _status(_share(before, old), _share(after, new)), what, old, new


def _by_what(runs: Sequence[ComparedRun]) -> dict[_What, list[Finding]]:
    """Return the findings of all runs by rule and function."""
    findings: dict[_What, list[Finding]] = {}
    for run in runs:
        seen: dict[_What, Finding] = {}
        for finding in run.findings:
            # Findings of a rule and function are sorted by severity, so the most severe one counts.
            seen.setdefault((finding.rule, finding.function), finding)
        for what, finding in seen.items():
            findings.setdefault(what, []).append(finding)
    return findings


def _share(runs: Sequence[ComparedRun], findings: Sequence[object]) -> float:
    """Return the fraction of a group's runs that have a finding, or NaN if unknown."""
    # Runs that did not end and lack the finding are ignored. They might have had it later.
    counted = max(sum(run.is_complete for run in runs), len(findings))
    return len(findings) / counted if counted else math.nan


def _status(before: float, after: float) -> str:
    """Return the status of a finding, given the fraction of each group's runs that have it."""
    if math.isnan(before) or math.isnan(after):
        return "not clear"
    had, has = before > 0.5, after > 0.5
    if had != has:
        return "new" if has else "gone"
    return "same" if had else "now and then"


@dataclass(frozen=True)
class Gate:
    """The decision of a regression gate: whether runs after a change are too slow, and why."""

    #: Fraction by which the runs after the change may be slower.
    limit: float
    #: Probability of such measurements if these runs were slower by exactly this fraction. NaN if
    #: no test is possible.
    p: float
    #: Reason for the decision, as a sentence.
    text: str

    @property
    def is_closed(self) -> bool:
        """Whether the runs after the change are certainly slower than the limit allows."""
        return self.p < CERTAIN


def check_slower(comparison: Comparison, limit: float) -> Gate:
    """Check whether the runs after a change are slower by more than the fraction `limit`.

    If nothing changed, fewer than 1 of 100 checks find slower runs, even with a limit of 0.
    """
    p, verdict = comparison.slower_than(limit), comparison.verdict
    seen = f"{abs(verdict.change) * 100:.1f} % {'slower' if verdict.change > 0 else 'faster'}"
    text = f"{seen} as observed, p = {p:.2g}."
    if verdict.kind == "cannot tell":
        text = verdict.text
    elif math.isnan(p):
        text = (
            f"{seen} as observed. With one run per group, this is never certain. Record several "
            "runs of each, preferably five."
        )
    elif p < CERTAIN:
        text = f"{seen}, p = {p:.2g}."
    sure = "Certain" if p < CERTAIN else "Not certain"
    return Gate(limit, p, f"{sure} to be slower by more than {format_share(limit)}: {text}")
