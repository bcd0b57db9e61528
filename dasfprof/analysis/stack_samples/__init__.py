"""Stack samples: their task runs, lines, functions and libraries, and how their time was spent."""
