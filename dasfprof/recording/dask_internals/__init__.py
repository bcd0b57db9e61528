"""The parts of Dask that the recorder uses and that Dask's documentation does not describe.

Each module holds one hook. `names` lists every private name, and what is lost without it. No other
part of dasfprof uses private names, so only this package changes if a new Dask renames something.
If a name is missing, only what depends on it is not recorded, and the trace's header says so.
"""
