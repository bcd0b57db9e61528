"""How a rule of the diagnosis is registered, under a name that stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures

#: Yields the findings of one kind; without the evidence for it, none.
Rule = Callable[[RunFigures], Iterator[Finding]]

REGISTERED: dict[str, Rule] = {}

#: What a finding of one rule brings about: findings of the others are its symptoms, unless more
#: seconds are at stake there.
SYMPTOMS: dict[str, tuple[str, ...]] = {}


#: Of equally grave findings those of these rules come first, in this order, whatever they cost:
#: there are no results. They are symptoms of each other alone.
FIRST = ("errors", "killed-workers", "unfinished-run", "lost-workers")


def rule(slug: str, *, symptoms: tuple[str, ...] = ()) -> Callable[[Rule], Rule]:
    """Register a function of a module of this package as a rule.

    Parameters
    ----------
    slug
        Its name in the column ``Rule``, which stays.
    symptoms
        The rules whose findings it explains.
    """

    def register(function: Rule) -> Rule:
        REGISTERED[slug] = function
        if symptoms:
            SYMPTOMS[slug] = symptoms
        return function

    return register
