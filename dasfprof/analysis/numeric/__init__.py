"""Arithmetic on arrays: groups, intervals, time-weighted means."""
