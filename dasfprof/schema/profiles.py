"""Event kinds of call profiles and of stack samples."""

from __future__ import annotations

from dasfprof.schema.events import event_kind

CALL_PROFILE = event_kind(
    "Call Profile",
    "A worker wrote the profile of a function's task runs to a file of Python's `pstats` in the "
    "directory of its trace. The last event of a function describes the file's current content.",
    recorder="TracePlugin",
    columns="""
file            text     text     name of the file, or None if there is none
name            text     text     dask.utils.key_split of the keys
profiler        text     text     cprofile
runs            int      count    number of task runs in the profile
left_out        int      count    number of task runs that were not profiled, because another task
    run of the process was profiled, another profiler was active, or the function had called too
    many functions
refused         text     text     why this worker profiles nothing; such an event has no file
""",
)


#: Columns that all kinds of samples have. Times and durations are multiples of 1/1024 s.
_OF_A_SAMPLE = """
stack           int      id       number of the Stack in the same file, or -1 if unknown
activity        text     text     state of the thread at that instant: running (executing or
    runnable), lock (waiting for the GIL) or waiting (for anything else), or None if unknown
interval        float    seconds  time that the sample represents: between the previous and the
    current scheduled sample of this thread, about a second if the thread is rarely sampled
cpu             time     seconds  CPU time of the thread since the previous sample, or None if
    unknown, as in the first sample of a task run
run_queue       time     seconds  time since then for which the thread waited for a CPU core, or
    None if unknown
"""

TASK_SAMPLE = event_kind(
    "Task Sample",
    "The stack of a thread while it ran a task, from the task's function on. It belongs to the "
    "task run on that thread at that time. If the task waits for a pool of threads, the stack of a "
    "thread of the pool follows. Functions whose runs take at least 30 ms are always sampled, "
    "others rarely, and runs under 3 ms hardly ever.",
    recorder="TracePlugin",
    columns="""
thread          text     text     identity of the thread
"""
    + _OF_A_SAMPLE,
)

LOOP_SAMPLE = event_kind(
    "Loop Sample",
    "The stack of an event loop's thread when the loop had been blocked for at least 50 ms, or, "
    "without a stack, the end of that time.",
    recorder="TracePlugin",
    columns="""
since           time     time     when the loop was blocked
until           time     time     when the loop continued, or None if it is still blocked
"""
    + _OF_A_SAMPLE,
)

CLIENT_SAMPLE = event_kind(
    "Client Sample",
    "The stack of the client's main thread.",
    recorder="StepRecorder",
    columns="""
phase           text     text     what the innermost call of Dask did: waiting (for the cluster),
    pickling, optimising, hashing (to name tasks), sending (a graph) or building (a graph, or any
    other call), or program if Dask was not called
"""
    + _OF_A_SAMPLE,
)
