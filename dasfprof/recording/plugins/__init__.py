"""The Dask plugins that record a run on the scheduler and the workers, and their parts."""
