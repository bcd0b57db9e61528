"""The commands of the shell: ``dasfprof ...``, or ``dask dasfprof ...``."""
