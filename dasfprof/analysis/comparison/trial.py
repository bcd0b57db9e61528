"""What trying a change has shown: `Gain`, `Trial`; and tuning: `Tuning`, its points and profile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import yaml

from dasfprof.analysis.comparison.comparison import ChangedFinding, ChangeOfFinding
from dasfprof.analysis.comparison.verdict import LEAST_OF_ONE, p_in_words
from dasfprof.analysis.diagnosis.registry import OF_CLUSTERS, Value
from dasfprof.analysis.numeric.significance import (
    CERTAIN,
    difference_interval,
    name_of_test,
    p_value,
)
from dasfprof.database.columns import Array
from dasfprof.text import clean, count_of, format_duration, name_first

#: Names of changes of the code: a patch, or another script.
OF_CODE = ("patch", "script")
#: Numbers of pairs of runs after which the seconds are tested. By chance, all tests together are as
#: rarely wrong as the one test of a comparison.
LOOKS = (3, 4, 6, 9)
#: Minimum fraction of the time that counts as a gain.
_LEAST = LEAST_OF_ONE
#: Significance level of the interval of a gain.
_OUTSIDE = 0.05

GainKind = Literal["gained", "lost", "nothing", "cannot tell"]


@dataclass(frozen=True)
class Gain:
    """By how much runs with a change were shorter. Seconds."""

    kind: GainKind
    #: Means of both sides.
    before: float
    after: float
    #: What the gain is within, for 95 of 100 such intervals; NaN: unknown.
    low: float
    high: float
    #: Of the difference, for the number of looks; NaN: no test can be made.
    p: float
    pairs: int
    #: The name of the test that `p` is of; empty: none can be made.
    test: str

    @property
    def seconds(self) -> float:
        """The seconds by which runs with the change were shorter."""
        return self.before - self.after

    @property
    def text(self) -> str:
        """What it says, in a sentence."""
        of = format_duration(self.before)
        interval = f"95 %: {_range(self.low, self.high)}"
        runs = f"{count_of(self.pairs, 'pair')} of runs"
        test = f"{runs}, p {p_in_words(self.p)}, {self.test}"
        if self.kind == "gained":
            return f"Gained {format_duration(self.seconds)} of {of} ({interval}; {test})."
        if self.kind == "lost":
            # The interval of what was lost is that of the gain, turned over.
            interval = f"95 %: {_range(-self.high, -self.low)}"
            return (
                f"Lost {format_duration(-self.seconds)}: {of} became "
                f"{format_duration(self.after)} ({interval}; {test})."
            )
        if self.kind == "nothing":
            return f"Nothing was gained: {_range(self.low, self.high)} of {of} (95 %; {runs})."
        if math.isnan(self.low):
            return f"Cannot tell whether anything was gained of {of}: {runs} say too little."
        return (
            f"Cannot tell whether anything was gained: {_range(self.low, self.high)} of {of} "
            f"(95 %; {runs}), as runs vary."
        )


def judge_gain(before: Array, after: Array, *, tests: int = 1) -> Gain:
    """Test whether a change shortened the runs, by pairs of runs without and with it.

    Certain is what chance alone makes in fewer than 1 of 100 trials. Nothing was gained if the
    gain is certain to be under 5 %. "cannot tell" of fewer than nine pairs: more of them may.
    `tests`: how many changes are compared with the same runs, each of which may gain by chance.
    """
    means = (float(before.mean()), float(after.mean())) if len(before) else (math.nan, math.nan)
    pairs = min(len(before), len(after))
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
    """Write two durations, the lower first: ``8.1 s to 9.4 s``."""
    return f"{format_duration(low)} to {format_duration(high)}"


# --- A trial: a change, what it gained, and whether the results were the same ---------------------

Results = Literal["equal", "differ", "in part", "not comparable"]
TrialKind = Literal[GainKind, "results differ", "no result", "no change"]


@dataclass(frozen=True)
class Agreement:
    """Whether runs with a change had the results of those without."""

    kind: Results
    #: In a sentence.
    text: str


@dataclass(frozen=True)
class TriedRun:
    """A run of a trial."""

    #: Whether it had the change.
    changed: bool
    #: From the first submission to the last finish of a task, and of the whole program.
    seconds: float
    program_seconds: float


@dataclass(frozen=True, repr=False)
class Trial:
    """What became of trying a change of a program."""

    #: By name; empty: there was none to try.
    change: Mapping[str, int | bool | str]
    #: The rule and the sentence of the finding that advises it; empty: somebody asked for it.
    rule: str = ""
    finding: str = ""
    #: Seconds at stake of that finding; NaN: it promises none.
    promised: float = math.nan
    #: Why there is no verdict; empty: there is one.
    obstacle: str = ""
    gain: Gain | None = None
    #: Of the whole program, with the start and end of its cluster.
    gain_of_program: Gain | None = None
    results: Agreement | None = None
    runs: Sequence[TriedRun] = ()
    #: The findings that other code removed, made smaller, or added; None: they were not compared.
    findings: Sequence[ChangedFinding] | None = None
    #: What to know besides.
    notes: list[str] = field(default_factory=list)

    def answering(self, findings: Sequence[ChangedFinding]) -> Trial:
        """Return it with the findings that changed.

        If it gained, it answers the finding that had the most seconds at stake of those that are
        gone or smaller. Findings that others cause count only if there are no others.
        """
        fewer = [one for one in findings if one.removed > 0]
        answered = max(fewer, key=lambda one: (one.cause is None, one.removed), default=None)
        trial = replace(self, findings=findings)
        if self.kind != "gained" or answered is None:
            return trial
        rule, finding = answered.rule, answered.finding
        return replace(trial, rule=rule, finding=finding, promised=answered.before)

    @property
    def kind(self) -> TrialKind:
        """The verdict; no gain counts where results differ."""
        if self.obstacle or self.gain is None:
            return "no result" if self.change else "no change"
        if self.results is not None and self.results.kind == "differ":
            return "results differ"
        return self.gain.kind

    @property
    def words(self) -> str:
        """The change as it is written: ``n_workers=4 threads_per_worker=1``."""
        return in_words(self.change)

    @property
    def sentences(self) -> list[str]:
        """The verdict first, then whether the results are equal, and the whole program's time."""
        if self.obstacle or self.gain is None:
            return [self.obstacle]
        text = self.gain.text
        if math.isfinite(self.promised):
            text = f"{text[:-1]}, promised {format_duration(self.promised)}."
        found = [text] if self.results is None else [text, self.results.text]
        if self.kind == "results differ":
            found = [found[1], f"What it took counts for nothing then: {text}"]
        if self.findings is not None:
            found += _findings_in_words(self.findings)
        if self.gain_of_program is not None:
            whole = self.gain_of_program
            found.append(
                "That is from the first submission on. The whole program, start and end of its "
                f"cluster included, took {format_duration(whole.before)} as it is and "
                f"{format_duration(whole.after)} with the change{_OF_PROGRAM[whole.kind]}."
            )
        return found

    def __str__(self) -> str:
        change = f"{self.words}: " if self.change else ""
        return change + " ".join([*self.sentences, *self.notes])

    __repr__ = __str__

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        data = {**asdict(self), "verdict": self.kind, "sentences": self.sentences}
        for name, gain in (("gain", self.gain), ("gain_of_program", self.gain_of_program)):
            data[name] = None if gain is None else {**asdict(gain), "seconds": gain.seconds}
        data |= {name: data[name] or None for name in ("rule", "finding", "obstacle")}
        return {**data, "findings": data["findings"] or []}


#: What is said besides of the whole program's time.
_OF_PROGRAM: Mapping[GainKind, str] = {
    "gained": "",
    "lost": ": it is longer",
    "nothing": ": that gains nothing",
    "cannot tell": ": whether that is a gain is not certain",
}


_OF_FINDINGS: Mapping[ChangeOfFinding, str] = {
    "gone": "Findings that are gone with the change",
    "smaller": "Findings that are smaller with the change",
    "new": "New findings with the change",
}


def _findings_in_words(findings: Sequence[ChangedFinding]) -> list[str]:
    """Return a sentence for the findings that are gone, that are smaller, and that are new."""
    sentences = []
    for status, words in _OF_FINDINGS.items():
        names = [
            f"{one.rule} ({clean(one.function)})" if one.function else one.rule
            for one in findings
            if one.status == status
        ]
        sentences += [f"{words}: {name_first(names)}."] * bool(names)
    return sentences or ["The same findings appear with the change and without."]


def in_words(change: Mapping[str, int | bool | str]) -> str:
    """Write a change as the command takes it."""
    return " ".join(f"{clean(name)}={clean(value)}" for name, value in change.items())


# --- Tuning: settings that were looked at, the best, and its resource profile ---------------------

TuningKind = Literal["tuned", "as it is", "cannot tell", "results differ", "no result"]

#: The first line of a resource profile, by which ours are known.
MARK = "# Written by dasfprof tune"


@dataclass(frozen=True, repr=False)
class Point:
    """One of the settings among which the best is sought."""

    #: By name, as a trial takes them.
    change: Mapping[str, Value]
    #: Seconds from the first submission to the last finish that a replay foretells; NaN: none does.
    predicted: float = math.nan
    #: Bytes that the fullest worker would take at most; NaN: unknown.
    memory: float = math.nan
    #: Why it was not run; empty: it was.
    left_out: str = ""
    #: Its runs beside those of the program as it is; None: it was not run so.
    trial: Trial | None = None

    @property
    def measured(self) -> float:
        """The mean seconds of its runs; NaN without any."""
        runs = () if self.trial is None else self.trial.runs
        seconds = [run.seconds for run in runs if run.changed]
        return float(np.mean(seconds)) if seconds else math.nan

    @property
    def words(self) -> str:
        """Its settings as commands take them."""
        return in_words(self.change)

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
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
    """The settings that were looked at, and which of them is best."""

    #: What the cluster is as it is, by name.
    as_it_is: Mapping[str, Value]
    #: All that were looked at, those with runs first, the shortest first.
    points: Sequence[Point] = ()
    #: The one that is best of those that were run; None: none can be told.
    best: Point | None = None
    #: Mean seconds of the program as it is; NaN: unknown.
    seconds: float = math.nan
    #: What the replay did not foretell, and why.
    limits: Sequence[str] = ()
    #: What to know besides.
    notes: list[str] = field(default_factory=list)

    @property
    def kind(self) -> TuningKind:
        """The verdict: settings are said only where runs with them are certain to be shorter."""
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
        """What to set; empty: nothing."""
        return dict(self.best.change) if self.kind == "tuned" and self.best is not None else {}

    @property
    def line(self) -> str:
        """The cluster as a line to paste; empty: there is nothing to change about it."""
        options = {name: self.settings[name] for name in OF_CLUSTERS if name in self.settings}
        if not options:
            return ""
        whole = {name: value for name, value in self.as_it_is.items() if name in OF_CLUSTERS}
        whole |= options
        values = {n: whole[n] for n in OF_CLUSTERS if n in whole}
        code = {n: f'"{v}"' if isinstance(v, str) else repr(v) for n, v in values.items()}
        return f"LocalCluster({', '.join(f'{n}={v}' for n, v in code.items())})"

    @property
    def profile(self) -> str:
        """The resource profile, in YAML as Dask's config takes it; empty: nothing is to be set."""
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
        lines = [MARK, "# The next run takes it: dasfprof run --config FILE SCRIPT, or DASK_CONFIG"]
        lines += [f"# {self.line}"] * bool(self.line)
        return "\n".join([*lines, yaml.safe_dump(data, sort_keys=False)])

    @property
    def sentences(self) -> list[str]:
        """The verdict first, then what it rests on."""
        best = self.best
        if best is None or best.trial is None:
            reasons = {
                one.trial.obstacle for one in self.points if one.trial and one.trial.obstacle
            }
            if self.kind == "results differ":
                reasons = {"With each of the settings that were run the results differ."}
            said = sorted(reasons) or ["No other settings were run."]
            return ["Nothing is advised.", *said]
        first, *more = best.trial.sentences
        gain = best.trial.gain
        if gain is None:
            return ["Nothing is advised.", first]
        if self.kind == "tuned":
            return [f"{first[:-1]}, with {best.words}.", *more]
        if self.kind == "as it is":
            return [
                "Keep it as it is: of what was run nothing gains as much as 5 %. The best was "
                f"{best.words}: {first[:1].lower()}{first[1:]}"
            ]
        return [
            f"Cannot tell which is best, as runs vary: the best was {best.words}, "
            f"{format_duration(gain.after)} against {format_duration(gain.before)} as it is. "
            f"{first} Nothing is advised."
        ]

    def __str__(self) -> str:
        return " ".join([self.line, *self.sentences, *self.limits, *self.notes]).strip()

    __repr__ = __str__

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
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
    """Write bytes as an option of clusters, rounded down: ``4 GiB``."""
    return f"{math.floor(nbytes / 2**30 * 10) / 10:.10g} GiB"


def _put(data: dict[str, Any], name: str, value: Any) -> None:
    *places, last = name.split(".")
    for place in places:
        data = data.setdefault(place, {})
    data[last] = value
