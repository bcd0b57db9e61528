"""All rules of the diagnosis.

A rule is a function under the decorator `registry.rule` in a module of this package.
"""

from __future__ import annotations

import importlib
import pkgutil

from dasfprof.analysis import diagnosis
from dasfprof.analysis.diagnosis.registry import REGISTERED, SYMPTOMS, Rule

__all__ = ["RULES", "SYMPTOMS", "Rule"]

#: Modules whose rules come first, in this order; those of others follow by the modules' names.
_ORDER = (
    "unfinished",
    "outcomes",
    "lost_results",
    "start_up",
    "client",
    "limits",
    "overheads",
    "over_time",
    "balance",
    "placement",
    "data_movement",
    "parallelism",
    "cores",
    "waiting",
    "gpus",
    "trace_quality",
)


def _all_rules() -> dict[str, Rule]:
    names = {module.name for module in pkgutil.iter_modules(diagnosis.__path__)}
    for name in (*_ORDER, *sorted(names - {*_ORDER, "rules", "ranking"})):
        importlib.import_module(f"{diagnosis.__name__}.{name}")
    return REGISTERED


#: By slug. Of equally grave findings with equal seconds the earlier rule's comes first.
RULES = _all_rules()
