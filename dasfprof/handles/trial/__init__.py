"""Trials: a program runs with and without a change in turns, and the results are compared."""
