"""The page's timeline: task runs by thread, the critical path, what is selected."""
