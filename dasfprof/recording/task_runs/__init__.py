"""Facts about each task run."""
