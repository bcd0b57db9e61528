"""Sampled stacks in the page: their flame graphs, and the lines of functions and task runs."""
