"""Unfinished work of a cluster at one time, and why it may not finish.

A `ClusterState` is built from the end of a trace (`from_trace`), or from what the processes of a
live cluster answer (`from_views`). `causes` finds why its work does not finish.
"""
