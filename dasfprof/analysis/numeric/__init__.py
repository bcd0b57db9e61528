"""Arithmetic on arrays: groups, time ranges, and statistical tests."""
