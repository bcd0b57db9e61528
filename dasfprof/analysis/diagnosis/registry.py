"""Findings: what a rule finds and how grave that is; and how a rule is registered, by its name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.wording import Figures, Share, Statement, Words, state

# --- Findings: what a rule of the diagnosis finds, and how grave that is --------------------------

Severity = Literal["high", "medium", "low", "info"]

#: From the gravest on.
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")

#: Shares of the run's wall time at stake from which a finding is grave, and from which it matters.
HIGH, MEDIUM = 0.2, 0.05
#: Seconds at stake below which nothing is high for its share, nor for another reason where that is
#: less than `MEDIUM`;
LITTLE = 1.0
#: and below which nobody asks.
NEGLIGIBLE = 0.1


@dataclass(frozen=True)
class Places:
    """All places that a finding speaks of, where its own function, worker and time are of one."""

    #: Times, in seconds from the trace's begin.
    spans: tuple[tuple[float, float], ...] = ()
    #: What all of its task runs have in common; None: nothing.
    state: str | None = None
    function: str | None = None
    worker: str | None = None


@dataclass(frozen=True)
class Finding:
    """What one rule found."""

    said: Statement
    #: Seconds of wall time that the run might be shorter; NaN where no replay or measure shows it.
    seconds: float = float("nan")
    #: Those for which it was seen, by which alone it is ranked where `seconds` are unknown.
    costs: float = float("nan")
    #: The gravest that it may be, however many seconds are at stake.
    at_most: Severity = "high"
    #: The least grave that it may be, however few they are, or where they are unknown.
    at_least: Severity = "info"
    #: Where it speaks of one: Dask's prefix, the worker's label.
    function: str | None = None
    worker: str | None = None
    #: The time that it speaks of, in seconds from the trace's begin; NaN for the whole run.
    start: float = float("nan")
    stop: float = float("nan")
    #: None: those above are all.
    places: Places | None = None
    #: Whether its seconds are the client's own: before the first task, or after the last, as well.
    of_client: bool = False

    @classmethod
    def of(
        cls,
        say: Callable[[Figures], Words],
        *,
        seconds: float = float("nan"),
        costs: float = float("nan"),
        at_most: Severity = "high",
        at_least: Severity = "info",
        severity: Severity | None = None,
        start: float = float("nan"),
        stop: float = float("nan"),
        places: Places | None = None,
        of_client: bool = False,
        **figures: Any,
    ) -> Finding:
        """Return what a rule found: figures, and the function that says them.

        Of the figures ``function`` and ``worker`` are its places as well. `severity`: at most and
        at least.
        """
        most, least = severity or at_most, severity or at_least
        where = figures.get("function"), figures.get("worker"), start, stop, places
        return cls(state(say, **figures), seconds, costs, most, least, *where, of_client)

    @property
    def weight(self) -> float:
        """The seconds by which it is ranked; NaN: none is known."""
        return self.costs if np.isnan(self.seconds) else self.seconds

    def severity(self, wall: float) -> Severity:
        """Show how grave it is in a run of so many seconds."""
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
        """Return it with no more seconds at stake than the run took, unless the client's."""
        if not wall > 0 or self.of_client:
            return self
        seconds, costs = np.minimum([self.seconds, self.costs], wall).tolist()
        return dataclasses.replace(self, seconds=seconds, costs=costs)

    def as_symptom_of(self, causes: Sequence[str]) -> Finding:
        """Return it as what other rules' findings bring about: it is not grave by itself."""
        words = f"It may follow from {', '.join(causes)}."
        said = self.said.adding(words, may_follow_from=tuple(causes))
        return dataclasses.replace(self, said=said, at_most="low", at_least="info")


@dataclass(frozen=True)
class Ranked:
    """A finding with its rule, and the finding that brings it about."""

    rule: str
    finding: Finding
    cause: Ranked | None = None

    @property
    def seconds(self) -> float:
        """The seconds by which it is ranked; 0 where they are unknown."""
        return float(np.nan_to_num(self.finding.weight))


def needs_cores(waited: Share | None) -> str:
    """Say of a change by which more tasks run at a time that tasks waited for cores, if so."""
    if waited is None:
        return ""
    return (
        f"Tasks waited for a core for {waited} of their time: more at a time gain nothing unless "
        "cores are free. "
    )


# --- How a rule of the diagnosis is registered, under a name that stays ---------------------------

#: Yields the findings of one kind; without the evidence for it, none.
Rule = Callable[[RunFigures], Iterator[Finding]]

REGISTERED: dict[str, Rule] = {}


def _table(text: str) -> dict[str, tuple[str, ...]]:
    """Read a table: a rule and a colon begin a row, which other rules follow."""
    rows = re.findall(r"(\S+):([\w\s-]*)(?=\n\S|$)", text)
    return {cause: tuple(symptoms.split()) for cause, symptoms in rows}


#: What explains others, however many seconds these cost: evidence of its own shows it.
EXPLAINS = _table("""
waits-in-turn: slow-worker imbalance straggling-tasks degrading-functions poor-placement
process-lock: lock-bound blocked-tasks io-bound waits-in-turn dominating-function straggling-tasks
    degrading-functions slow-worker imbalance cpu-oversubscribed
cluster-lock: blocked-tasks waits-in-turn dominating-function straggling-tasks degrading-functions
    slow-worker imbalance serial-chain lock-bound poor-placement io-bound
unmanaged-memory: memory-near-limit
memory-grows: unmanaged-memory memory-near-limit
garbage-collection: dominating-function straggling-tasks degrading-functions
resource-limit: blocked-tasks dominating-function imbalance poor-placement too-few-tasks
    serial-chain
waits-for-tasks: blocked-tasks dominating-function straggling-tasks imbalance serial-chain
    too-few-tasks poor-placement waits-in-turn scheduler-bound client-gaps slow-worker
sent-by-value: tasks-too-small late-receipt deserialising scheduler-bound single-gathers
tokenising: client-gaps late-start
single-gathers: client-gaps scheduler-bound
large-results: client-gaps
deserialising: tasks-too-small scheduler-bound
no-workers: scheduler-bound blocked-tasks client-gaps too-few-tasks imbalance
fat-partitions: straggling-tasks imbalance poor-placement sent-ahead dominating-function
    blocked-tasks
straggling-tasks: sent-ahead
slow-worker: sent-ahead
poor-placement: straggling-tasks blocked-tasks imbalance serial-chain too-few-tasks
one-at-a-time: client-gaps blocked-tasks imbalance too-few-tasks serial-chain poor-placement
    scheduler-bound dominating-function
client-gaps: blocked-tasks imbalance too-few-tasks serial-chain
""")
#: What a finding of one rule brings about besides: findings of the others are its symptoms, unless
#: more seconds are at stake there.
SYMPTOMS = _table("""
unfinished-run: blocked-tasks client-gaps dominating-function imbalance io-bound lock-bound
    lost-workers poor-placement scheduler-bound serial-chain straggling-tasks too-few-tasks
killed-workers: imbalance lost-workers recomputation scheduler-bound serial-chain too-few-tasks
failed-attempts: recomputation straggling-tasks imbalance too-few-tasks
lost-workers: recomputation imbalance too-few-tasks serial-chain poor-placement
recomputation: tasks-too-small dominating-function blocked-tasks io-bound
first-use: dominating-function straggling-tasks degrading-functions slow-worker imbalance
    serial-chain too-few-tasks late-receipt lock-bound io-bound blocked-tasks poor-placement
tasks-too-small: scheduler-bound imbalance too-few-tasks poor-placement transfer-bound late-receipt
    lock-bound
single-gathers: tasks-too-small late-receipt too-few-tasks serial-chain imbalance
large-results: late-receipt too-few-tasks imbalance
tokenising: too-few-tasks serial-chain imbalance
sent-by-value: late-start client-gaps too-few-tasks imbalance tokenising
no-workers: serial-chain
degrading-functions: straggling-tasks dominating-function blocked-tasks imbalance too-few-tasks
fat-partitions: serial-chain too-few-tasks transfer-bound
straggling-tasks: imbalance too-few-tasks
slow-worker: imbalance serial-chain too-few-tasks straggling-tasks poor-placement
    dominating-function blocked-tasks degrading-functions
imbalance: too-few-tasks
sent-ahead: imbalance serial-chain too-few-tasks
transfer-bound: imbalance too-few-tasks serial-chain deserialising
spilling: blocked-tasks io-bound straggling-tasks degrading-functions serial-chain too-few-tasks
    imbalance transfer-bound memory-pressure tasks-too-small late-receipt
memory-pressure: too-few-tasks serial-chain imbalance poor-placement
serial-chain: imbalance too-few-tasks dominating-function
dominating-function: blocked-tasks
lock-bound: blocked-tasks dominating-function cpu-oversubscribed
cpu-oversubscribed: tasks-too-small scheduler-bound dominating-function straggling-tasks
    degrading-functions late-receipt
""")
#: The rules: of equally grave findings with equal seconds the earlier rule's comes first.
(ORDER,) = _table("""
rules: lost-workers restarted-workers recomputation unfinished-run given-up-tasks killed-workers
    failed-attempts errors unfinished-tasks no-worker-fits swallowed-errors late-start first-use
    single-gathers large-results tokenising sent-by-value cluster-lock waits-for-tasks
    resource-limit tasks-too-small scheduler-bound late-receipt deserialising client-gaps
    one-at-a-time no-workers degrading-functions fat-partitions straggling-tasks slow-worker
    imbalance poor-placement sent-ahead transfer-bound spilling memory-pressure memory-near-limit
    host-memory-full serial-chain too-few-tasks dominating-function lock-bound cpu-oversubscribed
    garbage-collection process-lock io-bound waits-in-turn blocked-tasks gpu-idle gpu-memory-full
    gpu-unused missing-evidence ended-by-itself clocks-apart memory-grows unmanaged-memory
""").values()

#: Of equally grave findings those of these rules come first, in this order, whatever they cost:
#: there are no results. They are symptoms of each other alone.
FIRST = ("errors", "killed-workers", "unfinished-run", "lost-workers")


def rule(slug: str) -> Callable[[Rule], Rule]:
    """Register a function of a module of this package as a rule.

    Parameters
    ----------
    slug
        Its name in the column ``Rule``, which stays.
    """

    def register(function: Rule) -> Rule:
        REGISTERED[slug] = function
        return function

    return register
