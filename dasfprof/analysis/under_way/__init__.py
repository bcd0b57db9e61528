"""The unfinished work of a cluster at one time, and why it may not finish.

A `ClusterState` is built either from the end of a trace (`from_trace`), or from the answers of the
processes of a live cluster (`from_views`), or from a dump (`from_dump`). The module `causes` finds
out why the work does not finish.
"""
