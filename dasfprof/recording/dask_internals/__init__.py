"""Hooks and accessors for parts of Dask that Dask's documentation does not describe.

Each module serves one purpose. `names` lists every private name, and what a trace lacks if the name
is missing. No other part of dasfprof uses private names, so only this package changes if a new
version of Dask renames something. If a name is missing, only the facts that depend on it are not
recorded, and the header of the trace reports the loss.
"""
