"""The model of a run, in raw units and row numbers: links, attempts, critical path, accounts.

All of it rests on `Run`, the normal form.
"""
