"""The diagnosis of a run: rules that look for known faults, and a ranking of what they find."""

from dasfprof.analysis.diagnosis.ranking import RULES, diagnose

__all__ = ["RULES", "diagnose"]
