"""Trace files: many processes write them, and they are read back as events or columns.

FORMAT.md, beside this file, describes the bytes.
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
