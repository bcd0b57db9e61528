"""Findings that each program of the corpus must and must not have.

Next to each script is a TOML file with these keys:

``exit_code``
    Exit code of the script, 0 by default.
``[healthy]``
    The program has no fault: no finding has the severity high.
``[[must]]``
    Expected finding: its ``rule``, and texts in ``says`` that its headline, evidence or suggestion
    contain. With ``first = true``, it must be the first finding.
``[[must_not]]``
    Finding that the program must not have: its ``rule``, ``severity``, and texts in ``says``. Keys
    that are not given do not matter. With ``harmful = true``, following its advice does harm.
``[advised]``
    The ``rule`` whose suggestion the script follows if it runs with ``--advised``.
``thread``, ``cause``, ``today``
    For a case: where people asked, the actual cause, and how well it is named (`cases.VERDICTS`;
    "first" by default). ``must`` describes the findings that name this cause.

If other programs used the host's cores, findings that report this (`OF_BUSY_HOSTS`) are ignored.
Each expectation gives its reason in ``why``. ``wrong_today`` describes an existing fault of the
diagnosis: the test is then expected to fail, in each run or, with ``sometimes = true``, in some.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from run import place_of

#: Findings that are true of any run on a host whose cores other programs use. Their symptoms are
#: ignored too.
OF_BUSY_HOSTS = ("cpu-oversubscribed", "scheduler-bound", "slow-dispatch")


@dataclass(frozen=True)
class Expectation:
    """Finding that a program must have or must not have."""

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
        """Return a name for the test, without spaces."""
        what = [self.rule, self.severity, *self.says, "first" if self.first else None]
        words = "-".join(word.replace(" ", "_") for word in what if word)
        return words if self.wanted else f"no-{words}"

    def holds(self, findings: pd.DataFrame, busy: bool) -> bool:
        """Return whether findings are as expected. On a busy host, more findings may be true."""
        if busy and not (self.wanted and self.rule in OF_BUSY_HOSTS):
            findings = findings[~findings[["Rule", "Cause"]].isin(OF_BUSY_HOSTS).any(axis=1)]
        rows = findings.head(1) if self.first else findings
        found = any(self._describes(row) for row in rows.to_dict("records"))
        return found == self.wanted

    def _describes(self, row: dict[Any, Any]) -> bool:
        text = " ".join(str(row[column]) for column in ("Finding", "Evidence", "Suggestion"))
        return (
            self.rule in (None, row["Rule"])
            and self.severity in (None, row["Severity"])
            and all(part in text for part in self.says)
        )


@dataclass(frozen=True)
class Declaration:
    """Expectations about a program."""

    exit_code: int
    expectations: tuple[Expectation, ...]
    #: Rule whose suggestion ``--advised`` follows, if the program has that variant.
    advised: str | None
    #: Facts about a case; empty for other programs.
    thread: str
    cause: str
    today: str


def declaration(name: str) -> Declaration:
    import tomllib  # requires Python 3.11

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
