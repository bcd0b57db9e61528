"""The run's page on Dask's dashboard: ``/dasfprof`` on the scheduler's HTTP server."""
