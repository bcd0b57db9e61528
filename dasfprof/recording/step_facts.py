"""The facts about steps: what the client records of them, and the mark that graphs carry.

See `dasfprof.recording.facts` for what all schemas share. The `thread_id` is ``client``.
"""

from __future__ import annotations

from dasfprof.database.batch import Schema
from dasfprof.events import EventPhases

#: The annotation of graphs that are computed in a step: the names of the steps around, the
#: outermost first. The scheduler's plugin takes it off the tasks before workers see them.
ANNOTATION = "dasfprof_step"

#: A step was entered.
STEP = Schema(
    EventPhases.INSTANT,
    "Step",
    (("timestamp", "float"),),
    (
        ("id", "int"),  # of this time that it was entered
        ("parent", "int"),  # id of the step around it; -1: none
        ("step", "text"),  # its own name
    ),
)

#: A step was left.
STEP_END = Schema(EventPhases.INSTANT, "Step End", (("timestamp", "float"),), (("id", "int"),))

#: A layer of a graph was built in a step, for the first time or after another step built it; or
#: it was built in no step, out of layers that come of one.
STEP_LAYER = Schema(
    EventPhases.INSTANT,
    "Step Layer",
    (("timestamp", "float"),),
    (
        ("id", "int"),  # of the step; -1: none
        ("layer", "key"),  # its name
        ("dependencies", "keys"),  # where it was built in no step: names of layers it depends on
    ),
)
