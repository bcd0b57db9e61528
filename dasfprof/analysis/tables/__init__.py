"""The analyses of a run, one function per table. Only these modules label columns with units."""
