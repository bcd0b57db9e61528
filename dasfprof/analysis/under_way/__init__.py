"""What a cluster has under way at one time, and why it may not end.

A `ClusterState` is made of the last that a trace tells (`from_trace`), or of what the processes of
a live cluster answer (`from_views`). `causes` finds why its work does not end.
"""
