"""Analysis of runs that do not fit into memory, in time windows.

Each file is scanned once. Small tables stay in memory; for task runs and transfers, only the byte
ranges and times are stored (`windows`). A window, read with its surroundings and the small tables,
is a `Trace` like any other. First, all windows contribute facts about the full run (`extent`). Then
each computes partial results from what started in it, and these are combined. `run.LargeRun` does
this in this process, and `run.ClusterRun` as Dask tasks on workers that can read the files.
"""
