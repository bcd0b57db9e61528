"""Results of trying a change (`Gain`, `Trial`), and results of tuning (`Point`, `Tuning`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import yaml

from dasfprof.analysis.comparison.comparison import ChangedFinding, ChangeOfFinding
from dasfprof.analysis.comparison.verdict import LEAST_OF_SINGLE_RUNS, p_in_words
from dasfprof.analysis.diagnosis.registry import OF_CLUSTERS, Value
from dasfprof.analysis.numeric.significance import (
    CERTAIN,
    difference_interval,
    name_of_test,
    p_value,
)
from dasfprof.database.columns import Array
from dasfprof.text import clean, count_of, format_duration, name_first

#: Names of changes that change the code: a patch, or another script.
OF_CODE = ("patch", "script")
#: Numbers of pairs of runs after which the wall times are tested. The p-values are corrected, so
#: that all these tests together are as rarely wrong as a single test.
LOOKS = (3, 4, 6, 9)
#: Minimum fraction of the time that counts as a gain.
_LEAST = LEAST_OF_SINGLE_RUNS
#: Error probability of the confidence interval of a gain.
_OUTSIDE = 0.05

GainKind = Literal["gained", "lost", "nothing", "cannot tell"]


@dataclass(frozen=True)
class Gain:
    """The time that a change saved, in seconds."""

    kind: GainKind
    #: Mean seconds of runs without the change, and of runs with the change.
    before: float
    after: float
    #: 95 % confidence interval of the gain, or NaN if unknown.
    low: float
    high: float
    #: p-value of the difference, corrected for repeated tests. NaN if no test is possible.
    p: float
    pairs: int
    #: Name of the test, or empty if no test is possible.
    test: str

    @property
    def seconds(self) -> float:
        """The mean seconds by which runs with the change were shorter."""
        return self.before - self.after

    @property
    def text(self) -> str:
        """A sentence that describes the gain."""
        of = format_duration(self.before)
        interval = f"95 %: {_range(self.low, self.high)}"
        runs = f"{count_of(self.pairs, 'pair')} of runs"
        test = f"{runs}, p {p_in_words(self.p)}, {self.test}"
        if self.kind == "gained":
            return f"Saved {format_duration(self.seconds)} of {of} ({interval}; {test})."
        if self.kind == "lost":
            # The confidence interval of a loss is that of the gain with the opposite sign.
            interval = f"95 %: {_range(-self.high, -self.low)}"
            return (
                f"Lost {format_duration(-self.seconds)}: {of} became "
                f"{format_duration(self.after)} ({interval}; {test})."
            )
        if self.kind == "nothing":
            return (
                f"Nothing was saved: {_range(self.low, self.high)} of {of} (95 % confidence "
                f"interval; {runs})."
            )
        if math.isnan(self.low):
            return f"Cannot tell whether anything was saved of {of}: {runs} are too few."
        return (
            f"Cannot tell whether anything was saved: {_range(self.low, self.high)} of {of} (95 "
            f"% confidence interval; {runs}), because the runs vary too much."
        )


def judge_gain(before: Array, after: Array, *, tests: int = 1) -> Gain:
    """Test whether a change made runs shorter, from pairs of runs without and with the change.

    `tests` is the number of changes that are compared with the same baseline runs. If `Gain.kind`
    is "cannot tell" after fewer than nine pairs, more pairs may help.
    """
    means = (float(before.mean()), float(after.mean())) if len(before) else (math.nan, math.nan)
    pairs = min(len(before), len(after))
    # p-values are corrected for repeated tests, because any of the changes may seem to save
    # time by chance.
    compared = len(LOOKS) * tests
    level = CERTAIN / compared
    p = min(p_value(before, after, level=level) * compared, 1.0) if pairs > 1 else math.nan
    high, low = (-edge for edge in difference_interval(before, after, _OUTSIDE))
    kind: GainKind = "cannot tell"
    if pairs >= LOOKS[0]:
        if p < CERTAIN:
            kind = "gained" if means[1] < means[0] else "lost"
        elif high < _LEAST * means[0]:
            kind = "nothing"
    test = name_of_test(pairs, pairs, level)
    return Gain(kind, *means, low, high, p, pairs, test)


def _range(low: float, high: float) -> str:
    """Return a range of durations as text, beginning with the lower one: ``8.1 s to 9.4 s``."""
    return f"{format_duration(low)} to {format_duration(high)}"


Results = Literal["equal", "differ", "in part", "not comparable"]
TrialKind = Literal[GainKind, "results differ", "no result", "no change"]


@dataclass(frozen=True)
class Agreement:
    """Whether runs with a change had the same results as runs without the change."""

    kind: Results
    #: Description as a sentence.
    text: str


@dataclass(frozen=True)
class TriedRun:
    """A run of the program in a trial, with or without the change."""

    #: Whether the run had the change.
    changed: bool
    #: Seconds of tasks and of the client's calls of Dask. Then seconds of the full program.
    seconds: float
    program_seconds: float


@dataclass(frozen=True, repr=False)
class Trial:
    """The result of trying a change of a program."""

    #: The changed settings by name. Empty if there was no change to try.
    change: Mapping[str, int | bool | str]
    #: Rule and headline of the finding that suggests the change. Both are empty if the user chose
    #: the change.
    rule: str = ""
    finding: str = ""
    #: Potential savings of this finding in seconds, or NaN if unknown.
    promised: float = math.nan
    #: Reason why there is no verdict, or empty.
    obstacle: str = ""
    gain: Gain | None = None
    #: Gain for the full program, including the start and the end of its cluster.
    gain_of_program: Gain | None = None
    results: Agreement | None = None
    runs: Sequence[TriedRun] = ()
    #: Findings that changed code removed, reduced, or added. None if findings were not compared.
    findings: Sequence[ChangedFinding] | None = None
    #: Caveats, as sentences.
    notes: list[str] = field(default_factory=list)

    def answering(self, findings: Sequence[ChangedFinding]) -> Trial:
        """Return this trial with the changed findings, and with the finding that the change fixed.

        The fixed finding is the one whose potential savings decreased most. A finding that is
        caused by another one is only chosen if there are no others. No finding counts as fixed if
        the change lost time or changed the results.
        """

        def promise(finding: ChangedFinding) -> float:
            # The same problem may have become a problem of another function.
            same = (each for each in findings if each.rule == finding.rule)
            return finding.removed - sum(each.after for each in same if each.status == "new")

        fewer = [finding for finding in findings if promise(finding) > 0]
        # Findings that are caused by other findings only count if there are no others.
        answered = max(fewer, key=lambda each: (each.cause is None, promise(each)), default=None)
        trial = replace(self, findings=findings)
        if self.kind in ("lost", "results differ") or answered is None:
            return trial
        rule, finding = answered.rule, answered.finding
        return replace(trial, rule=rule, finding=finding, promised=promise(answered))

    @property
    def kind(self) -> TrialKind:
        """The verdict on the change. Saved time does not count if the change altered results."""
        if self.obstacle or self.gain is None:
            return "no result" if self.change else "no change"
        if self.results is not None and self.results.kind == "differ":
            return "results differ"
        return self.gain.kind

    @property
    def words(self) -> str:
        """The change as text, such as ``n_workers=4 threads_per_worker=1``."""
        return in_words(self.change)

    @property
    def sentences(self) -> list[str]:
        """Sentences about the verdict, the results, and the time of the full program."""
        if self.obstacle or self.gain is None:
            return [self.obstacle]
        text = self.gain.text
        if math.isfinite(self.promised):
            text = f"{text[:-1]}. The finding promised {format_duration(self.promised)}."
        sentences = [text] if self.results is None else [text, self.results.text]
        if self.kind == "results differ":
            sentences = [sentences[1], f"Therefore its time does not count: {text}"]
        if self.findings is not None:
            sentences += _findings_in_words(self.findings)
        if self.gain_of_program is not None:
            program = self.gain_of_program
            sentences.append(
                "These times include tasks and the client's calls of Dask. The full program, with "
                f"start and end of its cluster, took {format_duration(program.before)} without and "
                f"{format_duration(program.after)} with the change{_OF_PROGRAM[program.kind]}."
            )
        return sentences

    def __str__(self) -> str:
        change = f"{self.words}: " if self.change else ""
        return change + " ".join([*self.sentences, *self.notes])

    __repr__ = __str__

    def as_data(self) -> dict[str, Any]:
        """Return the trial as JSON-compatible data."""
        data = {**asdict(self), "verdict": self.kind, "sentences": self.sentences}
        for name, gain in (("gain", self.gain), ("gain_of_program", self.gain_of_program)):
            data[name] = None if gain is None else {**asdict(gain), "seconds": gain.seconds}
        data |= {name: data[name] or None for name in ("rule", "finding", "obstacle")}
        return {**data, "findings": data["findings"] or []}


#: Text that is added to the time of the full program, by verdict.
_OF_PROGRAM: Mapping[GainKind, str] = {
    "gained": "",
    "lost": ", which is longer",
    "nothing": ", so nothing was saved",
    "cannot tell": ", and it is not certain whether this saves time",
}


_OF_FINDINGS: Mapping[ChangeOfFinding, str] = {
    "gone": "Findings that are gone with the change",
    "smaller": "Findings that are smaller with the change",
    "new": "New findings with the change",
}


def _findings_in_words(findings: Sequence[ChangedFinding]) -> list[str]:
    """Return sentences about findings that are gone, that are smaller, and that are new."""
    sentences = []
    for status, words in _OF_FINDINGS.items():
        names = [
            f"{finding.rule} ({clean(finding.function)})" if finding.function else finding.rule
            for finding in findings
            if finding.status == status
        ]
        sentences += [f"{words}: {name_first(names)}."] * bool(names)
    return sentences or ["The same findings appear with the change and without."]


def in_words(change: Mapping[str, int | bool | str]) -> str:
    """Return a change in the form that ``dasfprof try`` accepts, such as ``n_workers=4``."""
    return " ".join(f"{clean(name)}={clean(value)}" for name, value in change.items())


TuningKind = Literal["tuned", "as it is", "cannot tell", "results differ", "no result"]

#: First line of a resource profile. It identifies files that dasfprof wrote.
MARK = "# Written by dasfprof tune"
_USE = "# Use it in the next run: dasfprof run --config FILE SCRIPT, or DASK_CONFIG"


@dataclass(frozen=True, repr=False)
class Point:
    """A combination of settings that tuning considers."""

    #: The settings by name, as in a trial.
    change: Mapping[str, Value]
    #: Seconds from the first submission to the last finish that a replay predicts. NaN if unknown.
    predicted: float = math.nan
    #: Predicted maximum memory of the fullest worker in bytes, or NaN if unknown.
    memory: float = math.nan
    #: Reason why the settings were not run, or empty.
    left_out: str = ""
    #: Runs with these settings, paired with baseline runs. None if there are no such pairs.
    trial: Trial | None = None

    @property
    def measured(self) -> float:
        """Mean seconds of the runs with these settings, or NaN if there are none."""
        runs = () if self.trial is None else self.trial.runs
        seconds = [run.seconds for run in runs if run.changed]
        return float(np.mean(seconds)) if seconds else math.nan

    @property
    def words(self) -> str:
        """The settings in the form that commands accept."""
        return in_words(self.change)

    def as_data(self) -> dict[str, Any]:
        """Return the point as JSON-compatible data."""
        return {
            "change": dict(self.change),
            "predicted": self.predicted,
            "measured": self.measured,
            "memory": self.memory,
            "left_out": self.left_out or None,
            "trial": None if self.trial is None else self.trial.as_data(),
        }


@dataclass(frozen=True, repr=False)
class Tuning:
    """The settings that were considered, and the best of them."""

    #: The settings of the cluster in the baseline, by name.
    as_it_is: Mapping[str, Value]
    #: All settings that were considered. Settings that were run come first, fastest first.
    points: Sequence[Point] = ()
    #: The best of the settings that were run, or None if undecided.
    best: Point | None = None
    #: Mean seconds of the baseline, or NaN if unknown.
    seconds: float = math.nan
    #: Sentences about what the replay could not predict, and why.
    limits: Sequence[str] = ()
    #: Caveats, as sentences.
    notes: list[str] = field(default_factory=list)

    @property
    def kind(self) -> TuningKind:
        """The verdict. Settings are only advised if they certainly make runs shorter."""
        trials = [point.trial for point in self.points if point.trial is not None]
        if self.best is None or self.best.trial is None:
            differ = [trial for trial in trials if trial.kind == "results differ"]
            return "results differ" if differ and len(differ) == len(trials) else "no result"
        kind = self.best.trial.kind
        if kind == "gained":
            return "tuned"
        return "as it is" if kind in ("nothing", "lost") else "cannot tell"

    @property
    def settings(self) -> dict[str, Value]:
        """The advised settings. Empty if the baseline should be kept."""
        return dict(self.best.change) if self.kind == "tuned" and self.best is not None else {}

    @property
    def line(self) -> str:
        """A line of code that creates the cluster with the advised settings.

        It is empty if no setting of the cluster changes.
        """
        if self.settings.keys().isdisjoint(OF_CLUSTERS):
            return ""
        values = {**self.as_it_is, **self.settings}
        code = {n: f'"{v}"' if isinstance(v, str) else repr(v) for n, v in values.items()}
        return f"LocalCluster({', '.join(f'{n}={code[n]}' for n in OF_CLUSTERS if n in code)})"

    @property
    def profile(self) -> str:
        """The advised settings as YAML for Dask's configuration. Empty if no setting changes."""
        if not self.settings:
            return ""
        data: dict[str, Any] = {}
        tuned: dict[str, Any] = {}
        for name, value in self.settings.items():
            if name in OF_CLUSTERS:
                tuned[name] = value
            elif name.startswith("-"):
                tuned.setdefault("arguments", {})[name] = str(value)
            elif name.isupper():
                _put(data, f"distributed.nanny.pre-spawn-environ.{name}", str(value))
            else:
                _put(data, name, value)
        if tuned:
            _put(data, "dasfprof.tuned", tuned)
        lines = [MARK, _USE] + [f"# {self.line}"] * bool(self.line)
        return "\n".join([*lines, yaml.safe_dump(data, sort_keys=False)])

    @property
    def sentences(self) -> list[str]:
        """Sentences about the verdict and its reasons."""
        best = self.best
        if best is None or best.trial is None:
            reasons = {point.trial.obstacle for point in self.points if point.trial} - {""}
            if self.kind == "results differ":
                reasons = {"The results differ with all settings that were run."}
            return ["Nothing is advised.", *(sorted(reasons) or ["No other settings were run."])]
        first, *more = best.trial.sentences
        gain = best.trial.gain
        if gain is None:
            return ["Nothing is advised.", first]
        if self.kind == "tuned":
            return [f"{first[:-1]}, with {best.words}.", *more]
        if self.kind == "as it is":
            return [
                "Keep the baseline: none of the settings that were run saves 5 % or more. The "
                f"best was {best.words}: {first[:1].lower()}{first[1:]}"
            ]
        return [
            "Cannot tell which settings are best, because the runs vary too much. The best was "
            f"{best.words}: {format_duration(gain.after)}, and {format_duration(gain.before)} "
            f"for the baseline. {first} Nothing is advised."
        ]

    def __str__(self) -> str:
        return " ".join([self.line, *self.sentences, *self.limits, *self.notes]).strip()

    __repr__ = __str__

    def as_data(self) -> dict[str, Any]:
        """Return the tuning as JSON-compatible data."""
        return {
            "verdict": self.kind,
            "settings": self.settings,
            "line": self.line or None,
            "as_it_is": {"settings": dict(self.as_it_is), "seconds": self.seconds},
            "best": None if self.best is None else dict(self.best.change),
            "sentences": self.sentences,
            "limits": list(self.limits),
            "notes": list(self.notes),
            "points": [point.as_data() for point in self.points],
        }


def in_gib(nbytes: float) -> str:
    """Return a size as the value of a cluster option, such as ``4 GiB``. It is rounded down."""
    return f"{math.floor(nbytes / 2**30 * 10) / 10:.10g} GiB"


def _put(data: dict[str, Any], name: str, value: Any) -> None:
    *places, last = name.split(".")
    for place in places:
        data = data.setdefault(place, {})
    data[last] = value
