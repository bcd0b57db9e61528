"""The HTML report: one file with its data, scripts and styles."""
