"""What is recorded of the objects that task runs allocate, where that is asked for."""

from __future__ import annotations

from dasfprof.schema.declaration import event_kind

ALLOCATION = event_kind(
    "Allocation",
    "A line of a task run whose objects were live at the fullest moment that was seen of it. "
    "Recorded of the first task run of each function, and of those that were seen to hold more "
    "than the ones before: the ten stacks with most.",
    recorder="TracePlugin",
    columns="""
key             key      key      the key
run_id          int      id       Dask's number of the attempt
name            text     text     dask.utils.key_split of the key
stack           int      id       number of the Stack in the same file, whose frames have no
    functions; -1: unknown
size            int      bytes    of the objects that were allocated there and live
blocks          int      count    their blocks of memory
seen            int      bytes    of all that was live then, and allocated in the process since the
    task run began
peak            int      bytes    the most that was live of that at any moment of the task run
""",
)

TRACED_FUNCTION = event_kind(
    "Traced Function",
    "How many task runs of a function had their allocations traced. The last event of a function "
    "counts.",
    recorder="TracePlugin",
    columns="""
name            text     text     dask.utils.key_split of the keys
runs            int      count    task runs that were
left_out        int      count    task runs that were not: another one ran in the same process
refused         text     text     why this worker traces nothing; such an event has no name
""",
)
