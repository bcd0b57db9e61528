"""What observes: plugins that record on workers and on the scheduler, and what they are made of."""
