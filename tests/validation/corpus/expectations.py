"""What the diagnosis has to say of each program of the corpus, and what it must not say.

Beside each script is a TOML file with

``exit_code``
    the script's, 0 unless given.
``[healthy]``
    the run has no fault: no finding is of severity high.
``[[must]]``
    a finding that has to be there: of a ``rule``, with all words of ``says`` in its text, evidence
    or suggestion; with ``first = true`` before all others.
``[[must_not]]``
    a finding that must not be there: of a ``rule``, of a ``severity``, with all words of ``says``.
    What is not given does not matter.
    With ``harmful = true`` who follows it is worse off.
``[advised]``
    the ``rule`` whose suggestion the script follows when it runs with ``--advised``.
``thread``, ``cause``, ``today``
    of a case: where people asked, what was the matter, and how far that is named, "first" unless
    given (`cases.VERDICTS`). What ``must`` be said names that cause.

Where other programs use the host's cores, findings that say so (`OF_BUSY_HOSTS`) are neither first
nor a fault. Each says in ``why`` what shows that it has to be so. ``wrong_today`` says what is
found instead: the test is expected to fail until that is mended, in each run or, with
``sometimes = true``, in some.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from run import place_of

#: What is true of any run on a host whose cores other programs use: findings, with those that
#: stand beneath them.
OF_BUSY_HOSTS = ("cpu-oversubscribed", "scheduler-bound", "slow-dispatch")


@dataclass(frozen=True)
class Expectation:
    """A finding that has to be there, or must not be there."""

    wanted: bool
    rule: str | None = None
    severity: str | None = None
    says: tuple[str, ...] = ()
    first: bool = False
    why: str = ""
    wrong_today: str = ""
    sometimes: bool = False
    harmful: bool = False

    def __str__(self) -> str:
        """Return a name for the test, without blanks."""
        what = [self.rule, self.severity, *self.says, "first" if self.first else None]
        words = "-".join(word.replace(" ", "_") for word in what if word)
        return words if self.wanted else f"no-{words}"

    def holds(self, findings: pd.DataFrame, busy: bool) -> bool:
        """Whether these findings are as expected; on a busy host more of them may be true."""
        if busy and not (self.wanted and self.rule in OF_BUSY_HOSTS):
            findings = findings[~findings[["Rule", "Cause"]].isin(OF_BUSY_HOSTS).any(axis=1)]
        rows = findings.head(1) if self.first else findings
        found = any(self._describes(row) for row in rows.to_dict("records"))
        return found == self.wanted

    def _describes(self, row: dict[Any, Any]) -> bool:
        words = " ".join(str(row[column]) for column in ("Finding", "Evidence", "Suggestion"))
        return (
            self.rule in (None, row["Rule"])
            and self.severity in (None, row["Severity"])
            and all(word in words for word in self.says)
        )


@dataclass(frozen=True)
class Declaration:
    """What is expected of a program."""

    exit_code: int
    expectations: tuple[Expectation, ...]
    #: The rule whose suggestion ``--advised`` follows, if the program has that.
    advised: str | None
    #: Of a case; empty: of none.
    thread: str
    cause: str
    today: str


def declaration(name: str) -> Declaration:
    """Read the declaration of a program."""
    import tomllib  # from Python 3.11 on

    given = tomllib.loads((place_of(name) / f"{name}.toml").read_text())
    return Declaration(
        given.get("exit_code", 0),
        tuple(_expectations(given)),
        given.get("advised", {}).get("rule"),
        given.get("thread", ""),
        given.get("cause", ""),
        given.get("today", "first"),
    )


def _expectations(given: dict[str, Any]) -> Iterator[Expectation]:
    if "healthy" in given:
        yield Expectation(False, severity="high", **given["healthy"])
    for kind in ("must", "must_not"):
        for entry in given.get(kind, []):
            says = tuple(entry.pop("says", ()))
            yield Expectation(kind == "must", says=says, **entry)
