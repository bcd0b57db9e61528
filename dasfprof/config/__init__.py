"""Settings of dasfprof.

A value that is passed as an argument overrides the value in Dask's config (``dasfprof.*``), which
overrides the default.
"""
