"""What is recorded of the profiles of calls that workers write beside their trace files."""

from __future__ import annotations

from dasfprof.schema.declaration import event_kind

CALL_PROFILE = event_kind(
    "Call Profile",
    "A profile of the calls of a function's task runs was written, as a file of Python's `pstats` "
    "in the directory of this one. The last event of a function tells what its file holds.",
    recorder="TracePlugin",
    columns="""
file            text     text     its name; None: there is none
name            text     text     dask.utils.key_split of the keys
profiler        text     text     cprofile or profile
runs            int      count    task runs in it
left_out        int      count    task runs that are not: another profiler was active in their
    thread, or they called too many functions
refused         text     text     why this worker profiles nothing; such an event has no file
""",
)
