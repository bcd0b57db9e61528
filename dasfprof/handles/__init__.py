"""What a user holds: a run that is recorded, its analyser, a comparison, a look at a live cluster.

Each joins what lower floors do: a run its recording and its analysis, an analyser its answers and
their report.
"""
