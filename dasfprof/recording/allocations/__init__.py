"""Which lines of tasks allocate what they hold, by Python's tracemalloc, where that is asked for.

tracemalloc traces a whole process, without saying which thread allocated what. So a task run is
told of only if no other one ran in its process at the time. `tracing` is what is the process's,
`moments` a look at what is live, `observer` what runs tasks and writes what was found.
"""
