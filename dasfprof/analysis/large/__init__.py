"""Runs that do not fit into memory, analysed part by part.

What a run has many of (task runs, transfers) is spilled to disk in parts by key (`spill`). A part,
with all that is not spilled, is a `Trace` like any other (`parts`), so that the same code analyses
it; what it finds is added up without rounding (`Groups.exact`), and comes out as it does in memory,
to the last digit. `run.LargeRun` does so in this process, `cluster` as Dask tasks on the workers
that have the files.
"""
