"""Recording: plugins for workers and the scheduler, and their parts."""
