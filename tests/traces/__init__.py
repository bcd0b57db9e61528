"""How to make a trace for a test without a cluster; import everything from here.

Take the first of these that can say what the test is about:

1. `Plan` and `Task`: a whole run, from what ran where and when. What a task does not say follows
   from its start and stop. ``plan.write(directory)`` writes the files of all plugins and opens
   them. `traces.noisy.Noisy` plans runs of one pipeline on a noisy machine, with planted changes.
2. `Plugin` and `row`: one plugin's file, row by row of the recorder's schemas, for what a plan
   cannot say: missing columns, several files of a worker, notes, clocks. Plans are written by it.
   `traces.hung.Hung` writes runs that did not end, with it.
3. `record`, `write_trace` and `write_as_dasf`, of `compute`, `managed`, `usage` and other events:
   a file of events one by one, as user code and DASF's own profiler write them.
4. `made_trace`: the tables of a `Trace` without any file, for thousands of random examples
   (`ANY_RUNS`), with times in orders that no file brings into a table.
"""

from traces.events import T, compute, managed, record, usage, write_as_dasf, write_trace
from traces.in_memory import ANY_RUNS, TASK_TIMES, made_trace
from traces.plans import Plan, Task, filled, held_results
from traces.rows import Plugin, row

__all__ = [
    "ANY_RUNS",
    "TASK_TIMES",
    "Plan",
    "Plugin",
    "T",
    "Task",
    "compute",
    "filled",
    "held_results",
    "made_trace",
    "managed",
    "record",
    "row",
    "usage",
    "write_as_dasf",
    "write_trace",
]
