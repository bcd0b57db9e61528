"""What tuning a program has shown: `Tuning`, its points, and the resource profile of the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import yaml

from dasfprof.analysis.comparison.trial import Trial, in_words
from dasfprof.analysis.diagnosis.changes import OF_CLUSTERS, Value
from dasfprof.text import format_duration

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
        given = ", ".join(f"{n}={_as_code(whole[n])}" for n in OF_CLUSTERS if n in whole)
        return f"LocalCluster({given})"

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
                f"{best.words}: {_lower(first)}"
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


def _as_code(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
