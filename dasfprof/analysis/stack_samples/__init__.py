"""Stack samples: their task runs, lines, functions and libraries, and the activity of threads."""
