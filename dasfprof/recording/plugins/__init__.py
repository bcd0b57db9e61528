"""The Dask plugins of a run, and what they consist of."""
