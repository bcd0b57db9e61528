"""The diagnosis of a run: rules that look for known faults, and a ranking of what they find."""

from dasfprof.analysis.diagnosis.ranking import diagnose
from dasfprof.analysis.diagnosis.rules import RULES

__all__ = ["RULES", "diagnose"]
