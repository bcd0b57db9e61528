"""Rules of the diagnosis, what each is known to cause and refute, and the findings they yield."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.wording import Share, plain

Severity = Literal["high", "medium", "low", "info"]

#: Most severe first.
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")

#: Thresholds, as fractions of wall time, for "high" and "medium".
HIGH, MEDIUM = 0.2, 0.05
#: Minimum potential savings in seconds of a "high" finding, and of any finding.
LITTLE, NEGLIGIBLE = 1.0, 0.1

#: The value of a setting: a number, a switch, a text, or `MORE` or `FEWER`.
Value: TypeAlias = int | bool | str

MORE, FEWER = "more", "fewer"
#: Settings that are keywords of a ``LocalCluster``, and those that only the program can have.
OF_CLUSTERS = ("n_workers", "threads_per_worker", "processes", "memory_limit")
OF_PROGRAMS = ("chunks", "batch", "persist")


@dataclass(frozen=True)
class Edit:
    """A line of the program, and the text that should replace it; both without indentation."""

    file: str
    number: int
    old: str
    new: str


@dataclass(frozen=True)
class Change:
    """Settings that a finding suggests, as data that ``dasfprof try`` can run."""

    #: By name: keywords of a cluster (`OF_CLUSTERS`), variables of the environment, in capitals,
    #: settings of Dask's config, with dots, or what the program has (`OF_PROGRAMS`). In bytes.
    settings: Mapping[str, Value]
    #: Settings that have to stay as they are for the finding's figures to hold.
    excludes: tuple[str, ...] = ()
    #: What the change depends on; None: nothing.
    condition: str | None = None
    #: The function it is about, and the line of the program that built its tasks.
    function: str | None = None
    line: str | None = None
    #: How many times as large chunks or batches become; None: it is about neither.
    times: float | None = None
    #: The edit of the program that makes the change; None: it takes more than one value at a line.
    edit: Edit | None = None

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON has it, with its edit if it has one."""
        data = {**asdict(self), "settings": dict(self.settings), "excludes": list(self.excludes)}
        return {name: value for name, value in data.items() if name != "edit" or value}

    @classmethod
    def of_cluster(cls, condition: str | None = None, /, **settings: Value) -> Change:
        """Return a change of the cluster that keeps its other keywords."""
        return cls(settings, tuple(n for n in OF_CLUSTERS if n not in settings), condition)


class Advice(NamedTuple):
    """A sentence of a suggestion that other findings may refute."""

    #: A key of `ADVICE`.
    kind: str
    text: str
    #: Whether the potential savings are what following it gains.
    promises: bool = False
    changes: Sequence[Change] = ()


@dataclass(frozen=True)
class Places:
    """Everything a finding is about, if that is more than one function, worker and time."""

    #: In seconds from the trace's begin.
    spans: tuple[tuple[float, float], ...] = ()
    #: What all of its task runs have in common; None: nothing.
    state: str | None = None
    function: str | None = None
    worker: str | None = None


@dataclass(frozen=True)
class Finding:
    """What one rule found, and after ranking how severe that is and what causes it."""

    rule: str
    #: One plain sentence with the figure; figures and methods that show more; what to change.
    text: str
    evidence: str
    suggestion: Sequence[str | Advice]
    #: By name: numbers with units, texts, and lists, mappings and namespaces of these.
    figures: Mapping[str, Any] = field(default_factory=dict)
    #: Seconds of wall time that the run might be shorter; NaN where no replay or measure shows it.
    seconds: float = float("nan")
    #: Seconds that were seen, by which it is ranked where `seconds` are unknown.
    costs: float = float("nan")
    #: Bounds of its severity.
    at_most: Severity = "high"
    at_least: Severity = "info"
    #: The time that it is about, in seconds from the trace's begin; NaN for the whole run.
    start: float = float("nan")
    stop: float = float("nan")
    places: Places | None = None
    #: Whether its seconds are a client's, which may lie before or after all tasks.
    of_client: bool = False
    #: Whether it causes none of the findings that its rule says it may cause.
    isolated: bool = False
    settings: Sequence[Change] = ()
    severity: Severity = "info"
    cause: Finding | None = None

    @classmethod
    def of(
        cls,
        rule: str,
        text: str,
        evidence: str,
        suggestion: str | Sequence[str | Advice],
        **more: Any,
    ) -> Finding:
        """Return a finding; its sentences name figures in braces: names that are no fields.

        Figures whose name begins with an underscore are for the sentences alone. `severity` sets
        both bounds of it.
        """
        if "severity" in more:
            more["at_most"] = more["at_least"] = more.pop("severity")
        own = {name: more.pop(name) for name in _FIELDS & more.keys()}
        parts = [
            part._replace(text=part.text.format_map(more))
            if isinstance(part, Advice)
            else part.format_map(more)
            for part in ([suggestion] if isinstance(suggestion, str) else suggestion)
            if part
        ]
        return cls(rule, text.format_map(more), evidence.format_map(more), parts, more, **own)

    @property
    def function(self) -> str | None:
        """The function that it is about."""
        return self.figures.get("function")

    @property
    def worker(self) -> str | None:
        """The label of the worker that it is about."""
        return self.figures.get("worker")

    @property
    def weight(self) -> float:
        """The seconds by which it is ranked; NaN: none is known."""
        return self.costs if np.isnan(self.seconds) else self.seconds

    @property
    def advice(self) -> list[Advice]:
        """The parts of its suggestion that other findings may refute."""
        return [part for part in self.suggestion if isinstance(part, Advice)]

    def severity_in(self, wall: float) -> Severity:
        """Return how severe it is in a run of so many seconds."""
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
        """Return it with potential savings up to the wall time, unless they are the client's."""
        if not wall > 0 or self.of_client:
            return self
        seconds, costs = np.minimum([self.seconds, self.costs], wall).tolist()
        return dataclasses.replace(self, seconds=seconds, costs=costs)

    def adding(self, evidence: str, **figures: Any) -> Finding:
        """Return it with more evidence."""
        more = {**self.figures, **figures}
        return dataclasses.replace(self, evidence=f"{self.evidence} {evidence}", figures=more)

    def beneath(self, cause: Finding, causes: Sequence[str], explained: bool = False) -> Finding:
        """Return it as a symptom of other findings: not severe by itself.

        If its cause explains it, it is evidence of that, and has no advice.
        """
        words = f"It may follow from {', '.join(causes)}."
        found = self.adding(words, may_follow_from=tuple(causes))
        if explained:
            advice = [f"Do what {cause.rule} advises first: this may follow from it."]
            found = dataclasses.replace(found, suggestion=advice, settings=())
        return dataclasses.replace(found, at_most="low", at_least="info", cause=cause)

    def row(self) -> dict[str, Any]:
        """Return its row in the table of `TraceAnalyser.diagnose`."""
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
        """Return it as JSON has it: its row, its figures with units, and what it says to set."""
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


#: What rules set; all other keywords of `Finding.of` are figures.
_FIELDS = {"seconds", "costs", "at_most", "at_least", "start", "stop"}
_FIELDS |= {"places", "of_client", "isolated", "settings"}


def needs_cores(waited: Share | None) -> str:
    """Return a sentence about waits for CPUs, of advice to run more tasks at a time, or empty."""
    if waited is None:
        return ""
    return (
        f"Tasks waited for a core for {waited} of their time: more at a time gain nothing unless "
        "cores are free. "
    )


# --- Rules ----------------------------------------------------------------------------------------

Find = Callable[[RunFigures], Iterator[Finding]]

#: Kinds of advice that findings refute, and how to say that one would not help.
ADVICE = {
    "more-threads": "More threads per worker would gain nothing",
    "share-memory": "Workers with more threads would move less, and wait more",
    "fewer-threads": "Fewer threads would gain nothing",
    "move-data": "Where these run cannot be changed by client.rebalance() or workers=",
}


@dataclass(frozen=True)
class Rule:
    """A rule: the slug of its findings, how they are found, and how they relate to others."""

    slug: str
    find: Find
    #: Rules whose findings it explains, however many seconds these cost: evidence of its own shows
    #: it; and those that its findings cause, unless more seconds are at stake there.
    explains: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    #: The kinds of advice that its findings refute, and why.
    refutes: tuple[str, ...] = ()
    because: str = ""
    #: Whether its findings show where time goes and not why: others replace them, or precede them.
    general: bool = False

    def __call__(self, run: RunFigures) -> Iterator[Finding]:
        """Yield what the rule's function finds."""
        return self.find(run)


REGISTERED: dict[str, Rule] = {}


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a text."""
    return tuple(text.split())


def rule(
    slug: str,
    *,
    explains: str = "",
    causes: str = "",
    refutes: str = "",
    because: str = "",
    general: bool = False,
) -> Callable[[Find], Find]:
    """Register a function that yields findings of this slug; one function may have several.

    `explains`, `causes` and `refutes` are slugs and kinds of advice, separated by spaces.
    """

    def register(find: Find) -> Find:
        related = names_of(explains), names_of(causes), names_of(refutes)
        REGISTERED[slug] = Rule(slug, find, *related, because, general)
        return find

    return register
