"""Read-only views of the work in progress in a live worker or scheduler.

`dasfprof.stuck` sends these modules by value to processes in which dasfprof is not installed. So
the modules need only the standard library, Dask, and packages that Dask requires. They read
attributes of Dask's objects defensively, because the process may use any version of Dask. The dicts
that they return have the columns of the events of `dasfprof.schema.under_way`.
"""
