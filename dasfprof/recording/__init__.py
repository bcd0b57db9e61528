"""The recording of a run: plugins for workers and the scheduler, and the code that they use."""
