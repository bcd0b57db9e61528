"""What is found out about each task run."""
