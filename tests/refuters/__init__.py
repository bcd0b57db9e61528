"""Refuters: what the raw events of a run say against the findings of its diagnosis.

`refute(directory, findings)` returns the contradictions. There is a refuter for each rule, written
from the rule's sentences alone: it takes the numbers out of the text, computes them anew from the
events, and looks for facts that make the sentence false. Nothing here imports the analysis.

Where a number rests on a definition that the sentence does not give, the refuter asks for what any
definition has to keep: no more seconds than there were, shares that fit the seconds beside them.
"""

import importlib
import pkgutil

from refuters.registry import REFUTERS, refute

__all__ = ["REFUTERS", "refute"]

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
