"""Refuters: contradictions between the raw events of a run and the findings of its diagnosis.

`refute(directory, findings)` returns the contradictions. Each rule has a refuter, which is written
from the rule's sentences alone: it computes the finding's figures again from the events, and looks
for facts that make a sentence false. This package does not import the analysis.

If the sentence does not define a number, the refuter checks conditions that any definition must
meet: no more seconds than the run has, and fractions that agree with the seconds next to them.
"""

import importlib
import pkgutil

from refuters.registry import REFUTERS, refute

__all__ = ["REFUTERS", "refute"]

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
