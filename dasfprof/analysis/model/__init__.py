"""Derived data of a run: links, attempts, critical path and accounts of thread time.

All modules use `Run`, the normal form. They use raw units and row numbers.
"""
