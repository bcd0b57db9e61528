"""The diagnosis of a run: rules that look for known faults, and a ranking of what they find."""

from dasfprof.analysis.diagnosis.ranking import RULES, diagnose, find, table_of

__all__ = ["RULES", "diagnose", "find", "table_of"]
