"""What the client records of the steps of a pipeline, and of the graphs that it sends.

The events' `thread_id` is ``client``.
"""

from __future__ import annotations

from dasfprof.schema.declaration import event_kind

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
