"""What viewers of traces draw of a run: slices on tracks, arrows between them, marks, counters.

`drawn.DrawnRun` has all of it; the formats of viewers write it.
"""
