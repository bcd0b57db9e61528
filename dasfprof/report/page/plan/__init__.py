"""The plan of a run, drawn as boxes and what they hand to each other."""
