"""The Dask plugins of a run and their parts."""
