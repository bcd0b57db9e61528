"""Trials: a program runs alternately with and without a change, and the results are compared."""
