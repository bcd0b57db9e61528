"""Objects that users hold, such as a run that is recorded, its analyser, or a comparison.

Each object combines parts of other packages. A run combines recording with analysis, and an
analyser combines tables with the report.
"""
