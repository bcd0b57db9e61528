"""Event kinds that the client's process records: steps, lines, graphs, and calls to Dask.

The `thread_id` of these events is ``client``.
"""

from __future__ import annotations

from functools import partial

from dasfprof.schema.events import event_kind

#: Name of the annotation of graphs that are computed in a step. Its value is the list of the names
#: of the step and the enclosing steps, outermost first. The scheduler's plugin removes the
#: annotation from the tasks before workers see them.
ANNOTATION = "dasfprof_step"
#: Separator between the names of a step and its enclosing steps in the analysis.
SEPARATOR = "/"

_client_event = partial(event_kind, recorder="StepRecorder")

STEP = _client_event(
    "Step",
    "A step of the pipeline was entered.",
    columns="""
id              int      id       id of this entry
parent          int      id       id of the step around it, or -1 for none
step            text     text     name of the step
""",
)

STEP_END = _client_event(
    "Step End",
    "A step was left.",
    columns="""
id              int      id       id of the entry
""",
)

STEP_LAYER = _client_event(
    "Step Layer",
    "A layer of a graph was built in a step, for the first time or after another step built it. Or "
    "it was built outside of steps from layers of a step.",
    columns="""
id              int      id       id of the step, or -1 for none
layer           key      key      name of the layer
dependencies    keys     keys     outside of steps, names of the layers it depends on
""",
)

GRAPH_SENT = _client_event(
    "Graph Sent",
    "The client's process had pickled a graph and passed it to its connection with the scheduler.",
    columns="""
client          text     text     id of the client
host            text     text     name of its host
since           time     time     when the previous graph was sent, or recording began
start           time     time     when Dask began to pickle the graph
optimising      time     seconds  time for which Dask optimized collections in that thread after its
    previous graph and before start, or None if unknown
size            time     bytes    pickled size, or None if unknown
""",
)

LINE = _client_event(
    "Line",
    "A line of the program built something for the first time, such as a layer of a graph, a "
    "partition or futures, or called Dask.",
    columns="""
id              int      id       id of the line
file            text     text     innermost file of the user's code
line            int      id       line number
code            text     text     function that contains the line
text            text     text     text of the line, or None (see missing)
missing         text     text     why there is no text: not recorded, changed since, there is no
    such file
cell            text     text     notebook cell, such as In[3], or None
library         text     text     innermost file of a library between the line and Dask, or None if
    the line called Dask itself
library_line    int      id       line number in that file, or -1 for none
library_code    text     text     function that contains this line
""",
)

LINE_LAYER = _client_event(
    "Line Layer",
    "A line built a layer of a graph, or a future. If Dask fuses layers, the tasks are named after "
    "the last one.",
    columns="""
id              int      id       id of the line
layer           key      key      name of the layer, or key of the future
dependencies    keys     keys     names of the layers it depends on, or that were fused into it
""",
)

LINE_GRAPH = _client_event(
    "Line Graph",
    "A line sent a graph that only this line built, as Client.map does.",
    columns="""
id              int      id       id of the line
key             key      key      key of a task of the graph
""",
)

#: Name of the file that workers see for a function that a recent cloudpickle pickled by value.
DYNAMIC = "<dynamic-code>"

FUNCTION_SENT = _client_event(
    "Function Sent",
    "The first time that the client pickled a Python function by value, or one inside it. "
    "cloudpickle may send it without its file, which workers then see as <dynamic-code>.",
    columns="""
function        text     text     qualified name with the module
file            text     text     the file
line            int      id       its first line
last            int      id       its last line
source          text     text     its first 100 lines, or None (see missing)
missing         text     text     why there is no source: within another function, changed since
""",
)

CLIENT_CALLS = _client_event(
    "Client Calls",
    "Successive calls of Dask of one kind from one line of the program, work of Dask outside of "
    "these calls, or the time range of the recording. The event's time is the first start.",
    columns="""
call            text     text     compute, persist, submit, map, gather, result, wait, as_completed,
    scatter, cancel, run, run_on_scheduler, rebalance, replicate, upload_file, publish_dataset or
    unpublish_dataset; tokenising, optimising or pickling for work outside of these; or recording
file            text     text     innermost file of the user's code that called, or None if unknown
line            int      id       line number, or -1 if unknown
code            text     text     function that contains the line
main            int      flag     1 if the main thread called
calls           int      count    number of calls
stop            time     time     end of the last call
seconds         time     seconds  total time of the calls, including the following parts
longest         time     seconds  time of the longest call
waiting         time     seconds  waiting for results or for an answer
receiving       time     seconds  receiving results
deserialising   time     seconds  part of receiving: deserializing results
tokenising      time     seconds  naming tasks after their inputs
optimising      time     seconds  optimizing collections
pickling        time     seconds  pickling graphs and passing them to the connection
keys            int      count    number of futures or keys that were requested, created or received
received        int      bytes    results, as Dask counts their size in memory
sent            int      bytes    pickled graphs, or with scatter the data, as Dask counts its size
""",
)

SENT_VALUE = _client_event(
    "Sent Value",
    "An object of at least 10 kB that was embedded in a graph: a Python function pickled by value, "
    "or an argument. In layers with more than 100 tasks, only some tasks are examined.",
    columns="""
kind            text     text     function or argument
name            text     text     the function with its module, or the name of the argument's tasks
size            int      bytes    pickled size. From the sixth object with this name on, it is that
    of the fifth. If pickling the graph took half a second, it is an estimate
seconds         float32  seconds  time for pickling it once, or NaN if it was not measured
tasks           int      count    number of the graph's tasks that contain it, or 0 if unknown
why             text     text     why it was pickled by value: in __main__, a lambda, defined in a
    function, its module is pickled by value; or argument
held            text     text     largest object that a function contains, and how; or the type of
    the argument
file            text     text     file of the line that sent the graph, or None if unknown
line            int      id       its line number, or -1
code            text     text     function that contains it, or None
""",
)
