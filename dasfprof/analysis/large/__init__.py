"""Analysis of runs that do not fit into memory, in time windows.

Each file is scanned once. Small tables stay in memory; for task runs and transfers, only the byte
ranges and times are stored (`windows`). A window, read with its surroundings and the small tables,
is a `Trace` like any other. First, all windows find facts about the whole run (`extent`). Then each
answers questions about what started in it, and the answers are added up. `run.LargeRun` does this
in this process, and `cluster` as Dask tasks on workers that can read the files.
"""
