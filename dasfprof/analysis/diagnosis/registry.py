"""Registry of the diagnosis rules with their causes and refutations, and `Finding`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.wording import Share, plain

Severity = Literal["high", "medium", "low", "info"]

#: Severities, most severe first.
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")

#: Thresholds of "high" and "medium" severity: potential savings as a fraction of wall time.
HIGH, MEDIUM = 0.2, 0.05
#: Minimum potential savings (seconds) of a finding of "high" severity, and of any finding.
LITTLE, NEGLIGIBLE = 1.0, 0.1

#: Value of a setting: a number, a boolean, a text, or `MORE` or `FEWER`.
Value: TypeAlias = int | bool | str

MORE, FEWER = "more", "fewer"
#: Names of settings that are keywords of a ``LocalCluster``, and names of settings that only an
#: edit of the program can make.
OF_CLUSTERS = ("n_workers", "threads_per_worker", "processes", "memory_limit")
OF_PROGRAMS = ("chunks", "batch", "persist")


@dataclass(frozen=True)
class Edit:
    """A line of the program, and the text that should replace it, both without indentation."""

    file: str
    number: int
    old: str
    new: str


@dataclass(frozen=True)
class Change:
    """Settings that a finding suggests, in a form that ``dasfprof try`` can run."""

    #: Values by name. A name is a keyword of a cluster (`OF_CLUSTERS`), an environment variable (in
    #: capitals), a setting of Dask's config (with dots), or in `OF_PROGRAMS`. Sizes are in bytes.
    settings: Mapping[str, Value]
    #: Names of settings that must not change for the finding's figures to hold.
    excludes: tuple[str, ...] = ()
    #: Function that the change is about, and the source line that built its tasks.
    function: str | None = None
    line: str | None = None
    #: Factor by which chunks or batches become larger, or None if the change does not affect them.
    times: float | None = None
    #: The edit of the program that makes the change, or None if editing one value is not enough.
    edit: Edit | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the change as JSON-compatible data, without ``edit`` if there is no edit."""
        data = {**asdict(self), "settings": dict(self.settings), "excludes": list(self.excludes)}
        data["condition"] = None  # Documents of this version have it.
        return {name: value for name, value in data.items() if name != "edit" or value}

    @classmethod
    def of_cluster(cls, **settings: Value) -> Change:
        """Return a change of some keyword arguments of the cluster.

        The other keyword arguments in `OF_CLUSTERS` are listed in ``excludes``.
        """
        return cls(settings, tuple(n for n in OF_CLUSTERS if n not in settings))


class Advice(NamedTuple):
    """A part of a suggestion that other findings may refute."""

    #: Kind of advice: a key of `ADVICE`.
    kind: str
    text: str
    #: Whether the finding's potential savings require that the user follows this advice.
    promises: bool = False
    changes: Sequence[Change] = ()


@dataclass(frozen=True)
class FindingLocations:
    """Locations that a finding is about, if it has several functions, workers or time ranges."""

    #: Time ranges in seconds from the trace's start.
    spans: tuple[tuple[float, float], ...] = ()
    #: State, function and worker that all of the finding's task runs share, or None if they differ.
    state: str | None = None
    function: str | None = None
    worker: str | None = None


@dataclass(frozen=True)
class Finding:
    """A problem that a rule found. Its severity and cause are set when findings are ranked."""

    #: Slug of the rule. If it is empty, `find` fills it in.
    rule: str
    #: Headline: one sentence with one figure. Evidence: further figures, and methods to look them
    #: up. Suggestion: parts of the advice.
    text: str
    evidence: str
    suggestion: Sequence[str | Advice]
    #: Figures by name: numbers with units, texts, or lists, mappings and namespaces of these.
    figures: Mapping[str, Any] = field(default_factory=dict)
    #: Potential savings in seconds of wall time, or NaN if neither replay nor measurement shows
    #: them.
    seconds: float = float("nan")
    #: Measured seconds, which rank the finding if `seconds` are unknown.
    costs: float = float("nan")
    #: Maximum and minimum severity.
    at_most: Severity = "high"
    at_least: Severity = "info"
    #: Time range that the finding is about, in seconds from the trace's start, or NaN for the whole
    #: run.
    start: float = float("nan")
    stop: float = float("nan")
    places: FindingLocations | None = None
    #: Whether the seconds are spent by the client, which may spend them before or after all tasks.
    of_client: bool = False
    #: Whether the finding is never a cause, even of findings that its rule may cause.
    isolated: bool = False
    #: Whether the cause is outside of the run. Then it comes after the run's own severe problems.
    foreign: bool = False
    settings: Sequence[Change] = ()
    severity: Severity = "info"
    cause: Finding | None = None

    @classmethod
    def of(
        cls, text: str, evidence: str, suggestion: str | Sequence[str | Advice], **more: Any
    ) -> Finding:
        """Return a finding whose sentences are formatted with its figures.

        Every keyword argument that is not a field is a figure. Its name is in braces in the
        sentences. If the name begins with an underscore, the figure is used only in the sentences.
        `severity` sets both the minimum and the maximum severity. `rule` is the slug of the rule.
        Only functions with several rules give it.
        """
        if "severity" in more:
            more["at_most"] = more["at_least"] = more.pop("severity")
        fields = {name: more.pop(name) for name in _FIELDS & more.keys()}
        parts = [
            part._replace(text=part.text.format_map(more))
            if isinstance(part, Advice)
            else part.format_map(more)
            for part in ([suggestion] if isinstance(suggestion, str) else suggestion)
            if part
        ]
        rule = more.pop("rule", "")
        return cls(rule, text.format_map(more), evidence.format_map(more), parts, more, **fields)

    @property
    def function(self) -> str | None:
        """Function that the finding is about."""
        return self.figures.get("function")

    @property
    def worker(self) -> str | None:
        """Label of the worker that the finding is about."""
        return self.figures.get("worker")

    @property
    def weight(self) -> float:
        """Seconds that determine the finding's rank, or NaN if unknown."""
        return self.costs if np.isnan(self.seconds) else self.seconds

    @property
    def advice(self) -> list[Advice]:
        """Parts of the suggestion that other findings may refute."""
        return [part for part in self.suggestion if isinstance(part, Advice)]

    def severity_in(self, wall: float) -> Severity:
        """Return the severity of the finding in a run with this wall time in seconds."""
        weight = self.weight
        share = weight / wall if wall > 0 else float("nan")
        by_share: Severity = "high" if share >= HIGH else "medium" if share >= MEDIUM else "low"
        if weight < LITTLE and by_share == "high":
            by_share = "medium"
        if weight < NEGLIGIBLE:
            by_share = "low"
        place = SEVERITIES.index("info" if np.isnan(share) else by_share)
        least = SEVERITIES.index(self.at_least)
        if weight < LITTLE and share < MEDIUM:
            least = max(least, SEVERITIES.index("medium"))
        return SEVERITIES[max(min(place, least), SEVERITIES.index(self.at_most))]

    def within(self, wall: float) -> Finding:
        """Return the finding with its seconds limited to the wall time.

        The seconds of a finding about the client are not limited.
        """
        if not wall > 0 or self.of_client:
            return self
        seconds, costs = np.minimum([self.seconds, self.costs], wall).tolist()
        return dataclasses.replace(self, seconds=seconds, costs=costs)

    def adding(self, evidence: str, **figures: Any) -> Finding:
        """Return the finding with additional evidence and figures."""
        more = {**self.figures, **figures}
        return dataclasses.replace(self, evidence=f"{self.evidence} {evidence}", figures=more)

    def beneath(self, cause: Finding, causes: Sequence[str], explained: bool = False) -> Finding:
        """Return the finding as a consequence of other findings, with low severity.

        `causes` are the rules of these other findings, and `cause` is the first of them. If
        `explained`, the only suggestion is to follow the advice of `cause` first.
        """
        words = f"This may be a consequence of {', '.join(causes)}."
        symptom = self.adding(words, may_follow_from=tuple(causes))
        if explained:
            advice = [f"Follow the advice of {cause.rule} first, because it may be the cause."]
            symptom = dataclasses.replace(symptom, suggestion=advice, settings=())
        return dataclasses.replace(symptom, at_most="low", at_least="info", cause=cause)

    def row(self) -> dict[str, Any]:
        """Return the finding's row in the table of `TraceAnalyser.diagnose`."""
        parts = [part.text if isinstance(part, Advice) else part for part in self.suggestion]
        return {
            "Severity": self.severity,
            "Finding": self.text,
            "Seconds at stake (s)": self.seconds,
            "Evidence": self.evidence,
            "Suggestion": " ".join(parts),
            "Rule": self.rule,
            "Function": self.function,
            "Worker": self.worker,
            "Start (s)": self.start,
            "Stop (s)": self.stop,
            "Cause": self.cause and self.cause.rule,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-compatible data: its row, figures with units, and settings."""
        changes = [*self.settings, *(change for part in self.advice for change in part.changes)]
        return {
            **self.row(),
            "Figures": plain(
                {name: value for name, value in self.figures.items() if name[0] != "_"}
            ),
            "Changes": [self._as_data(change) for change in changes],
        }

    def _as_data(self, change: Change) -> dict[str, Any]:
        line = self.figures.get("built_at") if change.function in (None, self.function) else None
        if line and "persist" in change.settings:
            change = dataclasses.replace(change, settings={**change.settings, "persist": line})
        return dataclasses.replace(change, line=line if change.function else None).as_data()


#: Keyword arguments of `Finding.of` that are fields. All others are figures.
_FIELDS = {each.name for each in dataclasses.fields(Finding)} - {"rule", "cause"}


def needs_cores(waited: Share | None) -> str:
    """Return a caution for advice to run more tasks in parallel, or "" if there is no CPU wait."""
    if waited is None:
        return ""
    return (
        f"Tasks spent {waited} of their time waiting for a core, so running more of them in "
        "parallel helps only if cores are free. "
    )


Find = Callable[[RunFigures], Iterator[Finding]]

#: Kinds of advice that findings can refute, each with the instruction that replaces it.
ADVICE = {
    "more-threads": "Do not add threads per worker",
    "share-memory": "Do not use fewer workers with more threads",
    "fewer-threads": "Do not use fewer threads",
    "move-data": "Do not move these tasks with client.rebalance() or workers=",
}


@dataclass(frozen=True)
class Rule:
    """A rule: the function that finds its findings, and its related rules."""

    find: Find
    #: Names of other rules. A finding of this rule is evidence for findings of the rules in
    #: `explains`, even if it has fewer seconds. It may cause a finding of the rules in `causes`
    #: only if that finding does not have more seconds.
    explains: Sequence[str] = ()
    causes: Sequence[str] = ()
    #: Kinds of advice that findings of this rule refute, and the reason.
    refutes: Sequence[str] = ()
    because: str = ""
    #: Whether its findings show where time goes but not why. Findings with a reason replace them or
    #: come first.
    general: bool = False

    def __call__(self, run: RunFigures) -> Iterator[Finding]:
        """Yield the findings that the rule's function finds in a run."""
        return self.find(run)


REGISTERED: dict[str, Rule] = {}


def rule(
    slug: str,
    *,
    explains: str = "",
    causes: str = "",
    refutes: str = "",
    because: str = "",
    general: bool = False,
) -> Callable[[Find], Find]:
    """Return a decorator that registers a function which yields findings with this slug.

    `explains` and `causes` are names of rules, and `refutes` are kinds of advice, all separated by
    spaces (see `Rule`).
    """

    def register(find: Find) -> Find:
        kinds = refutes.split()
        REGISTERED[slug] = Rule(find, explains.split(), causes.split(), kinds, because, general)
        # A function can be decorated with several rules.
        return find

    return register
