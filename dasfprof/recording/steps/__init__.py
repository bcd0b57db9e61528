"""Which step of the pipeline built and submitted what."""
