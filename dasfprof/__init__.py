"""dasfprof: a profiler native to Dask."""

__version__ = "0.1.0"
