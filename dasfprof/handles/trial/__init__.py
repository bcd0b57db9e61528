"""A trial: a program is run as it is and with a change, in turns, and its results are compared."""
