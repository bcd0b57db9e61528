"""Analysis of runs that are larger than memory, in time windows.

Each trace file is scanned once. Small tables stay in memory. For task runs and transfers, only
their byte ranges and times are stored (`windows`). When a window is read, the task runs and
transfers around it and the small tables are included, and the result is a `Trace` like any other.
First, each window contributes facts about the full run (`extent`). Then each window computes
partial results from the task runs that started in it, and these are combined. `run.LargeRun` does
this in this process. `run.ClusterRun` does it in Dask tasks, on workers that can read the files.
"""
