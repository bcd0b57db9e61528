"""Read-only views of what a live worker or scheduler has under way.

These modules need nothing but the standard library: `dasfprof.stuck` sends them by value to
processes that do not have dasfprof. They read attributes of Dask's objects defensively, as those
may be of any version. Their dicts have the columns of the events of `dasfprof.schema.under_way`.
"""
