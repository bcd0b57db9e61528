"""Two sides of runs in a page: their timelines, a waterfall, tables, sampled calls."""
