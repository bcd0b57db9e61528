"""Runs that do not fit into memory, analysed part by part: a part is a window of time.

Each file is looked through once: what there is little of stays in memory, of task runs and
transfers it is noted in which stretches of bytes they lie, and when (`windows`). A window, read
with what is around it and with all that there is little of, is a `Trace` like any other. All
windows first tell what only the whole run knows (`extent`); then each answers questions of what
began in it, and the answers are added up. `run.LargeRun` does so in this process, `cluster` as Dask
tasks on workers that see the files.
"""
