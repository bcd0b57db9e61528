"""The diagnosis of a run: rules that look for known problems, and the ranking of their findings."""

from dasfprof.analysis.diagnosis.ranking import RULES, diagnose, find, table_of

__all__ = ["RULES", "diagnose", "find", "table_of"]
