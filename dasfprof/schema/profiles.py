"""Event kinds of call profiles and of stack samples."""

from __future__ import annotations

from dasfprof.schema.events import event_kind

# --- What is recorded of the profiles of calls that workers write beside their trace files --------

CALL_PROFILE = event_kind(
    "Call Profile",
    "A profile of the calls of a function's task runs was written, as a file of Python's `pstats` "
    "in the directory of this one. The last event of a function tells what its file holds.",
    recorder="TracePlugin",
    columns="""
file            text     text     its name; None: there is none
name            text     text     dask.utils.key_split of the keys
profiler        text     text     cprofile
runs            int      count    task runs in it
left_out        int      count    task runs that were not profiled: another task run of the process
    was, another profiler was active, or the function had called too many functions
refused         text     text     why this worker profiles nothing; such an event has no file
""",
)


# --- What is recorded of the lines in which threads spend their time, where that is long ----------

#: What a sample of any thread holds. Its seconds are whole numbers of 1/1024 s, as are its times.
_OF_A_SAMPLE = """
stack           int      id       number of the Stack in the same file; -1: unknown
activity        text     text     what the thread did at that instant, by the kernel: running (or it
    could have, and had no core), lock (it waited for the interpreter's lock), waiting (for anything
    else); None: unknown
interval        float    seconds  what this stands for: between the last times at which looks were
    due, until this look and until the last that would have been at this thread: about a second if
    it rarely is
cpu             time     seconds  CPU time of the thread since then; None: unknown, as at the first
    look at a task run
run_queue       time     seconds  the thread could run since then and had no core; None: unknown
"""

TASK_SAMPLE = event_kind(
    "Task Sample",
    "The stack of a thread while it ran a task, from the task's function on. It belongs to the "
    "task run of that thread and time. Those of functions whose runs take 30 ms are looked at "
    "each time, those of others rarely, runs of under 3 ms hardly ever.",
    recorder="TracePlugin",
    columns="""
thread          text     text     identity of the thread
"""
    + _OF_A_SAMPLE,
)

LOOP_SAMPLE = event_kind(
    "Loop Sample",
    "The stack of the thread of an event loop that had not turned for 50 ms and more; and, without "
    "a stack, that it turned again.",
    recorder="TracePlugin",
    columns="""
since           time     time     it last turned
until           time     time     it had turned again; None: not yet
"""
    + _OF_A_SAMPLE,
)

CLIENT_SAMPLE = event_kind(
    "Client Sample",
    "The stack of the client's main thread.",
    recorder="StepRecorder",
    columns="""
phase           text     text     what it was busy with, by the innermost of Dask's calls: waiting
    (for the cluster), pickling, optimising, hashing (of names for tasks), sending (a graph),
    building (a graph, or any other call of Dask's); program where it was in none
"""
    + _OF_A_SAMPLE,
)
