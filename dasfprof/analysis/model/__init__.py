"""The model of a run, in raw units and row numbers: links, attempts, critical path, accounts.

All modules use `Run`, the normal form.
"""
