"""Calls and times of tasks' functions by a deterministic profiler, where one is asked for.

`engines` are the profilers, and what was counted of a function, `observer` what runs tasks
under a profiler and writes the files.
"""
