"""What the client records of steps, of the graphs that it sends, and of what it calls."""

from __future__ import annotations

from dasfprof.schema.events import event_kind

# --- What the client records of the steps of a pipeline, and of the graphs that it sends ----------
#
# The events' `thread_id` is ``client``.

#: The annotation of graphs that are computed in a step: the names of the steps around, the
#: outermost first. The scheduler's plugin takes it off the tasks before workers see them.
ANNOTATION = "dasfprof_step"
#: Between the names of a step and of the one around it, in the names of the analysis.
SEPARATOR = "/"

STEP = event_kind(
    "Step",
    "A step of the pipeline was entered.",
    recorder="StepRecorder",
    columns="""
id              int      id       of this time that it was entered
parent          int      id       id of the step around it; -1: none
step            text     text     its own name
""",
)

STEP_END = event_kind(
    "Step End",
    "A step was left.",
    recorder="StepRecorder",
    columns="""
id              int      id       of the time that it was entered
""",
)

STEP_LAYER = event_kind(
    "Step Layer",
    "A layer of a graph was built in a step, for the first time or after another step built it; "
    "or it was built in no step, out of layers that come of one.",
    recorder="StepRecorder",
    columns="""
id              int      id       of the step; -1: none
layer           key      key      its name
dependencies    keys     keys     where it was built in no step: names of layers it depends on
""",
)

GRAPH_SENT = event_kind(
    "Graph Sent",
    "The client's process had pickled a graph and given it to its connection with the scheduler.",
    recorder="StepRecorder",
    columns="""
client          text     text     of which client
host            text     text     name of its host
since           time     time     the graph before it had been sent, or recording began there
start           time     time     Dask began to pickle it
optimising      time     seconds  Dask optimised collections in that thread since its graph before,
    before it began to pickle; None: unknown
size            time     bytes    pickled; None: unknown
""",
)

LINE = event_kind(
    "Line",
    "A line of the program built something for the first time, such as a layer of a graph, a part "
    "of a dataframe or futures, or called Dask.",
    recorder="StepRecorder",
    columns="""
id              int      id       of the line
file            text     text     the innermost file of the program's own code
line            int      id       the line in it
code            text     text     the function that it is in
text            text     text     of the line; None: see missing
missing         text     text     why there is no text: not recorded, changed since, there is no
    such file
cell            text     text     of a notebook: the cell, as In[3]; None: no cell
library         text     text     the innermost file of a library that the line called and that
    called Dask; None: the line called Dask itself
library_line    int      id       the line in it; -1: none
library_code    text     text     the function that it is in
""",
)

LINE_LAYER = event_kind(
    "Line Layer",
    "A line built a layer of a graph, or a future. Where Dask fuses layers the tasks are called "
    "after the last.",
    recorder="StepRecorder",
    columns="""
id              int      id       of the line
layer           key      key      its name; of a future its key
dependencies    keys     keys     names of layers that it depends on, or that were fused into it
""",
)

LINE_GRAPH = event_kind(
    "Line Graph",
    "A line sent a graph that it alone built, as Client.map does.",
    recorder="StepRecorder",
    columns="""
id              int      id       of the line
key             key      key      of a task of the graph
""",
)


# --- What the client records of what it calls, and of what it sends -------------------------------
#
# The events' `thread_id` is ``client``.

#: The file of a function that was sent by value, as workers know it with a recent cloudpickle.
DYNAMIC = "<dynamic-code>"

FUNCTION_SENT = event_kind(
    "Function Sent",
    "A Python function that the client pickled by value, or one within it, for the first time. "
    "cloudpickle may send it without its file: to workers that is <dynamic-code>.",
    recorder="StepRecorder",
    columns="""
function        text     text     qualified name, with its module
file            text     text     where it is
line            int      id       its first line
last            int      id       its last line
source          text     text     its first 100 lines; None: see missing
missing         text     text     why there is no source: within another function, changed since
""",
)

CLIENT_CALLS = event_kind(
    "Client Calls",
    "Calls of Dask by the program, of one kind and from one line, one after the other; what Dask "
    "did for it outside of these; and from when to when it was recorded. The event's time is the "
    "first one's begin.",
    recorder="StepRecorder",
    columns="""
call            text     text     compute, persist, submit, map, gather, result, wait, as_completed,
    scatter, cancel, run, run_on_scheduler, rebalance, replicate, upload_file, publish_dataset,
    unpublish_dataset; tokenising, optimising or pickling where it was outside of these; recording
file            text     text     the innermost file of the program's own code that called; None:
    unknown
line            int      id       the line in it; -1: unknown
code            text     text     the function that it is in
main            int      flag     1: the main thread called
calls           int      count    how many
stop            time     time     the last one's end
seconds         time     seconds  of them all; the rest is in it
longest         time     seconds  the longest
waiting         time     seconds  for results to be there, or for an answer
receiving       time     seconds  until results were here
deserialising   time     seconds  of that: deserialising them
tokenising      time     seconds  making names of tasks out of what goes into them
optimising      time     seconds  optimising collections
pickling        time     seconds  pickling graphs, and handing them to the connection
keys            int      count    futures or keys that were asked for, made or given
received        int      bytes    results, as Dask sizes them in memory
sent            int      bytes    graphs, pickled; of scatter the data, as Dask sizes them
""",
)

SENT_VALUE = event_kind(
    "Sent Value",
    "A value of 10 kB or more that a graph held: a Python function that was pickled by value, or "
    "an argument. Of a layer of more than 100 tasks some were looked at.",
    recorder="StepRecorder",
    columns="""
kind            text     text     function or argument
name            text     text     the function, with its module; of an argument the tasks' name
size            int      bytes    pickled; from the sixth of a name on as of the fifth; about, where
    the graph took half a second to pickle
seconds         float32  seconds  pickling it once; NaN where it was not measured
tasks           int      count    how many of the graph's tasks have it; 0: unknown
why             text     text     by value: of __main__, a lambda, defined in a function, its module
    is sent by value; argument
held            text     text     the largest that a function holds, and how; an argument's type
file            text     text     the line that sent the graph; None: unknown
line            int      id       and -1
code            text     text     and None
""",
)
