"""Trace files, which many processes write, and which are read as events or as columns.

FORMAT.md in this directory describes the format.
"""

from dasfprof.database.file import EventDatabase, FileDatabase
from dasfprof.database.multi import MultiEventDatabase, find_runs, open_run
from dasfprof.database.profiler import DasfDatabase, EventProfiler, open_database

__all__ = [
    "DasfDatabase",
    "EventDatabase",
    "EventProfiler",
    "FileDatabase",
    "MultiEventDatabase",
    "find_runs",
    "open_database",
    "open_run",
]
