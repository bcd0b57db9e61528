"""Stack samples: the lines in which tasks, event loops and the client's program spend their time.

One thread of each process samples the stacks of other threads about 20 times per second (see
`sampler`). It samples `Subject`s. A subject represents the threads of a worker's tasks, a blocked
event loop, or the main thread of a client.
"""
