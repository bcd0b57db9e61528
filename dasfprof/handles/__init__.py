"""Objects that users hold, such as a run that is recorded, its analyser, or a comparison.

Each object combines parts of other packages. A run combines its recording and its analysis, and an
analyser combines its tables and the report.
"""
