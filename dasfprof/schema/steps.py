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
""",
)
