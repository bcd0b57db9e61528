"""Samples of stacks: in which lines tasks, event loops and the client's program spend their time.

One thread of each process looks at its other threads some 20 times a second (`sampler`); what it
looks at are `Subject`s: the threads of a worker's tasks, an event loop that does not turn, the main
thread of a client.
"""
