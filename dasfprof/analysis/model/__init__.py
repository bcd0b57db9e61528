"""The model of a run, in raw units and row numbers: slots, predecessors, statuses, accounts.

`times` has when each task run came to each stage, `slots` which threads the runs held, `attempts`
every attempt at a task, those on lost workers too. The rest builds on these.
"""
