"""Functions that create traces for tests without a cluster. Import everything from this package.

Use the first of these that can describe what the test needs:

1. `Plan` and `Task`: a complete run, from which task ran where and when. Times that a task does not
   give follow from its start and stop. ``plan.write(directory)`` writes the files of all plugins
   and opens them. `traces.noisy.Noisy` plans runs of one pipeline on a noisy machine, with planted
   changes.
2. `Plugin` and `row`: one plugin's file, row by row of the recorder's schemas, for what a plan
   cannot describe: missing columns, several files of a worker, data notes, clocks. `Plan` and
   `traces.hung.Hung`, for unfinished runs, use it.
3. `record`, `write_trace` and `write_as_dasf`, of `compute`, `managed`, `usage` and other events:
   a file of single events, as user code and DASF's profiler write them.
4. `made_trace`: the tables of a `Trace` without any file, for thousands of random examples
   (`ANY_RUNS`), also with orders of times that no file can have.
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
