"""Read-only views of the work in progress in a live worker or scheduler.

These modules need only the standard library, because `dasfprof.stuck` sends them by value to
processes that do not have dasfprof. They read attributes of Dask's objects defensively, since these
may be of any version. Their dicts have the columns of the events of `dasfprof.schema.under_way`.
"""
