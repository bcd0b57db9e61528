"""Presentation and export of runs: HTML pages, terminals, notebooks, formats of other tools."""
